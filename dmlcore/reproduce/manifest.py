"""What a run was made from and what it made: the reason why a second call may skip it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlcore import files
from dmlcore.reproduce import claims
from dmlcore.reproduce.paper import Paper, Parameters


@dataclass(frozen=True)
class Folders:
    """Where notebooks are and where results go."""

    package: Path  # the code that notebooks import; a change there is a reason to run them again
    notebooks: Path  # templates, without outputs
    figures: Path  # figures and claims.json, one folder for each paper
    runs: Path  # executed copies and manifests; whatever is unfinished is here too

    @classmethod
    def below(cls, root: Path) -> Folders:
        """Returns the usual folders of a repository."""
        return cls(root / "dmlcore", root / "notebooks", root / "figures", root / "runs")


@dataclass(frozen=True)
class PaperJob:
    """A paper with the parameters to run it with."""

    paper: Paper
    parameters: Parameters

    @property
    def key(self) -> str:
        return self.paper.key


def path(key: str, folders: Folders) -> Path:
    """Returns where the manifest of a paper's last finished run is."""
    return folders.runs / key / "manifest.json"


def inputs(job: PaperJob, folders: Folders) -> dict[str, Any]:
    """Returns all that the results of a job depend on."""
    code = [path for path in files.tree(folders.package) if path.suffix != ".pyc"]
    return {
        "parameters": job.parameters.model_dump(mode="json"),
        "notebook": files.digests([folders.notebooks / job.paper.notebook], folders.notebooks),
        "package": files.digests(code, folders.package),
        "versions": claims.versions(),
    }


def write(job: PaperJob, folders: Folders, made_from: dict[str, Any], cell_seconds: list[float]) -> None:
    """Writes the manifest of a finished run, whose figures are in place."""
    content = {"inputs": made_from, "figures": _present(job.key, folders), "cell_seconds": cell_seconds}
    files.write(path(job.key, folders), json.dumps(content, indent=2) + "\n")


def read(key: str, folders: Folders) -> dict[str, Any]:
    """Returns the manifest of a paper's last finished run, empty if there is none that can be read."""
    try:
        return json.loads(path(key, folders).read_bytes())
    except (OSError, ValueError):
        return {}


def seconds(key: str, folders: Folders) -> float | None:
    """Returns how long the run took that made a paper's figures, or None where that was not recorded here."""
    old = read(key, folders)
    return sum(old["cell_seconds"]) if old and old["figures"] == _present(key, folders) else None


def _present(key: str, folders: Folders) -> dict[str, str]:
    """Returns the fingerprints of the figures that are there."""
    return files.digests(files.tree(folders.figures / key), folders.figures)


def finished(job: PaperJob, folders: Folders) -> bool:
    """Returns whether the last run was this one, and all it made is still there, unchanged."""
    old = read(job.key, folders)
    copy = folders.runs / job.key / job.paper.notebook
    unchanged = bool(old) and copy.exists() and old["figures"] == _present(job.key, folders)
    return unchanged and old["inputs"] == inputs(job, folders)


def expected_seconds(job: PaperJob, folders: Folders, cells: int) -> list[float] | None:
    """Returns how long each code cell should take: as last time, or an equal share of what is declared."""
    old, parameters = read(job.key, folders), job.parameters.model_dump(mode="json")
    if old and len(old["cell_seconds"]) == cells and old["inputs"]["parameters"] == parameters:
        return old["cell_seconds"]
    return [job.paper.quick_seconds / cells] * cells if job.parameters.scale == "quick" else None
