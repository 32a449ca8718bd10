import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from starter.embedded.dockerd import unmount_below


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory; pytest's own would be kept, and these are large."""
    with tempfile.TemporaryDirectory(prefix="codehub-data-") as folder:
        path = Path(folder)
        path.chmod(0o711)
        yield path
        unmount_below(path)
