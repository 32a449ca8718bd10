"""What a person was told."""


class Told:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.finished: list[str] = []

    def step(self, name: str, text: str) -> None:
        self.steps.append((name, text))

    def done(self, name: str, seconds: float) -> None:
        self.finished.append(name)

    def close(self) -> None: ...
