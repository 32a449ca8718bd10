"""The settings table of docs/operations.md, from the code. `python -m tests.docs.settings_table` writes it."""

from pathlib import Path

from pydantic_core import PydanticUndefined

from settings import Settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->"


def table() -> str:
    lines = ["| setting | default | what it is |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = field.default
        if default is PydanticUndefined:
            shown = "the host's name"
        elif default is None or "SecretStr" in str(field.annotation):
            shown = ""
        else:
            shown = f"`{default}`" if str(default) else ""
        lines.append(f"| `{name.upper()}` | {shown} | {field.description} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
