"""H-PS, a heterogeneity-aware parameter server (Xian et al. 2024): its claims, and what would show them.

Only the abstract is available to us: training takes 1.4 to 3.5 times less than with existing methods, workers
finish together, and transfers cost less time and fewer bytes. The claim is judged as a curve over the
communication ratio c, direction and size separately, with both readings of the pipeline, against rivals that
every parameter server has.

docs/papers/hps.md tells what was explored before and what was changed after results had been seen, and
tests/test_hps.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, abstract, conformance, declare, ours, theory

RIVALS = ("BSP", "SSP", "ASP")
READINGS = ("late by one", "own steps")  # of the pipeline
LEAST, MOST = 1.4, 3.5  # range of speed-ups that the abstract reports
WIDTHS = (32, 8, 4)  # bits per value of a transfer
RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # communication ratios c of the sweep
SERVED = (0.1, 0.5, 2.0)  # c of clusters with a shared link of the server
REAL = ("MNIST", "CIFAR-10")
REAL_RATIOS = (0.5, 2.0, 4.0)  # communication ratios c of the sweep at full scale


class HpsParameters(TunedParameters):
    """Parameters of notebooks/04_hps.ipynb; `workers` is n."""

    workers: int = Field(8, ge=3)


SWEPT = tuple(f"{reading}, c = {c:g}" for c in RATIOS for reading in READINGS)
SWEPT_REAL = tuple(f"{name}, {swept}, c = {c:g}" for name in REAL for swept in READINGS for c in REAL_RATIOS)
ON_DATA = {"parts": SWEPT_REAL, "data": ", ".join(REAL)}


CLAIMS = {
    **{f"H1-{rival}": abstract(parts=SWEPT, data="digits") for rival in RIVALS},
    "H1-least": abstract(expected=(LEAST, None), parts=SWEPT, data="digits"),
    "H1-most": abstract(expected=(None, MOST), parts=SWEPT, data="digits"),
    **{f"H1-{rival}-coded": ours(parts=SWEPT, data="digits") for rival in RIVALS},
    "H1-least-coded": ours(expected=(LEAST, None), parts=SWEPT, data="digits"),
    "H1-server": ours(parts=tuple(f"{reading}, c = {c:g}" for c in SERVED for reading in READINGS)),
    **{f"H1-{rival}-data": ours(**ON_DATA) for rival in RIVALS},
    "H1-least-data": ours(expected=(LEAST, None), **ON_DATA),
    "H1-most-data": ours(expected=(None, MOST), **ON_DATA),
    "H2": abstract(expected=(None, 1), data="none"),
    "H2-perfect": ours(expected=(None, 1.2), data="none"),
    "H3": abstract(expected=(0.1, None), unit="points", parts=("c = 0.25", "c = 8"), data="none"),
    "H4-loss": ours(
        expected=(None, 1.1),
        parts=tuple(f"{reading}, {bits} bits" for reading in READINGS for bits in WIDTHS[1:]),
    ),
    "H4-bytes": conformance(expected=(None, 1 / 3), always=True),
    "H5-hide": ours(expected=(None, 1.1), parts=SWEPT),
    "H5-error": ours(expected=(None, 1.1), parts=SWEPT),
    "H6": ours(expected=(0.5, None), unit="", parts=("scheduling, c = 0.25", "quantization, c = 8")),
    "H6-pipeline": ours(parts=("c = 0.25", "c = 8")),
    "H-model": theory(expected=(None, 3), unit="%", data="none", always=True),
}

PAPER = declare(
    __file__,
    CLAIMS,
    {"unit": "x", "expected": (1, None), "data": "any"},
    notebook="04_hps.ipynb",
    parameters=HpsParameters,
    data={"full": ("mnist", "cifar10")},
    quick_seconds=70,
)
