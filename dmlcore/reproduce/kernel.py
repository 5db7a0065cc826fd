"""A Jupyter kernel with the current interpreter."""

from __future__ import annotations

import sys
import weakref
from pathlib import Path
from typing import Any, ClassVar

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from dmlcore import files
from dmlcore.experiments.journal import SAVE
from dmlcore.reproduce import arithmetic

ROOT = Path(__file__).resolve().parents[2]


class LocalKernel(AsyncKernelManager):
    """Starts `sys.executable` as a kernel, whatever kernels are installed, with dmlcore on its path."""

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
        self._present.add(self)

    @property
    def kernel_spec(self) -> KernelSpec:
        """The command to start; it sets MPLBACKEND, because the caller's backend may show nothing."""
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "--log-level=50", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
            env={
                "PYTHONPATH": files.on_path("PYTHONPATH", ROOT),
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                **arithmetic.settings(quickly=self.journal is None),
                **({SAVE: str(self.journal)} if self.journal else {}),
            },
        )
