"""Pulling from an image registry, or finding out soon that none answers."""

import asyncio
from collections.abc import Callable
from typing import Any

from starter.ide.engine import Engine, EngineRefused

# Until the registry's first word. An engine tries for minutes where packets just vanish.
ANSWER_SECONDS = 8.0
# Between any two words. Large layers are reported as they come in.
SILENCE_SECONDS = 90.0


class NoAnswer(Exception):
    """The image can't be had from a registry; says why."""


async def pull(engine: Engine, reference: str, step: Callable[[str], None]) -> None:
    """Cancelled or given up: the engine stops as well, as its caller is gone."""
    step(f"asking the image registry for {reference}")
    layers: dict[str, tuple[int, int]] = {}
    words = engine.pull(reference)
    patience = ANSWER_SECONDS
    try:
        while True:
            try:
                async with asyncio.timeout(patience):
                    word = await anext(words)
            except StopAsyncIteration:
                return
            patience = SILENCE_SECONDS
            if share := _share(layers, word):
                step(f"pulling {reference}: {share}")
    except TimeoutError:
        raise NoAnswer(f"no answer for {patience:.0f} s") from None
    except EngineRefused as refused:
        raise NoAnswer(str(refused)) from refused
    finally:
        await words.aclose()


def _share(layers: dict[str, tuple[int, int]], word: dict[str, Any]) -> str:
    """How much of what is known so far has come in."""
    detail = word.get("progressDetail") or {}
    if word.get("status") == "Downloading" and detail.get("total"):
        layers[str(word.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
    elif word.get("status") == "Download complete" and (known := layers.get(str(word.get("id")))):
        layers[str(word.get("id"))] = (known[1], known[1])
    done, total = (sum(amounts) for amounts in zip(*layers.values(), strict=True)) if layers else (0, 0)
    return f"{done // 1024**2} of {total // 1024**2} MB" if total else ""
