"""What a paper is here: its claims, its parameters, and the notebook that reproduces it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from dmlcore import checks
from dmlcore.reproduce import claims

if TYPE_CHECKING:
    import pandas as pd

    from dmlcore.reproduce.claims.rules import Samples

Scale = Literal["quick", "full"]
SCALES = get_args(Scale)
FAIR = "The same, each method at its own best learning rate of one grid"  # a statement of several papers


class Parameters(BaseModel):
    """The parameters that every notebook has; a paper's model inherits them and adds its own.

    The same names and defaults stand as literals in the notebook's cell tagged `parameters`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    scale: Scale = "quick"  # for minutes on a laptop; "full" is for the numbers in earnest
    seeds: int = Field(5, ge=1)  # how many
    output: str = Field(exclude=True)  # folder for figures and claims.json, on which no result depends

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default of each parameter that a command line may set: all but the folder."""
        return {name: info.default for name, info in cls.model_fields.items() if name != "output"}


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
    # by scale, names of the data sets in `dmlcore.data`: they are fetched and checked before it starts
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quick_seconds: float = 60  # expected time at quick scale on two CPU cores

    def __post_init__(self) -> None:
        if not self.key.isidentifier():
            checks.fail("key", self.key, "a short name of letters, digits and underscores")
        for claim in self.claims:
            if claim.paper != self.key:
                checks.fail(f"paper of the claim {claim.id}", claim.paper, repr(self.key))
        names = [claim.id for claim in self.claims]
        if len(set(names)) < len(names):
            checks.fail("claims", names, "a different id for each")
        for scale in self.data:
            checks.choice("scale of the data", scale, dict.fromkeys(SCALES))

    def command(self, parameters: Parameters) -> str:
        """Returns the command line that makes a run with these parameters again."""
        words = ["python3", "paper_repro.py", self.key, "--scale", parameters.scale]
        words += ["--seeds", str(parameters.seeds)]
        for name, default in type(parameters).defaults().items():
            value = getattr(parameters, name)
            if name not in Parameters.model_fields and value != default:
                words += ["-p", f"{name}={value}"]
        return shlex.join(words)

    def conclude(
        self, samples: Mapping[str, Samples | Mapping[str, Samples]], parameters: Parameters
    ) -> pd.DataFrame:
        """Judges all claims, writes claims.json to the output folder and returns the table to show.

        Args:
            samples: one number per seed by id of the claim, or these by label of its parts. A claim that is
                left out was not run.
            parameters: of this run.

        Raises:
            ValueError: an id that the paper does not declare, or samples that `claims.judge` refuses.
        """
        declared = {claim.id: claim for claim in self.claims}
        for name in samples:
            checks.choice("claim", name, declared)
        results = tuple(claims.judge(claim, samples.get(name)) for name, claim in declared.items())
        ledger = claims.Ledger(
            paper=self.key,
            command=self.command(parameters),
            scale=parameters.scale,
            seeds=parameters.seeds,
            parameters=parameters.model_dump(mode="json"),
            versions=claims.versions(),
            hardware=claims.hardware(),
            claims=results,
        )
        claims.write(Path(parameters.output) / "claims.json", ledger)
        return claims.frame(results)


def _stated(source: str, statement: str, metric: str, **fields: Any) -> dict[str, Any]:
    return {"source": source, "statement": statement, "metric": metric, **fields}


# Fields of a claim, for `declare`: the paper's abstract says so, or we have put it into numbers or words.
abstract, ours = partial(_stated, "abstract"), partial(_stated, "ours")


def declare(paper: str, table: Mapping[str, dict[str, Any]], **defaults: Any) -> tuple[claims.Claim, ...]:
    """Returns a paper's claims from their fields by id; `defaults` are for the fields that most share.

    >>> table = {"E1": ours("Workers never wait under ASP", "least share of the time computing")}
    >>> [claim.expected for claim in declare("example", table, expected=(0.99, 1))]
    [(0.99, 1.0)]
    """
    return tuple(claims.Claim(**{"id": name, "paper": paper} | defaults | table[name]) for name in table)
