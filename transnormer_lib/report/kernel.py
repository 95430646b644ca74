"""The Jupyter kernel that a notebook runs in: this very interpreter, and gone when the notebook is done.

Jupyter looks a kernel up by name, in the user's home and in ``$JUPYTER_PATH`` too, where ``python3`` may be
another environment's. Here the name does not matter: the kernel is always started with ``sys.executable``.
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
    """Starts the kernel and remembers its process; one kernel per process of ours."""

    process: ClassVar["subprocess.Popen[bytes] | None"] = None

    @property
    def kernel_spec(self) -> KernelSpec:
        # Level 50 silences ipykernel's own warnings (unencrypted loopback, sockets closed under it).
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=50"]
        return KernelSpec(argv=command, display_name="Python 3", language="python")

    async def _async_launch_kernel(self, kernel_cmd: list[str], **kw: Any) -> None:
        # What a subprocess or a C library prints past Jupyter goes to the log, not among the progress lines.
        await super()._async_launch_kernel(kernel_cmd, **{"stdout": 2, **kw})
        type(self).process = getattr(self.provisioner, "process", None)


def kill_kernel() -> None:
    """Kill the kernel and all that it started, if any. Returns at once; fit for a signal handler."""
    if (process := ThisInterpreterKernel.process) is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # the kernel leads its own process group


def reap_kernel() -> None:
    """Kill what is left of the kernel and wait for it, so that its memory is accounted for."""
    kill_kernel()
    if (process := ThisInterpreterKernel.process) is not None:
        process.wait()
        ThisInterpreterKernel.process = None
