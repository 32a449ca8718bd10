"""The settings table of docs/operations.md, from the code. `python -m tests.docs.settings_table` writes it."""

from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from settings import Settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
_BEYOND = 10_000_000
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->"


def table() -> str:
    lines = ["| setting | default | may be | what it is |", "|---|---|---|---|"]
    schemas = Settings.model_json_schema()["properties"]
    for name, field in Settings.model_fields.items():
        default = field.default
        if default is PydanticUndefined:
            shown = "the host's name"
        elif default is None or "SecretStr" in str(field.annotation):
            shown = ""
        else:
            shown = f"`{default}`" if str(default) else ""
        lines.append(f"| `{name.upper()}` | {shown} | {may_be(schemas[name])} | {field.description} |")
    return "\n".join(lines) + "\n"


def may_be(schema: dict[str, Any]) -> str:
    """Bounds that somebody could meet; those that only keep numbers within what a computer can tell are left out."""
    kinds: list[dict[str, Any]] = schema.get("anyOf", [schema])
    told = []
    for kind in kinds:
        least, most = kind.get("minimum"), kind.get("maximum", _BEYOND)
        if most < _BEYOND and least is not None:
            told.append(f"{least} to {most}")
        elif least is not None and abs(least) < _BEYOND:
            told.append(f"{least} or more")
        elif "exclusiveMinimum" in kind:
            told.append(f"above {kind['exclusiveMinimum']}" + (f", up to {most}" if most < _BEYOND else ""))
        if kind.get("minLength", 0) > 1:
            told.append(f"{kind['minLength']} characters or more")
        if "enum" in kind:
            told.append(", ".join(f"`{value}`" for value in kind["enum"]))
    return "; ".join(told)


def with_table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
