"""What a paper is here: its claims, its parameters, and the notebook that reproduces it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from dmlcore import checks, files
from dmlcore.reproduce import claims, kept
from dmlcore.reproduce.summary import Summary

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Markdown
    from pandas.io.formats.style import Styler

    from dmlcore.reproduce.claims.rules import Samples

Scale = Literal["quick", "full"]
FULL = "full"  # also the folder, next to those of the papers, with the results of that scale
SCALES = get_args(Scale)
MOST = checks.MAX_WORKERS  # of whatever a parameter counts
MACHINE = "machine.json"  # beside claims.json in the output folder: what the run ran on
TUNING_SEEDS = range(1000, 1003)  # on which a notebook chooses rates and settings; they judge nothing
FAIR = "The same, each method at its own best learning rate of one grid"  # a statement of several papers


class Parameters(BaseModel):
    """The parameters that every notebook has; a paper's model inherits them and adds its own.

    The same names and defaults stand as literals in the notebook's cell tagged `parameters`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    scale: Scale = "quick"  # for minutes on a laptop; "full" is for the numbers in earnest
    seeds: int = Field(5, ge=1)  # how many
    output: str = Field(exclude=True)  # folder for figures and claims.json, on which no result depends

    @field_validator("*")
    @classmethod
    def _can_be_counted(cls, value: Any) -> Any:
        if isinstance(value, int) and value > MOST:
            raise PydanticCustomError("too_large", "Input should be at most {most}", {"most": MOST})
        return value

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default of each parameter that a command line may set: all but the folder."""
        return {name: info.default for name, info in cls.model_fields.items() if name != "output"}


@dataclass(frozen=True)
class Comparison:
    """One figure of a paper beside ours: whether they show the same, and what they differ by if not.

    >>> Comparison("Figure 1: time per clock", "breakdown.png", "differs", "our server takes no time").verdict
    'differs'
    """

    paper: str  # what the paper's figure or table shows
    ours: str  # our picture, or the ids of the claims that measure it
    verdict: Literal["same", "differs", "not made"]
    because: str = ""  # why it differs, or was not made

    def __post_init__(self) -> None:
        checks.choice("verdict", self.verdict, dict.fromkeys(("same", "differs", "not made")))
        if self.verdict != "same" and not self.because:
            checks.fail("because", self.because, f"the reason where the verdict is {self.verdict!r}")


@dataclass(frozen=True)
class Paper:
    """One entry of the registry."""

    key: str  # short name on the command line and of the folder in figures/
    title: str
    reference: str  # authors, venue, year
    notebook: str  # file name in notebooks/
    parameters: type[Parameters] = Parameters
    claims: tuple[claims.Claim, ...] = ()  # declared before the run
    # caption, by file name, of every picture that the notebook saves: also the text in place of the picture
    figures: Mapping[str, str] = field(default_factory=dict)
    full_figures: Mapping[str, str] = field(default_factory=dict)  # those that only full scale saves
    comparisons: tuple[Comparison, ...] = ()  # the paper's figures beside ours
    summary: Summary | None = None  # for those who have a minute; written after the run
    # by scale, names of the data sets in `dmlcore.data`: they are fetched and checked before it starts
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quick_seconds: float = 60  # expected time at quick scale on two CPU cores

    def __post_init__(self) -> None:
        if not self.key.isidentifier() or self.key == FULL:
            checks.fail(
                "key", self.key, f"a short name of letters, digits and underscores, other than {FULL}"
            )
        for claim in self.claims:
            if claim.paper != self.key:
                checks.fail(f"paper of the claim {claim.id}", claim.paper, repr(self.key))
        names = [claim.id for claim in self.claims]
        if len(set(names)) < len(names):
            checks.fail("claims", names, "a different id for each")
        for scale in self.data:
            checks.choice("scale of the data", scale, dict.fromkeys(SCALES))

    def captions(self, scale: str | None) -> dict[str, str]:
        """Returns the caption of every picture that the notebook saves at a scale, by file name."""
        return {**self.figures, **(self.full_figures if scale == FULL else {})}

    def command(self, parameters: Parameters) -> str:
        """Returns the command line that makes a run with these parameters again."""
        words = ["python3", "paper_repro.py", self.key, "--scale", parameters.scale]
        words += ["--seeds", str(parameters.seeds)]
        for name, default in type(parameters).defaults().items():
            value = getattr(parameters, name)
            if name not in Parameters.model_fields and value != default:
                words += ["-p", f"{name}={value}"]
        return shlex.join(words)

    @property
    def findings(self) -> dict[str, str]:
        """The finding of each claim that has one, by its id."""
        return {claim.id: claim.finding for claim in self.claims if claim.finding}

    def in_short(self) -> Markdown:
        """Returns the claims, where they hold, why, and what to choose, to show in the notebook."""
        return _shown(self.summary.markdown() if self.summary else "")

    def found(self, *ids: str) -> Markdown:
        """Returns what was found for claims, to show in the notebook; the report has the same text.

        Raises:
            ValueError: a claim that has no finding.
        """
        for name in ids:
            checks.choice("claim with a finding", name, self.findings)
        return _shown("\n\n".join(f"**{name}.** {self.findings[name]}" for name in ids))

    def keep(self, runs: Mapping[str, pd.DataFrame], parameters: Parameters) -> Path | None:
        """Writes the histories of a run at full scale to runs.parquet in its output folder.

        Its numbers have five significant digits. A run at quick scale takes minutes to make again, so
        nothing is written then.

        Args:
            runs: frames of `dml.compare` or `dml.sweep`, by name of the experiment.
            parameters: of this run.

        Returns:
            The file; None at quick scale.

        Raises:
            ValueError: what is given are no such frames, or the file would have more than 5 MB.
        """
        return kept.write(runs, parameters.output) if parameters.scale == FULL else None

    def conclude(
        self,
        samples: Mapping[str, Samples | Mapping[str, Samples]],
        parameters: Parameters,
        *,
        data: str | Mapping[str, str | Mapping[str, str]] = "",
        tuned_on: Sequence[int] | None = None,
    ) -> Styler:
        """Judges all claims, writes claims.json to the output folder and returns the table to show.

        The processor and the versions go to machine.json beside it.

        Args:
            samples: one number per seed by id of the claim, or these by label of its parts. A claim that is
                left out was not run.
            parameters: of this run.
            data: the data set that the samples come from, or one by id of the claim, or those of a claim by
                label of its parts: the ledger then names the data sets of the parts that were run. A claim
                about another data set counts as not run. Claims with `data="none"` need none.
            tuned_on: the seeds on which learning rates and settings were chosen: others than judge, such as
                `TUNING_SEEDS`. None: not recorded.

        Raises:
            ValueError: an id that the paper does not declare, samples that `claims.judge` refuses, or tuning
                seeds that judge, too.
        """
        declared = {claim.id: claim for claim in self.claims}
        for name in [*samples, *(data if isinstance(data, Mapping) else ())]:
            checks.choice("claim", name, declared)
        if shared := {*(tuned_on or ())} & {*range(parameters.seeds)}:
            checks.fail(
                "tuned_on", sorted(shared), f"seeds that do not judge; 0 to {parameters.seeds - 1} do"
            )
        results = tuple(
            claims.judge(claim, samples.get(name), data.get(name) if isinstance(data, Mapping) else data)
            for name, claim in declared.items()
        )
        ledger = claims.Ledger(
            paper=self.key,
            command=self.command(parameters),
            scale=parameters.scale,
            seeds=parameters.seeds,
            tuned_on=None if tuned_on is None else tuple(tuned_on),
            parameters=parameters.model_dump(mode="json"),
            claims=results,
        )
        claims.write(Path(parameters.output) / "claims.json", ledger)
        machine = json.dumps({"hardware": claims.hardware(), "versions": claims.versions()}, indent=2)
        files.write(Path(parameters.output) / MACHINE, machine + "\n")
        shown = claims.frame(results, self.findings).style  # which shows texts whole
        return shown.set_table_styles([{"selector": "td, th", "props": "text-align: left"}])


def _shown(text: str) -> Markdown:
    from IPython.display import Markdown  # only a notebook needs it

    return Markdown(text)


def _stated(source: str, statement: str, metric: str, **fields: Any) -> dict[str, Any]:
    return {"source": source, "statement": statement, "metric": metric, **fields}


# Fields of a claim, for `declare`: the paper's abstract says just that; we have put it so; measurements are
# compared with a formula; our implementation is compared with its definition.
abstract, ours = partial(_stated, "abstract"), partial(_stated, "ours")
theory, conformance = partial(_stated, "theory"), partial(_stated, "conformance")


def declare(
    paper: str,
    table: Mapping[str, dict[str, Any]],
    findings: Mapping[str, str] | None = None,
    **defaults: Any,
) -> tuple[claims.Claim, ...]:
    """Returns a paper's claims from their fields by id; `defaults` are for the fields that most share.

    `findings` are told by id of the claim; they are apart since they are written after the run.

    >>> table = {"E1": ours("Workers never wait under ASP", "least share of the time computing")}
    >>> [claim.expected for claim in declare("example", table, expected=(0.99, 1), data="none")]
    [(0.99, 1.0)]
    """
    found = findings or {}
    for name in found:
        checks.choice("claim with a finding", name, table)
    return tuple(
        claims.Claim(**{"id": name, "paper": paper, "finding": found.get(name, "")} | defaults | table[name])
        for name in table
    )
