"""Settings with which numbers of notebooks depend less on the processor, and programs compile quickly."""

import os
from collections.abc import Mapping
from importlib.metadata import version

# By default, jaxlib 0.10 multiplies matrices with the library YNNPACK, whose kernels, and with them the order
# of sums, differ between processors; 0.12 does not use it. XLA ends a process with a flag that it does not
# know, so only releases that have a flag get it.
FLAG, RELEASES = "--xla_cpu_experimental_ynn_fusion_type=", ("0.10.", "0.12.")
# Makes the code of fused operations in one step, not in several: programs compile in two thirds of the time.
# Sums of some programs, such as convolutions, then have another order; 0.12 has only the other way.
QUICKLY, ALONE = "--xla_cpu_use_fusion_emitters=false", "0.10."


def settings(*, quickly: bool = False) -> Mapping[str, str]:
    """Returns environment variables for a process that imports JAX; a caller's own flags have precedence.

    Args:
        quickly: whether programs compile quickly, where it may change the last bits of numbers.
    """
    own, release = os.environ.get("XLA_FLAGS", "").strip(), version("jaxlib")
    # Other text than flags is the name of a file that contains flags.
    if not release.startswith(RELEASES) or own[:1] not in ("", "-"):
        return {}
    more = [QUICKLY] * (quickly and release.startswith(ALONE))
    return {"XLA_FLAGS": " ".join([FLAG, *more, own]).rstrip()}
