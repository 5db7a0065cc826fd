"""The declaration of a paper: its claims, its parameters, its notebook, and the histories of full scale."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from dmlcore import checks, files
from dmlcore.reproduce import claims
from dmlcore.reproduce.claims.ledger import hashed
from dmlcore.reproduce.claims.model import Claim, Strict, first_fault
from dmlcore.reproduce.texts import Card, Comparison, Fields, Summary, Text

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Markdown
    from pandas.io.formats.style import Styler

    from dmlcore.reproduce.claims.rules import Samples

RUNS = "runs.parquet"
DIGITS = 5  # significant digits that numbers are rounded to
MOST_BYTES = 2_000_000  # of a file that is kept


def runs_table(runs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Returns all histories as one frame with the first column `experiment`, rounded to five digits.

    Args:
        runs: name of the experiment -> a frame of `dml.compare` or `dml.sweep`; their columns may differ.

    Returns:
        The frame.

    Raises:
        ValueError: there is no frame, or a frame already has this column.

    >>> import pandas as pd
    >>> runs_table({"digits": pd.DataFrame({"method": ["BSP"], "loss": [1.2345678]})})
      experiment method    loss
    0     digits    BSP  1.2346
    """
    import pandas as pd

    if not isinstance(runs, Mapping) or not runs:
        checks.fail("runs", runs, "a mapping of experiments to frames, such as dml.compare returns")
    named = []
    for name, frame in runs.items():
        if "experiment" in frame:
            checks.fail(f"runs[{name!r}]", list(frame), "a frame without a column 'experiment'")
        named.append(frame.assign(experiment=name))
    found = pd.concat(named, ignore_index=True)
    for column in found.select_dtypes("float"):
        found[column] = [float(f"{value:.{DIGITS}g}") for value in found[column]]
    return found[["experiment", *(column for column in found if column != "experiment")]]


def write_runs(runs: Mapping[str, pd.DataFrame], folder: str | os.PathLike[str]) -> Path:
    """Writes `runs_table(runs)` to runs.parquet in a folder, completely or not at all, and returns its path.

    Raises:
        ValueError: as for `runs_table`, or the file would have more than 2 MB.
    """
    path = Path(folder) / RUNS
    found = runs_table(runs)
    found.attrs = {}  # attributes may contain objects that JSON cannot represent
    with files.aside(path) as partial:
        found.to_parquet(partial, engine="pyarrow", compression="zstd", index=False)
        if (size := partial.stat().st_size) > MOST_BYTES:
            checks.reject("runs", f"{size / 1e6:.1f} MB", f"at most {MOST_BYTES / 1e6:g} MB", "fewer runs")
    return path


Scale = Literal["quick", "full"]
FIGURES = Path(__file__).parents[2] / "figures"  # the published ledgers, in a checkout
SETTINGS = "settings.json"  # next to claims.json
FULL = "full"  # also the name of the folder with the results of that scale
SCALES = get_args(Scale)
MOST = checks.MAX_WORKERS  # largest value of a parameter that is a whole number
TUNING_SEEDS = range(1000, 1003)  # for choosing rates and settings; claims are not judged on these seeds


