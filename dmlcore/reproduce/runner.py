"""Runs notebooks with papermill in a separate folder, and moves the results into place if all succeed.

Results are below `runs/`; `publish` copies them to `figures/`. A notebook is skipped if nothing that it
depends on has changed.

A run may be killed at any moment. Until its last cell it writes only below `runs/*.partial-*`, which the next
call removes. Then the results are moved into place, and last the manifest is written, which says that all are
there. A notebook of full scale saves the finished runs of its comparisons in `runs/*.journal-*`, and
continues from there.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.claims.ledger import hashed
from dmlcore.reproduce.manifest import Folders, PaperJob
from dmlcore.reproduce.progress import Display, Outcome


class NotebookFailed(Exception):
    """A notebook failed; the message is for the user."""


def disagreements(job: PaperJob, folders: Folders) -> str:
    """Returns how the notebook's parameters cell differs from the model; empty if it does not.

    papermill only logs a parameter that the notebook lacks, and then uses the notebook's own value.
    """
    import papermill

    notebook = folders.notebooks / job.paper.notebook
    try:
        found = set(papermill.inspect_notebook(str(notebook)))
    except Exception as error:
        return f"{notebook} cannot be read: {error}"
    wanted = set(type(job.parameters).model_fields)
    pairs = (("lacks", wanted - found), ("has unknown", found - wanted))
    faults = [f"{verb} {', '.join(sorted(names))}" for verb, names in pairs if names]
    return f"{notebook}: its parameters cell {' and '.join(faults)}" if faults else ""


def run(jobs: Sequence[PaperJob], folders: Folders, display: Display, *, parallel: int = 1) -> list[Outcome]:
    """Runs jobs, `parallel` notebooks at a time, the longest first; returns the outcome of each.

    Results go below `folders.runs`. A job that fails leaves those of earlier runs as they are.

    Raises:
        OSError: results cannot be written; all notebooks have been stopped.
        BlockingIOError: another run uses this folder.
    """
    with _alone(folders.runs):
        _clean(folders)
        for job in jobs:
            check_writable(folders.runs / job.place)
        pool = ThreadPoolExecutor(parallel)  # no `with`, which would wait for the notebooks after Ctrl-C
        longest_first = sorted(jobs, key=lambda job: -job.paper.quick_seconds)
        futures = [pool.submit(_attempt, job, folders, display) for job in longest_first]
        try:
            for future in as_completed(futures):
                display.ended(future.result())
        except Exception:
            _stop(futures)
            pool.shutdown()
            raise
        return [future.result() for future in futures]


def publish(jobs: Iterable[PaperJob], folders: Folders) -> None:
    """Copies the results of finished jobs to `folders.figures`, and removes files of earlier ones there.

    The ledger of a job is merged with the one that its paper has. All files of a job are first written next
    to their destinations, which may be on another file system, and then moved into place, each in one step,
    the ledger last. So a full disk changes nothing.

    Raises:
        OSError: they cannot be written.
        BlockingIOError: another run uses these folders.
    """
    with _alone(folders.runs):
        for job in jobs:
            source, target = manifest.made(job.place, folders), folders.figures / job.place
            names = [path.relative_to(source) for path in files.tree(source) if path.name != claims.LEDGER]
            with ExitStack() as moves:  # moves happen in reverse order
                if (made := claims.known(source)) is not None:
                    whole = folders.figures / job.key / claims.LEDGER
                    merged = claims.merge(claims.known(whole.parent), made)
                    claims.write(moves.enter_context(files.aside(whole)), merged)
                for name in names:
                    _copy(source / name, moves.enter_context(files.aside(target / name)))
            for path in {*files.tree(target)} - {target / name for name in [*names, Path(claims.LEDGER)]}:
                path.unlink()


def _copy(source: Path, target: Path) -> None:
    """Copies a file; an opaque PNG gets a palette of 256 colours, with which it is a quarter as large."""
    shutil.copyfile(source, target)
    if source.suffix == ".png":
        from PIL import Image  # imported here because most runs publish nothing

        with Image.open(source) as picture:
            if picture.mode == "RGBA" and picture.getchannel("A").getextrema()[0] == 255:
                whole = picture.convert("RGB")
                few = whole.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
                colors, ground = few.getpalette() or [], 3 * cast(int, few.getpixel((0, 0)))
                colors[ground : ground + 3] = cast(tuple[int, ...], whole.getpixel((0, 0)))
                few.putpalette(colors)  # the ground is as white as the page
                few.save(target, "PNG", optimize=True)


def _stop(futures: Sequence[Future[Outcome]]) -> None:
    """Ends jobs immediately by ending their kernels, also kernels that are just starting."""
    from dmlcore.reproduce.kernel import LocalKernel

    for future in futures:
        future.cancel()
    while not all(future.done() for future in futures):
        LocalKernel.kill_all()
        time.sleep(0.1)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        handle = files.lock(folder)
    except BlockingIOError:
        raise BlockingIOError(f"{folder}: another run is using it; try again when it has ended") from None
    try:
        yield
    finally:
        os.close(handle)


def _clean(folders: Folders) -> None:
    """Removes the unfinished files of killed runs."""
    for stale in folders.runs.glob("*.partial-*"):
        shutil.rmtree(stale, ignore_errors=True)
    for folder in (folders.runs, folders.figures):
        for partial in folder.rglob(".*.partial"):
            partial.unlink(missing_ok=True)


def check_writable(place: Path) -> None:
    """Raises OSError if results cannot be written, so that a failure comes before a notebook starts."""
    there = next(path for path in (place, *place.parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(f"{there}: results cannot be written here ({error.strerror})") from error


def _attempt(job: PaperJob, folders: Folders, display: Display) -> Outcome:
    start = time.monotonic()
    made_from = manifest.inputs(job, folders)
    # A new name, because the kernel of a killed run may still write to the old folder for a second.
    staging = Path(tempfile.mkdtemp(prefix=f"{job.key}.partial-", dir=folders.runs))
    journal = _journal(job, folders, made_from)
    try:
        cell_seconds = _execute(job, folders, staging, display, journal)
        _examine(job, staging)
        _finish(job, folders, staging)
        manifest.write(job, folders, made_from, cell_seconds)
        if journal is not None:
            shutil.rmtree(journal, ignore_errors=True)
    except NotebookFailed as failure:
        told = f"{failure}{_keep_copy(job, folders, staging)}"
        return Outcome(job.key, "failed", time.monotonic() - start, told)
    except OSError as error:
        raise OSError(f"{job.key}: {error}{_keep_copy(job, folders, staging)}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Outcome(job.key, "done", time.monotonic() - start)


def _journal(job: PaperJob, folders: Folders, made_from: dict[str, Any]) -> Path | None:
    """Returns the folder in which a notebook of full scale saves its finished runs, to continue after a kill.

    It removes the folders of other versions of the notebook, other parameters or other code.
    """
    if job.parameters.scale != "full":
        return None
    known = hashed(made_from)
    journal = folders.runs / f"{job.key}.journal-{known}"
    for other in folders.runs.glob(f"{job.key}.journal-*"):
        if other != journal:
            shutil.rmtree(other, ignore_errors=True)
    return journal


def _execute(
    job: PaperJob, folders: Folders, staging: Path, display: Display, journal: Path | None
) -> list[float]:
    """Runs a notebook; returns the seconds of each code cell, including the parameters cell of papermill."""
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
            on_cell_executed=lambda **_: display.advanced(job.key, staging / "figures"),
        )
    except Exception as error:  # including a kernel that dies or does not start
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, papermill.PapermillExecutionError):
            text = f"cell {error.exec_count}: {error.ename}: {error.evalue}"
        raise NotebookFailed("\n    ".join(text.strip().splitlines()[:6])) from error
    return [round(cell.metadata.papermill.duration or 0.0, 3) for cell in _code(executed)]


def _code(notebook: Any) -> list[Any]:
    """Returns the code cells that are not empty, which are the executed ones."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def _examine(job: PaperJob, staging: Path) -> None:
    """Checks that a notebook has written the files and claims that its paper declares."""
    figures = staging / "figures"
    missing = [name for name in job.paper.captions(job.parameters.scale) if not (figures / name).is_file()]
    ledger = figures / claims.LEDGER
    if job.paper.claims and not ledger.is_file():
        missing.append(claims.LEDGER)
    if missing:
        raise NotebookFailed(f"the notebook did not write {', '.join(missing)}")
    if job.paper.claims and (faults := claims.recheck(ledger, job.paper.claims)):
        raise NotebookFailed("\n  ".join(faults))


def _keep_copy(job: PaperJob, folders: Folders, staging: Path) -> str:
    """Saves the executed cells of a job that failed; returns the line that says where."""
    copy, kept = staging / job.paper.notebook, _failed(job, folders)
    if not copy.exists():
        return ""
    os.replace(copy, kept)
    return f"\n  executed copy: {kept}"


def _failed(job: PaperJob, folders: Folders) -> Path:
    return folders.runs / f"{job.key}.failed.ipynb"


def _finish(job: PaperJob, folders: Folders, staging: Path) -> None:
    """Moves the results into place. If that is cut short, no manifest fits them, and the job runs again."""
    place = manifest.made(job.place, folders)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    os.replace(staging / "figures", place)
    os.replace(staging / job.paper.notebook, folders.runs / job.place / job.paper.notebook)
    _failed(job, folders).unlink(missing_ok=True)
