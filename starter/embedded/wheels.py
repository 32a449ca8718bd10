"""Where the wheels of the `embedded` extra put their programs."""

import os
from importlib import metadata
from pathlib import Path

from starter.embedded.errors import EmbeddedError


def program(distribution: str, *endings: str) -> Path:
    """The first file of the distribution that ends with one of `endings`, in that order, and can be run."""
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:
        raise EmbeddedError(
            f"The package {distribution} is not installed: install codehub with its extra 'embedded', "
            f"or name the service's address instead."
        ) from None
    for ending in endings:
        for file in files:
            path = Path(str(file.locate())).resolve()
            if path.as_posix().endswith(ending) and os.access(path, os.X_OK):
                return path
    raise EmbeddedError(
        f"The package {distribution} holds no {endings[0]} for this machine: install it again, "
        f"or name the service's address instead."
    )
