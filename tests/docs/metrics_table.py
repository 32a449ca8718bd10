"""The table of docs/metrics.md, from the code. `python -m tests.docs.metrics_table` writes it."""

from pathlib import Path

from prometheus_client.core import Metric

from adapters.telemetry import metrics
from adapters.telemetry.fleet import FleetCollector

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics -->\n", "<!-- /metrics -->"
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",)}


def families() -> dict[str, tuple[Metric, tuple[str, ...]]]:
    """Of each of ours: what it looks like when shown, and its labels."""
    found: dict[str, tuple[Metric, tuple[str, ...]]] = {}
    for value in vars(metrics).values():
        if hasattr(value, "_labelnames") and hasattr(value, "describe"):
            described = next(iter(value.describe()))
            found[described.name] = (described, tuple(value._labelnames))
    for family in FleetCollector().collect():
        found[family.name] = (family, tuple(family.samples[0].labels) if family.samples else ())
    return dict(sorted(found.items()))


def names() -> set[str]:
    """As they are written in a query."""
    return {
        f"{name}{suffix}" for name, (family, _) in families().items() for suffix in _SUFFIXES.get(family.type, ("",))
    }


def table() -> str:
    lines = ["| metric | type | labels | what it is |", "|---|---|---|---|"]
    for name, (family, labels) in families().items():
        suffix = _SUFFIXES.get(family.type, ("",))[0] if family.type in {"counter", "info"} else ""
        shown = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}{suffix}` | {family.type} | {shown} | {family.documentation} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
