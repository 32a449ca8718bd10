"""Ctrl-C, for commands that go on until they are told to end."""

import signal
from types import FrameType


def end_at_the_second() -> None:
    """The first Ctrl-C is a KeyboardInterrupt, as ever. Another one, while that is being obeyed, ends the process there
    and then: it would be a second exception wherever Python is by then, its own end included, and be told as a
    traceback.
    """
    # Ignored, it stays so: the shell that started this in the background wants it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _first)


def _first(number: int, frame: FrameType | None) -> None:
    del frame
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt
