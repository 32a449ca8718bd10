"""The one error of the embedded stack.

EmbeddedError        a person can act on it: one line, what happened and what to do
"""


class EmbeddedError(Exception):
    """Something the embedded stack can't solve by itself. The message is one line, fit to be shown as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