class Parameters(Strict):
    """The parameters of every notebook; a paper's model inherits them and adds its own.

    The notebook's cell with the tag `parameters` has the same names and defaults as literals.
    """

    model_config = ConfigDict(strict=True)

    scale: Scale = "quick"  # "quick" takes minutes on a laptop; "full" is for final numbers
    seeds: int = Field(3, ge=1)  # number of seeds; a quick run repeats the first ones of the ledger
    output: str = Field(exclude=True)  # folder for figures and claims.json; results do not depend on it

    @field_validator("*")
    @classmethod
    def _can_be_counted(cls, value: Any) -> Any:
        if isinstance(value, int) and value > MOST:
            raise PydanticCustomError("too_large", "Input should be a whole number <= {most}", {"most": MOST})
        return value

    @property
    def takes_settings(self) -> bool:
        """Whether a run takes the settings that published studies have found."""
        return self.scale != FULL

    @property
    def subject(self) -> str:
        """The name of what a run measures in place of the paper's claims; empty if it judges them."""
        return ""

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the defaults of the parameters that a command line can set: all except `output`."""
        return {name: info.default for name, info in cls.model_fields.items() if name != "output"}


class TunedParameters(Parameters):
    """The parameters of a notebook whose studies search settings, which are published with its results."""

    retune: bool = False  # whether to search settings again where published ones are known

    @property
    def takes_settings(self) -> bool:
        return super().takes_settings and not self.retune


class Paper(Strict):
    """A paper in the registry `PAPERS`."""

    key: str  # short name, on the command line and as the folder in figures/
    title: Text
    reference: Text  # authors, venue, year
    notebook: Text  # file name in notebooks/
    parameters: type[Parameters] = Parameters
    claims: tuple[Claim, ...] = ()  # declared before the run
    # File name -> caption of every picture that the notebook saves; also the picture's alternative text.
    figures: dict[str, Text] = Field({})
    full_figures: dict[str, Text] = Field({})  # pictures that only full scale saves
    comparisons: tuple[Comparison, ...] = ()  # the paper's results compared with ours
    card: Card | None = None  # the paper on one card, for tables of all papers
    summary: Summary | None = None  # a short summary, written after the run
    # Scale -> names of data sets of `dmlcore.data`, downloaded and checked before the notebook runs.
    data: dict[str, tuple[str, ...]] = Field({})
    quick_seconds: float = 60  # expected time at quick scale on two CPU cores
    published: bool = True  # whether its results go to figures/; else they stay below runs/

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.key.isidentifier() or self.key == FULL:
            checks.fail(
                "key", self.key, f"a short name of letters, digits and underscores, other than {FULL}"
            )
        for claim in self.claims:
            if claim.picture:
                checks.choice(f"picture of the claim {claim.id}", claim.picture, self.captions(FULL))
        if self.card:
            checks.choice("picture of the card", self.card.picture, self.figures)
        for scale in self.data:
            checks.choice("scale of the data", scale, dict.fromkeys(SCALES))
        return self

    def of(self, parameters: Parameters) -> Paper:
        """Returns the paper of a run: without claims if its parameters ask for another subject."""
        own = {"claims": (), "summary": None, "comparisons": (), "data": {}}
        return self.model_copy(update=own) if parameters.subject else self

    def captions(self, scale: str | None) -> dict[str, str]:
        """Returns file name -> caption of every picture that the notebook saves at a scale."""
        return {**self.figures, **(self.full_figures if scale == FULL else {})}

    def command(self, parameters: Parameters) -> str:
        """Returns the command line that repeats a run with these parameters."""
        words = ["python3", "paper_repro.py", self.key, "--scale", parameters.scale]
        words += ["--seeds", str(parameters.seeds)]
        for name, default in type(parameters).defaults().items():
            value = getattr(parameters, name)
            if name not in Parameters.model_fields and value != default:
                words += ["-p", f"{name}={value}"]
        return shlex.join(words)

    @property
    def findings(self) -> dict[str, str]:
        """The findings, id of the claim -> text."""
        return {claim.id: claim.finding for claim in self.claims if claim.finding}

    def in_short(self) -> Markdown:
        """Returns the summary for the notebook: the claims, where they hold, why, and what to choose."""
        if not self.claims:
            return _shown("This run has another subject, so no claim is judged, and findings are left out.")
        return _shown(self.summary.markdown() if self.summary else "")

    def found(self, *ids: str) -> Markdown:
        """Returns the findings of some claims for the notebook; the report has the same text.

        Raises:
            ValueError: a claim has no finding.
        """
        ids = ids if self.claims else ()
        for name in ids:
            checks.choice("claim with a finding", name, self.findings)
        return _shown("\n\n".join(f"**{name}.** {self.findings[name]}" for name in ids))

    def settings(self, parameters: Parameters) -> dict[str, Any]:
        """Returns the settings that published studies have found, for `dml.study(..., settings=...)`.

        They are empty at full scale, and if the parameter `retune` asks for a new search.
        """
        return unsealed(FIGURES / self.key / SETTINGS)[0] if parameters.takes_settings else {}

    def keep(self, runs: Mapping[str, pd.DataFrame], parameters: Parameters) -> Path | None:
        """Writes the histories of a run at full scale to runs.parquet in its output folder.

        Numbers have five significant digits. At quick scale nothing is written, because a run takes only
        minutes.

        Args:
            runs: name of the experiment -> a frame of `dml.compare` or `dml.sweep`.
            parameters: of this run.

        Returns:
            The path of the file; None at quick scale.

        Raises:
            ValueError: `runs` has no frame or is not such a mapping, or the file would have more than 2 MB.
        """
        return write_runs(runs, parameters.output) if parameters.scale == FULL else None

    def conclude(
        self,
        samples: Mapping[str, Samples | Mapping[str, Samples]],
        parameters: Parameters,
        *,
        data: str | Mapping[str, str | Mapping[str, str]] = "",
        tuned_on: Sequence[int] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Styler:
        """Judges all claims, writes claims.json to the output folder and returns a table of the results.

        Where the published ledger has as many seeds or more, with the same parameters or at another scale,
        the table has its outcomes: a run on few seeds decides nothing.

        Args:
            samples: id of the claim -> one number per seed, S numbers; for a claim with parts, id -> label ->
                S numbers. A claim that is missing was not run.
            parameters: of this run.
            data: the data set that the samples come from; or id of the claim -> data set; or id -> label of
                the part -> data set. A claim about another data set counts as not run. Claims with
                `data="none"` need no data set.
            tuned_on: the seeds on which learning rates and settings were chosen, such as `TUNING_SEEDS`; they
                must differ from the seeds of the samples. Default: None, not recorded.

            settings: what the studies of the notebook have found, for `settings.json`. Default: None.

        Returns:
            The table, for the last cell of the notebook.

        Raises:
            ValueError: the paper does not declare an id, `claims.judge` rejects the samples, or a tuning seed
                is also a seed of the samples.
        """
        declared = {claim.id: claim for claim in self.claims}
        for name in [*samples, *(data if isinstance(data, Mapping) else ())]:
            checks.choice("claim", name, declared)
        if shared := {*(tuned_on or ())} & {*range(parameters.seeds)}:
            expected = f"seeds that do not judge, unlike 0 to {parameters.seeds - 1}"
            checks.fail("tuned_on", sorted(shared), expected)
        results = tuple(
            claims.judge(claim, samples.get(name), data.get(name) if isinstance(data, Mapping) else data)
            for name, claim in declared.items()
        )
        made = claims.Made(
            command=self.command(parameters),
            scale=parameters.scale,
            seeds=parameters.seeds,
            tuned_on=None if tuned_on is None else tuple(tuned_on),
            parameters=parameters.model_dump(mode="json"),
            hardware=claims.hardware(),
            versions=claims.versions(),
        )
        ledger = claims.Ledger(paper=self.key, runs=(made,), claims=results)
        claims.write(Path(parameters.output) / claims.LEDGER, ledger)
        if settings:
            sealed = {**settings, "digest": hashed(settings)}
            files.write(Path(parameters.output) / SETTINGS, json.dumps(sealed, indent=1) + "\n")
        published = claims.known(FIGURES / self.key)
        results = claims.merge(published, ledger, again=False).claims
        shown = claims.frame(results).style  # a Styler does not truncate texts
        look = "text-align: left; vertical-align: top"
        return shown.set_table_styles([{"selector": "td, th", "props": look}])


def unsealed(path: Path) -> tuple[dict[str, Any], bool]:
    """Returns the settings in a settings.json, none if it cannot be read, and whether nothing was edited."""
    try:
        settings = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):
        return {}, False
    digest = settings.pop("digest", "")
    return settings, digest == hashed(settings)


def _shown(text: str) -> Markdown:
    from IPython.display import Markdown  # imported here because only a notebook needs it

    return Markdown(text)


def declare(module: Mapping[str, Any], parameters: type[Parameters] = Parameters) -> Paper:
    """Returns the paper that a module declares, with the claims and the texts of the TOML file beside it.

    Args:
        module: `globals()` of the module; its file's name is the key of the paper. A string in place of the
            parts of a claim, or of an end of its expected range, is the name of a constant of the module.
        parameters: the model of the notebook's parameters.

    Raises:
        ValueError: the file is not valid; the message names the first fault.
    """
    path = Path(module["__file__"]).with_suffix(".toml")
    constants = {name: value for name, value in module.items() if name.isupper()}

    def meant(given: Any) -> Any:
        return checks.choice(f"name in {path.name}", given, constants) if isinstance(given, str) else given

    within: tuple[str, ...] = ("phrases",)  # of the file: what is checked next
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        phrases = TypeAdapter(dict[str, Text]).validate_python(found.pop("phrases", {}))
        shared, claims = found.pop("shared", {}), []
        for name, own in found.pop("claims", {}).items():
            within = "claims", name
            fields = {"id": name, "paper": path.stem, "parts": [""]}
            fields |= TypeAdapter(Fields).validate_python(shared | own, context=phrases)
            fields["parts"] = tuple(map(str, meant(fields["parts"])))
            fields["expected"] = tuple(map(meant, fields.get("expected", ())))
            claims.append(Claim.model_validate(fields))
        within = ()
        found |= {"key": path.stem, "parameters": parameters, "claims": claims}
        return Paper.model_validate(found, context=phrases)
    except ValidationError as error:
        raise ValueError(f"{path}: {first_fault(error, *within)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
