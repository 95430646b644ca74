"""The Jupyter kernel that runs a notebook: always this interpreter, and ended with the notebook.

Jupyter looks kernels up by name, also in the user's home and in ``$JUPYTER_PATH``, where ``python3`` may be that of
another environment. This kernel is started with ``sys.executable`` whatever its name.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, ClassVar

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager


class ThisInterpreterKernel(AsyncKernelManager):
    """Starts the kernel and remembers its process; one kernel per process."""

    process: ClassVar["subprocess.Popen[bytes] | None"] = None

    @property
    def kernel_spec(self) -> KernelSpec:
        # Level 50 silences ipykernel's own warnings (unencrypted loopback, sockets closed under it).
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=50"]
        return KernelSpec(argv=command, display_name="Python 3", language="python")

    async def _async_launch_kernel(self, kernel_cmd: list[str], **kw: Any) -> None:
        # What subprocesses and C libraries print goes to the log, not between the lines of progress.
        await super()._async_launch_kernel(kernel_cmd, **{"stdout": 2, **kw})
        type(self).process = getattr(self.provisioner, "process", None)


def kill_kernel() -> None:
    """Kill the kernel and the processes that it started. Returns at once, so that signal handlers may call it."""
    if (process := ThisInterpreterKernel.process) is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # the kernel leads its own process group


def reap_kernel() -> None:
    """Kill what is left of the kernel and wait for it, so that its peak memory is counted."""
    kill_kernel()
    if (process := ThisInterpreterKernel.process) is not None:
        process.wait()
        ThisInterpreterKernel.process = None
