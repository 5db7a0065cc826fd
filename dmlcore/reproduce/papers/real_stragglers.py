"""Two recorded jobs with stragglers: what did waiting cost, and which method would have saved it?

The jobs and the numbers in claim R1 are published (Lin et al., OSDI 2025); the other claims are ours. They
put into numbers the advice that the other notebooks give for modelled clusters, and R10 asks whether such
advice carries over. Studies search settings on seeds that do not judge.

docs/papers/real_stragglers.md tells what was known before, and tests/test_real_stragglers.py shows that each
claim can fail.
"""

import hashlib
import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from dmlcore import units
from dmlcore.reproduce.paper import TunedParameters, declare
from dmlcore.reproduce.parsing import columns_of

RATES = (25, 100, 400)  # Gb/s of a link
JOBS = ("AR", "SE")  # a worker that was slowed down; sequences of different length
SLOWDOWN, SLOWEST, LAST = "slowdown", "slowest workers", "last stage"  # what was published
STAGES = {"AR": 4, "SE": 2}
ROUNDS = tuple(
    f"{job}, {part}" for job in JOBS for part in (*(f"stage {i}" for i in range(STAGES[job])), "whole ranks")
)


ON_AR, ON_SE = (tuple(f"{job}, {rate} Gb/s" for rate in RATES) for job in JOBS)
ON_LINKS = ON_AR + ON_SE


def _refused(expected: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{expected}", {"expected": expected})


def _existing(value: str) -> str:
    """Returns the whole path, since a notebook runs in a folder of its own."""
    path = Path(value).expanduser().resolve()
    if value and not path.exists():
        raise _refused("a file or folder that exists")
    return value and str(path)


def _of_the_job(value: str, info: ValidationInfo) -> str:
    if value and not info.data.get("job"):
        raise _refused("no value without a job")
    return value


def _naming_columns(value: str) -> str:
    try:
        columns_of(value or "worker=worker")
    except ArgumentTypeError:
        raise _refused("ROLE=COLUMN,..., such as worker=host") from None
    return value


def _with_unit(value: str, info: ValidationInfo) -> str:
    name = str(info.field_name)
    kind, like = {"model_bytes": ("size", "5.2GB"), "link": ("rate", "25Gb/s")}[name]
    if name == "link" and bool(value) != bool(info.data.get("model_bytes", value)):
        raise _refused("no value without model_bytes" if value else f"a rate for model_bytes, such as {like}")
    try:
        if value and units.quantity(name, value, kind) and not value[-1].isalpha():
            raise ValueError
    except ValueError:
        raise _refused(f"a {kind} with its unit, such as {like}") from None
    return value


OfJob = Annotated[str, AfterValidator(_of_the_job)]
WithUnit = Annotated[OfJob, AfterValidator(_with_unit)]


class RealStragglersParameters(TunedParameters):
    """Parameters of notebooks/08_real_stragglers.ipynb; `job` is a log to take in place of the two jobs."""

    job: Annotated[str, AfterValidator(_existing)] = ""  # any file or folder that `dml.read_tasks` reads
    # What columns of `job` mean, such as worker=host,seconds=took.
    columns: Annotated[OfJob, AfterValidator(_naming_columns)] = ""
    events: OfJob = ""  # which operations of `job` are a task's computing, as for `dml.read_tasks`
    batch_size: int = Field(32, ge=1)  # samples of each task of `job`, if it does not say them
    model_bytes: WithUnit = ""  # size of the job's model, such as 5.2GB; empty: transfers take no time
    link: WithUnit = Field("", validate_default=True)  # rate of a worker's link, such as 25Gb/s

    @property
    def subject(self) -> str:
        name = re.sub(r"\W+", "_", Path(self.job).name)
        return self.job and f"{name}-{hashlib.sha256(self.job.encode()).hexdigest()[:6]}"


PAPER = declare(globals(), RealStragglersParameters)
