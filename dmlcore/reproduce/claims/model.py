"""The contents of a ledger: claims as declared, their results, and the run that gave these."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from dmlcore import checks

Verdict = Literal["reproduced", "mixed", "not reproduced", "not run"]
Source = Literal["abstract", "ours", "theory", "conformance"]

FORMAT: Literal[2] = 2  # of claims.json
ANY, NONE = "any", "none"  # `data` of a claim about every data set, and of one that uses no data set

# JSON has no infinity: the string "inf" stands for it, and null for "not measured" or "no bound".
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
    paper: Text  # key of the paper
    statement: Text  # the claim in words
    # abstract: the paper's abstract says exactly this. ours: the numbers or the wording are ours.
    # theory: measurements are compared with a formula. conformance: our implementation is compared with its
    # definition.
    source: Source
    data: Text  # the data set that the claim is about; or ANY; or NONE for timelines and formulas
    metric: Text  # the measured quantity, in words
    expected: Range  # (low, high), both ends included; None: no bound at that end
    unit: str = ""  # of the metric, such as `s` or `x`
    deterministic: bool = False  # the number does not depend on the seed, so that one sample is enough

    # id of an earlier claim: if the samples of both are the same, this claim is not counted again. A ledger
    # has this field only if the claim declares it.
    repeats: str = Field("", exclude_if=lambda value: not value)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.expected
        if self.expected == (None, None) or (low is not None and high is not None and low > high):
            checks.fail("expected", self.expected, "(low, high) with low <= high, where one may be None")
        return self

    @model_validator(mode="after")
    def _needs_seeds(self) -> Self:
        if self.deterministic and self.source not in ("theory", "conformance"):
            checks.fail("deterministic", True, f"False (for a claim with source {self.source!r})")
        return self


class Claim(_Stated):
    """A claim and the measurement that would show it, declared before the run.

    Args:
        id: short name, unique among all papers.
        paper: key of the paper.
        statement: the claim in words.
        source: "abstract", the paper's abstract says exactly this; "ours", the numbers or the wording are
            ours; "theory", measurements are compared with a formula; or "conformance", our implementation is
            compared with its definition.
        data: the data set that the claim is about; "any"; or "none" for timelines and formulas.
        metric: the measured quantity, in words.
        expected: (low, high), the range of the metric, both ends included. None: no bound at that end.
        unit: of the metric, such as "s" or "x".
        deterministic: True: the number does not depend on the seed, so that one sample is enough.
        repeats: id of an earlier claim that is not counted twice if both have the same samples. Default: "".
        parts: labels of the settings in which the claim must hold. Default: (), one setting.
        finding: one to three sentences: what the paper says, what was measured, and why they agree or
            differ. Empty until there is a result.

    Raises:
        ValueError: a field is missing, unknown or not valid.

    >>> Claim(id="ssp-1", paper="ssp", statement="SSP is faster than BSP", source="abstract", data="any",
    ...       metric="time of BSP / time of SSP", expected=(1.0, None), unit="x").expected
    (1.0, None)
    """

    parts: tuple[Text, ...] = ()
    finding: str = ""  # not part of the ledger, so that a better sentence needs no new run


class _Labelled(_Strict):
    label: Text


class _Measured(_Strict):
    measured: Number | None  # median over the seeds; None for a claim with parts
    spread: tuple[Number, Number] | None  # range over the seeds; for a claim with parts, of their medians
    verdict: Verdict
    samples: tuple[Number | None, ...] = ()


class Part(_Measured, _Labelled):
    """The outcome of one labelled part of a claim.

    Args:
        label: of the part.
        measured: median over the S seeds. None: not measured.
        spread: smallest and largest value over the seeds. None: not measured.
        verdict: by `rule`.
        samples: one sample per seed, S numbers in the unit of the metric; None: the seed was not measured.

    Raises:
        ValueError: a field is missing, unknown or not valid.

    >>> Part(label="digits", measured=1.3, spread=(1.2, 1.4), verdict="reproduced", samples=(1.2, 1.4)).label
    'digits'
    """


class Result(_Measured, _Stated):
    """A claim with its outcome: one row of the ledger.

    Args:
        id, paper, statement, source, data, metric, expected, unit, deterministic, repeats: as for `Claim`.
        measured: median over the S seeds. None: not measured, or a claim with parts.
        spread: smallest and largest value over the seeds, or, for a claim with parts, of their medians. None:
            not measured.
        verdict: by `rule`, or, for a claim with parts, by `combine`.
        samples: one sample per seed, S numbers in the unit of the metric. Empty for a claim with parts, which
            hold the samples.
        measured_on: the data that the samples come from. None: there are no samples.
        parts: the outcomes of the parts. Default: (), no parts.

    Raises:
        ValueError: a field is missing, unknown or not valid.

    >>> from dmlcore.reproduce.claims import judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time that a worker computes", expected=(0.99, 1))
    >>> result = judge(claim, [1.0, 0.9])
    >>> isinstance(result, Result), result.samples
    (True, (1.0, 0.9))
    """

    measured_on: Text | None
    parts: tuple[Part, ...] = ()


class Ledger(_Strict):
    """All claims of one paper and the run that gave them: the contents of claims.json.

    It contains nothing about the machine, so that the same outcome gives the same file everywhere.

    Args:
        format: of the file.
        paper: key of the paper.
        command: the command line that makes this file again.
        scale: "quick" or "full". None: not recorded.
        seeds: S, the number of seeds 0, 1, ... of the runs. None: not recorded.
        tuned_on: the seeds on which learning rates and settings were chosen. None: not recorded.
        parameters: of the notebook, without the output folder.
        claims: the results, in the order in which the claims are declared.

    Raises:
        ValueError: a field is missing, unknown or not valid.

    >>> Ledger(paper="e", command="python3 paper_repro.py e", scale="quick", seeds=2, tuned_on=None,
    ...        parameters={}, claims=()).scale
    'quick'
    """

    format: Literal[2] = FORMAT
    paper: Text
    command: Text
    scale: str | None
    seeds: int | None
    tuned_on: tuple[int, ...] | None
    parameters: dict[str, Any]
    claims: tuple[Result, ...]
