from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import Services, own_data


@pytest.fixture
def data(services: Services) -> Iterator[Path]:
    """A data directory; pytest's own would be kept, and these are large."""
    with own_data(services.root) as path:
        yield path
