"""Runs notebooks: executed aside by papermill, put in place when all is well, skipped when nothing changed.

A run may be killed at any moment. Until its last cell it only writes below `runs/*.partial-*`, which the next
call removes; then every file takes its place in one step, last the manifest, which says that all are there.
A notebook of full scale keeps the finished runs of its comparisons in `runs/*.journal-*`, and goes on there.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.manifest import Folders, PaperJob
from dmlcore.reproduce.progress import Display, Outcome


class NotebookFailed(Exception):
    """A notebook failed; the message is for the user."""


def disagreements(job: PaperJob, folders: Folders) -> str:
    """Returns how the notebook's parameters cell differs from their model; empty if it does not.

    papermill itself only logs a parameter that the notebook lacks, and runs on with the notebook's own value.
    """
    import papermill

    notebook = folders.notebooks / job.paper.notebook
    try:
        found = set(papermill.inspect_notebook(str(notebook)))
    except Exception as error:
        return f"{notebook}: cannot be read: {error}"
    wanted = set(type(job.parameters).model_fields)
    pairs = (("lacks", wanted - found), ("has unknown", found - wanted))
    faults = [f"{verb} {', '.join(sorted(names))}" for verb, names in pairs if names]
    return f"{notebook}: its parameters cell {' and '.join(faults)}" if faults else ""


def run(jobs: Sequence[PaperJob], folders: Folders, display: Display, *, parallel: int = 1) -> list[Outcome]:
    """Runs jobs, `parallel` notebooks at a time, and returns the outcome of each.

    Nothing below `folders.figures` is ever half written, and a job that fails changes nothing there.
    BlockingIOError: another run is using these folders.
    """
    with _alone(folders.runs):
        _clean(folders)
        pool = ThreadPoolExecutor(parallel)  # no `with`: on Ctrl-C it would wait for the notebooks
        futures = [pool.submit(_attempt, job, folders, display) for job in jobs]
        for future in as_completed(futures):
            display.ended(future.result())
        return [future.result() for future in futures]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # needs no file, and ends with the process
        except BlockingIOError:
            raise BlockingIOError(f"{folder}: another run is using it; wait until it ends") from None
        yield
    finally:
        os.close(handle)


def _clean(folders: Folders) -> None:
    """Removes what a killed run has left."""
    for stale in folders.runs.glob("*.partial-*"):
        shutil.rmtree(stale, ignore_errors=True)
    for folder in (folders.runs, folders.figures):
        for partial in folder.rglob(".*.partial"):
            partial.unlink(missing_ok=True)


def _attempt(job: PaperJob, folders: Folders, display: Display) -> Outcome:
    start = time.monotonic()
    made_from = manifest.inputs(job, folders)
    # A name of its own: the kernel of a killed run may still write to the old one for a second.
    staging = Path(tempfile.mkdtemp(prefix=f"{job.key}.partial-", dir=folders.runs))
    journal = _journal(job, folders, made_from)
    try:
        cell_seconds = _execute(job, folders, staging, display, journal)
        _examine(job, staging)
        _publish(job, folders, staging)
        manifest.write(job, folders, made_from, cell_seconds)
        shutil.rmtree(journal or staging, ignore_errors=True)
    except NotebookFailed as failure:
        return Outcome(job.key, "failed", time.monotonic() - start, str(failure))
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Outcome(job.key, "done", time.monotonic() - start)


def _journal(job: PaperJob, folders: Folders, made_from: dict[str, Any]) -> Path | None:
    """Returns where a notebook of full scale keeps its finished runs, so that it goes on after it was killed.

    Those of another notebook, other parameters or other code are removed.
    """
    if job.parameters.scale != "full":
        return None
    known = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
    journal = folders.runs / f"{job.key}.journal-{known}"
    for other in folders.runs.glob(f"{job.key}.journal-*"):
        if other != journal:
            shutil.rmtree(other, ignore_errors=True)
    return journal


def _execute(
    job: PaperJob, folders: Folders, staging: Path, display: Display, journal: Path | None
) -> list[float]:
    """Runs a notebook; returns how long each code cell took. papermill adds one, with the parameters."""
    import nbformat
    import papermill

    from dmlcore.reproduce.kernel import LocalKernel

    template, copy = folders.notebooks / job.paper.notebook, staging / job.paper.notebook
    (staging / "figures").mkdir()
    cells = len(_code(nbformat.read(template, as_version=4))) + 1
    display.started(job.key, manifest.expected_seconds(job, folders, cells), cells)
    try:
        executed = papermill.execute_notebook(
            str(template),
            str(copy),
            parameters=job.parameters.model_dump() | {"output": str(staging / "figures")},
            kernel_name="python3",
            language="python",
            progress_bar=False,
            kernel_manager_class=LocalKernel.keeping(journal),
            resources={"metadata": {"path": str(folders.notebooks)}},
            on_cell_executed=lambda **_: display.advanced(job.key),
        )
    except Exception as error:  # also a kernel that dies, or does not start
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, papermill.PapermillExecutionError):
            text = f"cell {error.exec_count}: {error.ename}: {error.evalue}"
        kept = folders.runs / f"{job.key}.failed.ipynb"
        if copy.exists():
            os.replace(copy, kept)
        text = "\n    ".join(text.strip().splitlines()[:6])
        raise NotebookFailed(f"{text}\n  executed copy: {kept}") from error
    return [round(cell.metadata.papermill.duration or 0.0, 3) for cell in _code(executed)]


def _code(notebook: Any) -> list[Any]:
    """Returns the code cells that are executed: all but empty ones."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def _examine(job: PaperJob, staging: Path) -> None:
    """Holds what a notebook wrote against what its paper declares."""
    figures = staging / "figures"
    missing = [name for name in job.paper.figures if not (figures / name).is_file()]
    ledger = figures / "claims.json"
    if job.paper.claims and not ledger.is_file():
        missing.append("claims.json")
    if missing:
        raise NotebookFailed(f"the notebook wrote no {', '.join(missing)}")
    if job.paper.claims and (faults := claims.recheck(ledger, job.paper.claims)):
        raise NotebookFailed("\n  ".join(faults))


def _publish(job: PaperJob, folders: Folders, staging: Path) -> None:
    """Moves the results into place, each file in one step, and removes those of earlier runs."""
    source, target, copies = staging / "figures", folders.figures / job.key, folders.runs / job.key
    made = files.tree(source)
    for path in sorted(made, key=lambda path: path.name == "claims.json"):  # ledger last
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
    for path in set(files.tree(target)) - {target / path.relative_to(source) for path in made}:
        path.unlink()
    copies.mkdir(exist_ok=True)
    os.replace(staging / job.paper.notebook, copies / job.paper.notebook)
    (folders.runs / f"{job.key}.failed.ipynb").unlink(missing_ok=True)
