"""Settings with which numbers of notebooks depend less on the processor and the release of JAX."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

# By default, jaxlib 0.10 multiplies matrices with the library YNNPACK, whose kernels, and with them the order
# of sums, differ between processors; 0.12 does not use it.
FLAG = "xla_cpu_experimental_ynn_fusion_type"


def settings() -> Mapping[str, str]:
    """Returns environment variables for a process that imports JAX; the caller's own flags take precedence.

    XLA ends a process with a flag that it does not know, so it is set only if this jaxlib has it.
    """
    own = os.environ.get("XLA_FLAGS", "").strip()
    if not known(FLAG) or own[:1] not in ("", "-"):  # other text is the name of a file that contains flags
        return {}
    return {"XLA_FLAGS": f"--{FLAG}= {own}".rstrip()}


@functools.cache
def known(flag: str) -> bool:
    """Returns whether the installed jaxlib has a flag of XLA."""
    spec = find_spec("jaxlib")
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent
    for path in [*folder.glob("*jax*.so"), *folder.glob("*jax*.dylib")]:
        with path.open("rb") as library, mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(flag.encode()) >= 0:
                return True
    return False
