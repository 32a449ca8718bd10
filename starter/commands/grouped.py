"""The help of `codehub` itself: commands under headings, in the order in which a person needs them."""

from typing import Any

from typer.core import TyperGroup


class Grouped(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        room = formatter.width - 6 - max(map(len, self.commands))
        for name in self.list_commands(ctx):
            command = self.commands[name]
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            sections.setdefault(str(heading), []).append((name, command.get_short_help_str(room)))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
