"""Settings with which numbers of notebooks depend less on the processor and the release of JAX."""

import os
from collections.abc import Mapping
from importlib.metadata import version

# By default, jaxlib 0.10 multiplies matrices with the library YNNPACK, whose kernels, and with them the order
# of sums, differ between processors; 0.12 does not use it. XLA ends a process with a flag that it does not
# know, so only releases that have this one get it.
FLAG, RELEASES = "xla_cpu_experimental_ynn_fusion_type", ("0.10.", "0.12.")


def settings() -> Mapping[str, str]:
    """Returns environment variables for a process that imports JAX; a caller's own flags have precedence."""
    own = os.environ.get("XLA_FLAGS", "").strip()
    # Other text than flags is the name of a file that contains flags.
    if not version("jaxlib").startswith(RELEASES) or own[:1] not in ("", "-"):
        return {}
    return {"XLA_FLAGS": f"--{FLAG}= {own}".rstrip()}
