"""The `progress` of a workspace, or a `workspace_progress`, in words."""

from typing import Any

from starter.commands.words import size, took


def doing(operation: str, progress: dict[str, Any] | None) -> str:
    """`ARCHIVING`; while the store's copy is read back, `ARCHIVING, verifying`."""
    # An older server tells no stage.
    return f"{operation}, verifying" if progress and progress.get("stage") == "VERIFYING" else operation


def percent(progress: dict[str, Any] | None) -> str:
    if not progress or not progress["bytes_total"]:
        return ""
    return f" {min(100, 100 * progress['bytes_done'] // progress['bytes_total'])} %"


def bytes_moved(moved: dict[str, Any]) -> str:
    """`12.3 MB of 40.0 MB, 8.1 MB/s, 4.0 s left`, as far as it is known."""
    return ", ".join(part for part in _told(moved) if part)


def fitting(moved: dict[str, Any], room: int) -> str:
    """As much of it as there is room for: the time that is left is worth more than the pace."""
    done, pace, left = _told(moved)
    choices = ((done, pace, left), (done, left), (done,), (percent(moved).strip(),))
    texts = [", ".join(part for part in choice if part) for choice in choices]
    return next((text for text in texts if len(text) <= room), "")


def _told(moved: dict[str, Any]) -> tuple[str, str, str]:
    total, rate, left = moved["bytes_total"], moved.get("bytes_per_second"), moved.get("eta_seconds")
    return (
        f"{size(moved['bytes_done'])} of {size(total)}" if total else size(moved["bytes_done"]),
        f"{size(rate)}/s" if rate else "",
        f"{took(left)} left" if left else "",
    )
