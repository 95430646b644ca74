"""Disks that are full: a small tmpfs where one may be mounted, else a limit on the size of files."""

import resource
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SmallDisk:
    """A folder on a disk of so many bytes; without the right to mount one, ``limit`` must be called in the process
    that writes, and no single file there may be larger than a quarter of it."""

    folder: Path
    size: int
    mounted: bool

    def limit(self) -> None:
        """Call it in a new process."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size // 4, resource.RLIM_INFINITY))

    def limiting(self, work: Callable[[], object]) -> Callable[[], object]:
        """The work, under the limit."""

        def run() -> object:
            self.limit()
            return work()

        return run

    def make_room(self) -> None:
        if self.mounted:
            _mount(self.folder, "remount,size=1g")

    def remove(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def small_disk(folder: Path, size: int) -> SmallDisk:
    folder.mkdir(parents=True)
    return SmallDisk(folder, size, _mount(folder, f"size={max(size // 4096, 1) * 4096}"))


def _mount(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:  # no such command
        return False
