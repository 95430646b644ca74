"""What a machine can run out of, memory and disk space, as one error each, whichever library met it."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

# How PyTorch, the C++ library, NumPy and the system report that memory has run out.
_NO_MEMORY = re.compile(r"can(no|')t allocate memory|bad_alloc|out of memory|unable to allocate", re.IGNORECASE)
_NO_SPACE = "No space left on device"  # as safetensors passes it on
_FAILED_WRITE = re.compile("inline_container|iostream error")  # how PyTorch reports one
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PROBE = 1 << 20  # bytes: a disk without room for so many is full


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory has run out."""
    return isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)) is not None


class DiskFull(OSError):
    """There is no space left under a folder; the message names it in one line."""

    def __init__(self, folder: Path) -> None:
        super().__init__(errno.ENOSPC, f"{folder}: the disk is full; free some space and run the same command again")
        self.folder = folder

    def __str__(self) -> str:
        return str(self.strerror)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise :class:`DiskFull` for an error inside the block that comes from a full disk under ``folder``."""
    try:
        yield
    except DiskFull:
        raise
    except Exception as problem:
        if _for_lack_of_space(problem, folder):
            raise DiskFull(folder) from problem
        raise


def _for_lack_of_space(problem: Exception, folder: Path) -> bool:
    number = problem.errno if isinstance(problem, OSError) else None
    if number is None and (of_rust := re.search(r"\(os error (\d+)\)", str(problem))):
        number = int(of_rust[1])
    if number is not None:
        return number in _FULL
    if _NO_SPACE in str(problem):
        return True
    # NumPy's and PyTorch's errors do not say why a write failed.
    return (isinstance(problem, OSError) or _FAILED_WRITE.search(str(problem)) is not None) and is_full(folder)


def is_full(folder: Path) -> bool:
    """Whether a megabyte cannot be written under ``folder``, for lack of space."""
    probe = folder / f".probe-{uuid4().hex[:12]}"
    try:
        probe.write_bytes(bytes(_PROBE))
        return False
    except OSError as problem:
        return problem.errno in _FULL
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
