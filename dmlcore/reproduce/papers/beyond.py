"""Methods beyond the five papers: what their theory promises, and what would show it.

This is not one paper: the claims go back to several. They are ours, because the statements of a theorem or a
paper must be put into numbers. B1-bound is a check of theory: a theorem on a timeline without randomness,
which gives one number for all seeds. Searches use seed 1000, and other seeds judge.

docs/papers/beyond.md tells what was explored before and what was changed after results had been seen.
"""

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare, ours, theory

LAWS = {"i": 1.0, "sqrt(i)": 0.5}  # law of the i-th worker's seconds per gradient -> the power of i
SHARDS = ("IID", "Dirichlet(0.1)")


class BeyondParameters(TunedParameters):
    """Parameters of notebooks/07_beyond.ipynb; `workers` is the largest number in section 1."""

    workers: int = Field(10_000, ge=400, multiple_of=100)


CLAIMS = {
    "B1-flat": ours(
        expected=(0.8, 1.25),
        parts=tuple(f"{name}, tau = {law}" for name in ("Ringmaster", "Rennala") for law in LAWS),
    ),
    "B1-asgd": ours(expected=(0.75, 1.25), parts=tuple(f"tau = {law}" for law in LAWS)),
    "B1-bound": theory(
        expected=(0.5, 2),
        data="none",
        always=True,
        parts=(
            "Rennala, shortest round",
            "Rennala, longest round",
            "Ringmaster, shortest 2 R updates",
            "Ringmaster, longest R updates",
        ),
    ),
    "B2-saves": ours(expected=(2, None)),
    "B2-grows": ours(expected=(2, None), parts=SHARDS),
    "B2-shards": ours(expected=(1.5, None)),
    "B3-diloco": ours(expected=(None, 1.05)),
    "B3-streaming": ours(expected=(None, 1.05)),
    "B3-overlap": ours(expected=(1.2, None)),
    "B3-updates": ours(expected=(1, None)),
    "B3-delayed": ours(expected=(None, 1.05)),
    "B3-clock": ours(expected=(1.2, None)),
    "B4-joint": ours(expected=(None, 0.1), parts=("BSP", "Ringleader")),
    "B4-biased": ours(expected=(None, 0.15), parts=("ASGD", "Ringmaster")),
}

PAPER = declare(
    __file__,
    CLAIMS,
    {"unit": "x", "data": "any"},
    notebook="07_beyond.ipynb",
    parameters=BeyondParameters,
    quick_seconds=105,
)
