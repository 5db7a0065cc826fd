"""A Jupyter kernel of this very interpreter that listens on sockets in a private folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any, ClassVar

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from dmlcore.experiments.journal import SAVE

ROOT = Path(__file__).resolve().parents[2]
PREFIX, OWNER = "dml-", "owner"  # of a folder of sockets, and the file in it that its program keeps locked


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
        _remove_abandoned()
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self._release = weakref.finalize(self, os.close, _own(Path(self._folder.name)))
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
            self._release()


def _own(folder: Path) -> int:
    """Marks a folder as in use for as long as the handle that it returns is open."""
    handle = os.open(folder / f"{OWNER}.new", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    (folder / f"{OWNER}.new").rename(folder / OWNER)  # locked before it has its name
    return handle


def _remove_abandoned() -> None:
    """Removes the folders of killed runs, whose locks ended with them."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}"):
        with contextlib.suppress(OSError):  # in use, of another user, or just removed
            handle = os.open(owner, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(owner.parent)
            finally:
                os.close(handle)
