"""What the memory allocator keeps for itself."""

import contextlib
import ctypes

_ARENA_MAX, _MMAP_THRESHOLD = -8, -3
_LARGE = 1024 * 1024


def give_back_large_blocks() -> None:
    """Parts of archives are a few blocks of megabytes, made and freed by several threads. Left alone, glibc takes them
    from heaps that it then keeps, and a worker stays as large as its largest moments one upon the other."""
    # Another C library does it its own way.
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_ARENA_MAX, 2)
