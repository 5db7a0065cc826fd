"""The contents of a ledger: claims as declared, their results, and the run that gave these."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator
from pydantic_core import ValidationError

from dmlcore import checks

Outcome = Literal["holds", "fails", "undecided", "not run"]  # of a claim in one setting
Verdict = Literal["reproduced", "in part", "not reproduced", "undecided", "not run"]  # on a claim
Source = Literal["abstract", "ours", "theory", "conformance"]

ANY, NONE = "any", "none"  # `data` of a claim about every data set, and of one that uses no data set

# JSON has no infinity: the string "inf" stands for it, and null for "not measured" or "no bound".
Number = Annotated[
    float,
    BeforeValidator(lambda value: math.inf if value == "inf" else value),
    PlainSerializer(lambda value: "inf" if value == math.inf else value, when_used="json"),
]
Bound = Annotated[Number | None, BeforeValidator(lambda end: None if end in (math.inf, -math.inf) else end)]
Range = tuple[Bound, Bound]
Text = Annotated[str, Field(min_length=1)]


class Strict(BaseModel):
    """A model whose fields are fixed and all known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


TEXTS = "parts", "finding", "quote", "picture"  # fields of a claim that its result does not repeat


def first_fault(error: ValidationError, *within: str) -> str:
    """Returns where the first fault of a file, or of what is `within` it, is, and which."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, (*within, *first['loc']))) or 'the file'}: {first['msg']}"


class _Stated(Strict):
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
    regime: Text  # in which settings it must hold, in words, and who says so
    unit: str = ""  # of the metric, such as `s` or `x`
    always: bool = False  # every sample must be in the range: a guarantee, or a number without chance

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
    def _chance(self) -> Self:
        if self.always and self.source not in ("theory", "conformance"):
            checks.fail("always", True, f"False (for a claim with source {self.source!r})")
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
        regime: in which settings it must hold, in words, and who says so: the paper, or we.
        unit: of the metric, such as "s" or "x".
        always: True: it holds only if every sample is in the range, and one sample is enough, because it is a
            guarantee, or a number that does not depend on the seed. Default: False, the median decides.
        repeats: id of an earlier claim that is not counted twice if both have the same samples. Default: "".
        parts: labels of the settings of the regime. Default: ("",), a single one.
        finding: one to three sentences: what the paper says, what was measured, and why they agree or
            differ. Empty until there is a result.
        quote: the sentence of the abstract that says it. Default: "", the abstract does not.
        picture: the figure that shows it best. Default: "", none.

    Raises:
        ValueError: a field is missing, unknown or not valid.

    >>> Claim(id="ssp-1", paper="ssp", statement="SSP is faster than BSP", source="abstract", data="any",
    ...       metric="time of BSP / time of SSP", expected=(1.0, None), regime="slow episodes").expected
    (1.0, None)
    """

    parts: Annotated[tuple[str, ...], Field(min_length=1)] = ("",)
    # These are not part of the ledger, so that a better sentence needs no new run.
    finding: str = ""
    quote: str = ""
    picture: str = ""


class Part(Strict):
    """The outcome of a claim in one setting.

    Args:
        label: of the setting; "" if the claim has only one.
        outcome: by `rules.outcome`.
        measured: median over the S seeds. None: not measured.
        interval: of that median, by which it was decided; of a claim that must always hold, the smallest and
            the largest sample. None: too few seeds, or not measured.
        samples: one sample per seed, S numbers in the unit of the metric; None: no number on that seed.
        data: the data set that the samples come from. None: not measured.
        run: which run of the ledger has measured it.

    Raises:
        ValueError: a field is missing, unknown or not valid.

    >>> Part(label="digits", outcome="undecided", measured=1.3, interval=None, samples=(1.2, 1.4)).run
    0
    """

    label: str
    outcome: Outcome
    measured: Number | None
    interval: tuple[Number, Number] | None
    samples: tuple[Number | None, ...] = ()
    data: Text | None = None
    run: int = 0


class Result(_Stated):
    """A claim with its outcomes: one row of the ledger.

    Args:
        id, paper, statement, source, data, metric, expected, regime, unit, always, repeats: as for `Claim`.
        verdict: by `rules.combine`.
        parts: one per setting.

    Raises:
        ValueError: a field is missing, unknown or not valid.

    >>> from dmlcore.reproduce.claims import judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> result = judge(claim, [1.0] * 8)
    >>> result.verdict, result.parts[0].measured
    ('reproduced', 1.0)
    """

    verdict: Verdict
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]

    @property
    def measured_on(self) -> str:
        """The data sets of the samples, each once; empty if there are none or no data are used."""
        return ", ".join(dict.fromkeys(part.data for part in self.parts if part.data not in (None, NONE)))


class Made(Strict):
    """The run that has measured some settings of a ledger.

    Args:
        command: the command line that makes it again.
        scale: "quick" or "full".
        seeds: S, the number of seeds 0, 1, ... of the run.
        tuned_on: the seeds on which learning rates and settings were chosen. None: not recorded.
        parameters: of the notebook, without the output folder.
        hardware: of the machine. Default: {}, not recorded.
        versions: of Python and of the packages. Default: {}, not recorded.

    Raises:
        ValueError: a field is missing, unknown or not valid.

    >>> Made(command="python3 paper_repro.py e", scale="quick", seeds=2, tuned_on=None, parameters={}).scale
    'quick'
    """

    command: Text
    scale: Text
    seeds: int
    tuned_on: tuple[int, ...] | None
    parameters: dict[str, Any]
    hardware: dict[str, Any] = {}
    versions: dict[str, str] = {}

    @property
    def asked(self) -> dict[str, Any]:
        """The parameters, but for the number of seeds and whether settings were tuned again."""
        return {name: value for name, value in self.parameters.items() if name not in ("seeds", "retune")}


class Ledger(Strict):
    """All claims of one paper and the runs that gave their outcomes: the contents of claims.json.

    Args:
        format: of the file.
        paper: key of the paper.
        runs: which have measured the settings; these name them by their place in this list.
        claims: the results, in the order in which the claims are declared.
        digest: of all of the above, by `ledger.digest`. Default: "", not written yet.

    Raises:
        ValueError: a field is missing, unknown or not valid, or a setting names a run that is not listed.

    >>> Ledger(paper="e", runs=(), claims=()).paper
    'e'
    """

    format: Literal[3] = 3
    paper: Text
    runs: tuple[Made, ...]
    claims: tuple[Result, ...]
    digest: str = ""

    @model_validator(mode="after")
    def _known_runs(self) -> Self:
        for result in self.claims:
            for part in result.parts:
                if part.outcome != "not run" and not 0 <= part.run < len(self.runs):
                    name = ", ".join(filter(None, (f"run of {result.id}", part.label)))
                    checks.fail(name, part.run, f"below {len(self.runs)}")
        return self
