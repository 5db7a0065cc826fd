"""The manifest: the inputs and the outputs of a run, from which a second call sees that it can be skipped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel

from dmlcore import files
from dmlcore.reproduce import claims
from dmlcore.reproduce.paper import FULL, SETTINGS, Paper, Parameters

OWN = "own"  # the folder of runs that judge no claims


@dataclass(frozen=True)
class Folders:
    """The folders of notebooks and of results."""

    package: Path  # the code that notebooks import; after a change in it they run again
    notebooks: Path  # templates, without outputs
    figures: Path  # published figures and claims.json, one folder per paper; `full` has those of full scale
    runs: Path  # what runs made here, in the same folders; also unfinished runs

    @classmethod
    def below(cls, root: Path) -> Self:
        """Returns the usual folders of a repository."""
        return cls(root / "dmlcore", root / "notebooks", root / "figures", root / "runs")

    @property
    def root(self) -> Path:
        return self.figures.parent


@dataclass(frozen=True)
class PaperJob:
    """A paper and the parameters of its run."""

    paper: Paper
    parameters: Parameters

    @property
    def key(self) -> str:
        return self.paper.key

    @property
    def place(self) -> str:
        """The folder of its results, relative to the folders of figures and of runs."""
        subject = self.parameters.subject
        where = place(subject or self.key, self.parameters.scale)
        return f"{OWN}/{where}" if subject else where


def place(key: str, scale: str | None) -> str:
    """Returns the folder of a paper's results at a scale; each scale has its own folder.

    >>> place("ssp", "quick"), place("ssp", "full")
    ('ssp', 'full/ssp')
    """
    return f"{FULL}/{key}" if scale == FULL else key


def path(place: str, folders: Folders) -> Path:
    """Returns the path of the manifest of the last finished run with this place."""
    return folders.runs / place / "manifest.json"


def made(place: str, folders: Folders) -> Path:
    """Returns the folder with the figures and the ledger of the last run here with this place."""
    return folders.runs / place / "figures"


def results(place: str, folders: Folders) -> Path:
    """Returns the folder with the results of the last finished run here, or else the published ones."""
    return made(place, folders) if latest(place, folders) else folders.figures / place


def inputs(job: PaperJob, folders: Folders) -> dict[str, Any]:
    """Returns everything that the results of a job depend on."""
    code = [path for path in files.tree(folders.package) if path.suffix != ".pyc"]
    taken = folders.figures / job.key / SETTINGS
    published = [taken] if job.parameters.takes_settings and taken.is_file() else []
    return {
        "parameters": job.parameters.model_dump(mode="json"),
        "notebook": files.digests([folders.notebooks / job.paper.notebook], folders.notebooks),
        "package": files.digests(code, folders.package),
        "versions": claims.versions(),
        "published": files.digests(published, folders.figures),
    }


class Manifest(BaseModel):
    """The inputs of a finished run, the fingerprints of its figures, and the seconds of its code cells."""

    inputs: dict[str, Any]
    figures: dict[str, str]
    cell_seconds: list[float]


def write(job: PaperJob, folders: Folders, made_from: dict[str, Any], cell_seconds: list[float]) -> None:
    """Writes the manifest of a finished run whose figures are in place."""
    own = Manifest(inputs=made_from, figures=_present(job.place, folders), cell_seconds=cell_seconds)
    files.write(path(job.place, folders), own.model_dump_json(indent=2) + "\n")


def read(place: str, folders: Folders) -> Manifest | None:
    """Returns the manifest of the last finished run with this place; None if none can be read."""
    try:
        return Manifest.model_validate_json(path(place, folders).read_bytes())
    except (OSError, ValueError):
        return None


def latest(place: str, folders: Folders) -> Manifest | None:
    """Returns the manifest of the last run if it is whole and unchanged."""
    old = read(place, folders)
    return old if old and old.figures == _present(place, folders) else None


def _present(place: str, folders: Folders) -> dict[str, str]:
    """Returns the fingerprints of the existing figures."""
    return files.digests(files.tree(made(place, folders)), folders.runs)


def finished(job: PaperJob, folders: Folders) -> bool:
    """Returns whether the last run had the same inputs, and all its outputs exist unchanged."""
    old = latest(job.place, folders)
    copy = folders.runs / job.place / job.paper.notebook
    if not old or not copy.exists() or old.inputs != inputs(job, folders):
        return False
    return not job.paper.claims or claims.known(made(job.place, folders)) is not None


def expected_seconds(job: PaperJob, folders: Folders, cells: int) -> list[float] | None:
    """Returns the expected seconds of each code cell: those of the last run, or equal shares of the total."""
    old, parameters = read(job.place, folders), job.parameters.model_dump(mode="json")
    if old and len(old.cell_seconds) == cells and old.inputs.get("parameters") == parameters:
        return old.cell_seconds
    return [job.paper.quick_seconds / cells] * cells if job.parameters.scale == "quick" else None
