"""What a ledger holds: claims as declared, their results, and the run that these come from."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from dmlcore import checks

Verdict = Literal["reproduced", "mixed", "not reproduced", "not run"]
Source = Literal["abstract", "ours", "theory", "conformance"]

FORMAT: Literal[2] = 2  # of claims.json; `old.py` reads format 1, which had no number
ANY, NONE = "any", "none"  # data of a claim that holds for every data set, or that involves no data set

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
    # abstract: the paper's abstract says just this. ours: we put it so. theory: measurements are compared
    # with a formula. conformance: our implementation is compared with its definition.
    source: Source
    data: (
        Text  # the data set that the claim is about; or ANY, or NONE where timelines or formulas are measured
    )
    metric: Text  # what is measured, in words
    expected: Range  # (low, high), both inclusive; None leaves an end open
    unit: str = ""  # of the metric, such as `s` or `x`
    deterministic: bool = False  # the number depends on no seed, so that one sample is enough

    # id of an earlier claim: where the samples of both are the same, this one is not counted again. It is in
    # a ledger where it is declared.
    repeats: str = Field("", exclude_if=lambda value: not value)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.expected
        if self.expected == (None, None) or (low is not None and high is not None and low > high):
            checks.fail("expected", self.expected, "(low, high) with low <= high, None for one open end")
        return self

    @model_validator(mode="after")
    def _needs_seeds(self) -> Self:
        if self.deterministic and self.source not in ("theory", "conformance"):
            checks.fail("deterministic", True, f"False for a claim with the source {self.source!r}")
        return self


class Claim(_Stated):
    """What is claimed and what would show it, declared before the run.

    >>> Claim(id="ssp-1", paper="ssp", statement="SSP is faster than BSP", source="abstract", data="any",
    ...       metric="time of BSP / time of SSP", expected=(1.0, None), unit="x").expected
    (1.0, None)
    """

    parts: tuple[Text, ...] = ()  # labels of the settings in which the claim must hold, if several
    # One to three sentences: what the paper says, what was measured, and why. Empty until there is a result.
    # It is shown from here and not kept in the ledger, so that a better sentence needs no new run.
    finding: str = ""


class _Labelled(_Strict):
    label: Text


class _Measured(_Strict):
    measured: Number | None  # median over the seeds; None for a claim with parts
    spread: (
        tuple[Number, Number] | None
    )  # least and most over the seeds; of a claim with parts, of their medians
    verdict: Verdict
    samples: tuple[Number | None, ...] = ()


class Part(_Measured, _Labelled):
    """The outcome of one labelled part of a claim; `samples` has one number per seed."""


class Result(_Measured, _Stated):
    """A claim with its outcome: one row of the ledger. Where there are parts, these hold the samples."""

    measured_on: Text | None  # the data that the samples come from; None where there are none
    parts: tuple[Part, ...] = ()


class Ledger(_Strict):
    """All claims of one paper and the run that they come from: what claims.json holds.

    It says nothing of the machine: the same outcome gives the same file everywhere.
    """

    format: Literal[2] = FORMAT
    paper: Text  # its key
    command: Text  # the command line that makes this file again
    scale: str | None  # `quick` or `full`
    seeds: int | None  # number of seeds that judge: 0, 1, ...
    tuned_on: tuple[int, ...] | None  # seeds on which rates and settings were chosen; None: not recorded
    parameters: dict[str, Any]  # of the notebook, apart from where it writes
    claims: tuple[Result, ...]  # in the order of their declaration
