"""What a ledger holds: claims as declared, their results, and the run that these come from."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from dmlcore import checks

Verdict = Literal["reproduced", "partly", "not reproduced", "not run"]

# JSON has no infinity: it is written as the string "inf", and null stands for "not measured" or "no bound".
Number = Annotated[
    float,
    BeforeValidator(lambda value: math.inf if value == "inf" else value),
    PlainSerializer(lambda value: "inf" if value == math.inf else value, when_used="json"),
]
Range = tuple[Number | None, Number | None]
Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Stated(_Strict):
    id: Text  # short name, unique among all papers
    paper: Text  # its key
    statement: Text  # the claim in words
    source: Literal["abstract", "ours"]  # whether the paper's abstract says so, or we put it so
    metric: Text  # what is measured, in words
    expected: Range  # (low, high), both inclusive; None leaves an end open
    unit: str = ""  # of the metric, such as `s` or `x`

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.expected
        if self.expected == (None, None) or (low is not None and high is not None and low > high):
            checks.fail("expected", self.expected, "(low, high) with low <= high, None for one open end")
        return self


class Claim(_Stated):
    """What is claimed and what would show it, declared before the run.

    >>> Claim(id="ssp-1", paper="ssp", statement="SSP is faster than BSP", source="abstract",
    ...       metric="time of BSP / time of SSP", expected=(1.0, None), unit="x").expected
    (1.0, None)
    """

    parts: tuple[Text, ...] = ()  # labels of the settings in which the claim must hold, if several


class _Labelled(_Strict):
    label: Text


class _Measured(_Strict):
    measured: Number | None
    interval: tuple[Number, Number] | None
    verdict: Verdict
    samples: tuple[Number | None, ...] = ()


class Part(_Measured, _Labelled):
    """The outcome of one labelled part of a claim; `samples` has one number per seed."""


class Result(_Measured, _Stated):
    """A claim with its outcome: one row of the ledger. Where there are parts, these hold the samples."""

    parts: tuple[Part, ...] = ()


class Ledger(_Strict):
    """All claims of one paper and the run that they come from: what claims.json holds."""

    paper: Text  # its key
    command: Text  # the command line that makes this file again
    scale: str | None  # `quick` or `full`
    seeds: int | None  # number of seeds
    parameters: dict[str, Any]  # of the notebook, apart from where it writes
    versions: dict[str, str]  # of Python and the packages that the numbers depend on
    hardware: dict[str, str | int]  # cores, CPU model and kind of device
    claims: tuple[Result, ...]  # in the order of their declaration
