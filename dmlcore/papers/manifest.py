"""What a run was made from and what it made: the reason why a second call may skip it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlcore import claims, files
from dmlcore.papers.paper import Paper, Parameters, settings


@dataclass(frozen=True)
class Folders:
    """Where notebooks are and where results go.

    Args:
        package: the code that notebooks import; a change there is a reason to run them again.
        notebooks: templates, without outputs.
        figures: figures and claims.json, one folder for each paper.
        runs: executed copies and manifests; whatever is unfinished is here too.
    """

    package: Path
    notebooks: Path
    figures: Path
    runs: Path

    @classmethod
    def below(cls, root: Path) -> Folders:
        """Returns the usual folders of a repository."""
        return cls(root / "dmlcore", root / "notebooks", root / "figures", root / "runs")


@dataclass(frozen=True)
class Job:
    """A paper with the parameters to run it with."""

    paper: Paper
    parameters: Parameters

    @property
    def key(self) -> str:
        return self.paper.key

    def manifest(self, folders: Folders) -> Path:
        """Returns where the manifest of this paper's last finished run is."""
        return folders.runs / self.key / "manifest.json"


def inputs(job: Job, folders: Folders) -> dict[str, Any]:
    """Returns all that the results of a job depend on."""
    code = [path for path in files.tree(folders.package) if path.suffix != ".pyc"]
    return {
        "parameters": settings(job.parameters),
        "notebook": files.digests([folders.notebooks / job.paper.notebook], folders.notebooks),
        "package": files.digests(code, folders.package),
        "versions": claims.versions(),
    }


def write(job: Job, folders: Folders, made_from: dict[str, Any], cell_seconds: list[float]) -> None:
    """Writes the manifest of a finished run, whose figures are in place."""
    figures = files.digests(files.tree(folders.figures / job.key), folders.figures)
    content = {"inputs": made_from, "figures": figures, "cell_seconds": cell_seconds}
    files.write(job.manifest(folders), json.dumps(content, indent=2) + "\n")


def read(job: Job, folders: Folders) -> dict[str, Any]:
    """Returns the manifest of the last finished run, empty if there is none that can be read."""
    try:
        return json.loads(job.manifest(folders).read_bytes())
    except (OSError, ValueError):
        return {}


def finished(job: Job, folders: Folders) -> bool:
    """Returns whether the last run was this one, and all it made is still there, unchanged."""
    old = read(job, folders)
    present = files.digests(files.tree(folders.figures / job.key), folders.figures)
    copy = folders.runs / job.key / job.paper.notebook
    return bool(old) and copy.exists() and old["figures"] == present and old["inputs"] == inputs(job, folders)


def expected_seconds(job: Job, folders: Folders, cells: int) -> list[float] | None:
    """Returns how long each code cell should take: as last time, or an equal share of what is declared."""
    old = read(job, folders)
    if old and len(old["cell_seconds"]) == cells and old["inputs"]["parameters"] == settings(job.parameters):
        return old["cell_seconds"]
    return [job.paper.quick_seconds / cells] * cells if job.parameters.scale == "quick" else None
