"""H-PS, a heterogeneity-aware parameter server (Xian et al. 2024): parameters and settings of its claims.

Only the abstract is available to us: training takes 1.4 to 3.5 times less than with existing methods, workers
finish together, and transfers cost less time and fewer bytes. The claim is judged as a curve over the
communication ratio c, direction and size separately, with both readings of the pipeline, against rivals that
every parameter server has.

docs/papers/hps.md tells what was explored before and what was changed after results had been seen, and
tests/test_hps.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare

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


SWEPT, SERVED_PARTS = (
    tuple(f"{reading}, c = {c:g}" for c in ratios for reading in READINGS) for ratios in (RATIOS, SERVED)
)
SWEPT_REAL = tuple(f"{name}, {swept}, c = {c:g}" for name in REAL for swept in READINGS for c in REAL_RATIOS)


PAPER = declare(globals(), HpsParameters)
