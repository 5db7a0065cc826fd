"""A Jupyter kernel of this very interpreter that listens on sockets in a private folder."""

from __future__ import annotations

import os
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any, ClassVar

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from dmlcore.experiments.journal import SAVE

ROOT = Path(__file__).resolve().parents[2]


class LocalKernel(AsyncKernelManager):
    """Starts `sys.executable`, whatever kernels are installed, with dmlcore on its path.

    Kernels that start side by side race for free ports, so they get files as sockets instead. The folder lies
    in the system's temporary one: the path of a socket may have 100 characters at most.
    """

    journal: Path | None = None  # folder in which comparisons keep their finished runs
    _present: ClassVar[weakref.WeakSet[LocalKernel]] = weakref.WeakSet()

    @classmethod
    def keeping(cls, journal: Path | None) -> type[LocalKernel]:
        """Returns this kind of kernel, whose comparisons keep their finished runs in a folder."""
        return type(cls.__name__, (cls,), {"journal": journal})

    @classmethod
    def kill_all(cls) -> None:
        """Ends the processes of all kernels of this program at once, from any thread."""
        for kernel in [*cls._present]:
            process = getattr(kernel.provisioner, "process", None)
            if process is not None:
                process.kill()

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._folder = tempfile.TemporaryDirectory(prefix="dml-", ignore_cleanup_errors=True)
        self._present.add(self)
        self.transport = "ipc"
        self.ip = f"{self._folder.name}/kernel"
        self.connection_file = f"{self._folder.name}/kernel.json"

    @property
    def kernel_spec(self) -> KernelSpec:
        """What to start; MPLBACKEND is set since the caller's own choice may be one that shows nothing."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "--log-level=50", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
            env={
                "PYTHONPATH": path,
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                **({SAVE: str(self.journal)} if self.journal else {}),
            },
        )

    async def cleanup_resources(self, restart: bool = False) -> None:  # type: ignore[override]
        """Removes the sockets with their folder."""
        await super().cleanup_resources(restart)
        if not restart:
            self._folder.cleanup()
