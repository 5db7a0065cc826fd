"""A Jupyter kernel with the current interpreter that listens on sockets in a private folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any, ClassVar

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from dmlcore import files
from dmlcore.experiments.journal import SAVE
from dmlcore.reproduce import arithmetic

ROOT = Path(__file__).resolve().parents[2]
PREFIX, OWNER = "dml-", "owner"  # prefix of a folder of sockets; file in it that its program keeps locked


class LocalKernel(AsyncKernelManager):
    """Starts `sys.executable` as a kernel, whatever kernels are installed, with dmlcore on its path.

    Kernels that start at the same time compete for free ports, so they use files as sockets. Their folder is
    in the system's temporary folder, because the path of a socket may have at most 100 characters.
    """

    journal: Path | None = None  # folder in which comparisons save their finished runs; None at quick scale
    _present: ClassVar[weakref.WeakSet[LocalKernel]] = weakref.WeakSet()

    @classmethod
    def keeping(cls, journal: Path | None) -> type[LocalKernel]:
        """Returns this class of kernels with a folder in which comparisons save their finished runs."""
        return type(cls.__name__, (cls,), {"journal": journal})

    @classmethod
    def kill_all(cls) -> None:
        """Ends the processes of all kernels of this program immediately; may be called from any thread."""
        for kernel in [*cls._present]:
            process = getattr(kernel.provisioner, "process", None)
            if process is not None:
                process.kill()

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        _remove_abandoned()
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self._release = weakref.finalize(self, os.close, _own(Path(self._folder.name)))
        self._present.add(self)
        self.transport = "ipc"
        self.ip = f"{self._folder.name}/kernel"
        self.connection_file = f"{self._folder.name}/kernel.json"

    @property
    def kernel_spec(self) -> KernelSpec:
        """The command to start; it sets MPLBACKEND, because the caller's backend may show nothing."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "--log-level=50", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
            env={
                "PYTHONPATH": path,
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                **arithmetic.settings(quickly=self.journal is None),
                **({SAVE: str(self.journal)} if self.journal else {}),
            },
        )

    async def cleanup_resources(self, restart: bool = False) -> None:  # type: ignore[override]
        """Removes the sockets and their folder."""
        await super().cleanup_resources(restart)
        if not restart:
            self._folder.cleanup()
            self._release()


def _own(folder: Path) -> int:
    """Marks a folder as in use, as long as the returned handle is open."""
    handle = files.lock(folder / f"{OWNER}.new", os.O_CREAT | os.O_RDWR)
    (folder / f"{OWNER}.new").rename(folder / OWNER)  # locked before it gets its final name
    return handle


def _remove_abandoned() -> None:
    """Removes the folders of killed runs, which no process locks any more."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}"):
        with contextlib.suppress(OSError):  # in use, owned by another user, or already removed
            handle = files.lock(owner, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                shutil.rmtree(owner.parent)
            finally:
                os.close(handle)
