"""The command line `python3 paper_repro.py ...`. Exit codes: 0 all ran, 1 something failed, 2 bad usage."""

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from dmlcore import checks, files
from dmlcore.reproduce import agreement, arithmetic, chapters, claims, manifest, recommending, runner
from dmlcore.reproduce.manifest import Folders, PaperJob
from dmlcore.reproduce.paper import SETTINGS, unsealed
from dmlcore.reproduce.papers import PAPERS, Paper, Parameters
from dmlcore.reproduce.parsing import Parser, UsageError
from dmlcore.reproduce.progress import Display, Outcome, seconds
from dmlcore.reproduce.site import build, results

# A notebook uses all cores while it trains, and one core while it compiles, simulates and draws.
JOBS = min(2, os.cpu_count() or 1)
TOUR = "00_tour.ipynb"  # the notebook that JupyterLab opens; it belongs to no paper
NAME = "paper_repro.py"  # of the command, in messages
CALL = f"python3 {NAME}"
ANSWER = "answer.txt"  # next to the figures of a run that judges no claims: what it found, for the console
SHOWN = 10  # numbers that differ from published ones, at most, on the console
ANYWHERE = ("list", "recommend")  # commands that need no notebooks


def installed() -> NoReturn:
    """The command `dmlcore` of an installed package: as `paper_repro.py`, in a folder of the repository.

    Elsewhere there are no notebooks, so that only `list` and `recommend` run.
    """
    global NAME, CALL
    NAME = CALL = "dmlcore"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    here, arguments = Path.cwd(), sys.argv[1:]
    places = here, *here.parents, Path(__file__).resolve().parents[2]
    root = next((place for place in places if (place / "notebooks" / TOUR).is_file()), None)
    if root is None and (not arguments or arguments[0] not in (*ANYWHERE, "-h", "--help")):
        expected = f"{' or '.join(ANYWHERE)} (other commands run in a folder of the repository)"
        sys.stderr.write(f"{NAME}: {checks.message('command', ' '.join(arguments) or 'none', expected)}\n")
        sys.exit(2)
    sys.exit(main(arguments, root=root or here))


def main(arguments: Sequence[str], *, root: Path, papers: Mapping[str, Paper] = PAPERS) -> int:
    """Runs the arguments of a command line in the repository at `root`; returns the exit code."""
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    try:
        match arguments:
            case ["test", *rest]:
                return test(rest, root)
            case ["lab", *rest]:
                return lab(rest, root)
            case ["recommend", *rest]:
                return advise(console, rest, root)
            case ["docs", *rest]:
                return build.docs(
                    console, Parser("docs", f"{CALL} docs").parse_args(rest), root, papers, JOBS
                )
            case ["list"]:
                return overview(console, papers)
            case ["check"]:
                return check(console, Folders.below(root), papers)
            case ["list" | "check" as command, *rest]:
                raise UsageError(checks.message(command, " ".join(rest), "no further arguments"))
        return reproduce(console, arguments, Folders.below(root), papers)
    except UsageError as error:
        sys.stderr.write(f"{NAME}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted: finished papers are kept, and the unfinished one will start again\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(130)  # does not wait for threads; kernels end with their parent
    except OSError as error:  # another run, a full disk, or a folder that is not writable
        sys.stderr.write(f"{NAME}: {error}\n")
        return 1


def plan(given: argparse.Namespace, papers: Mapping[str, Paper]) -> list[PaperJob]:
    """Returns the jobs of a command line; raises UsageError for a wrong paper, name or value.

    A parameter is passed to the papers that have it; a parameter that no paper has is an error.
    """
    for key in given.papers:
        if key not in papers:
            raise UsageError(_unknown("paper", key, papers))
    chosen = [papers[key] for key in dict.fromkeys(given.papers or papers)]
    values = {name: getattr(given, name) for name in ("scale", "seeds") if getattr(given, name) is not None}
    for pair in given.pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(checks.message("-p", repr(pair), "NAME=VALUE"))
        values[name] = value
    known = {name: None for paper in chosen for name in paper.parameters.defaults()}
    for name in values:
        if name not in known:
            raise UsageError(_unknown("-p", name, known))
    parameters = [_validated(paper, values) for paper in chosen]
    return [PaperJob(paper.of(each), each) for paper, each in zip(chosen, parameters, strict=True)]


def _validated(paper: Paper, values: Mapping[str, str]) -> Parameters:
    own = {name: value for name, value in values.items() if name in paper.parameters.model_fields}
    try:
        return paper.parameters.model_validate_strings({**own, "output": ""})
    except ValidationError as error:
        first = error.errors()[0]
        expected = first["msg"].removeprefix("Input should be ").partition(", unable")[0]
        expected = f"a number {expected}" if expected.startswith(("greater", "less")) else expected
        name = ".".join(map(str, first["loc"])) or "parameters"
        told = checks.message(f"{name} ({paper.key})", checks.shown(first["input"]), expected)
        raise UsageError(told) from None


def _unknown(name: str, given: str, words: Iterable[str]) -> str:
    near = checks.nearest(given, words, quoted=False)
    return checks.message(name, repr(given), f"one of {', '.join(words)}", near)


def reproduce(
    console: Console, arguments: Sequence[str], folders: Folders, papers: Mapping[str, Paper]
) -> int:
    """Runs notebooks, shows their claims and writes the report of all claims."""
    parser = Parser("reproduce", CALL)
    parser.set_defaults(jobs=JOBS)
    given = parser.parse_args(arguments)
    jobs = plan(given, papers)
    own = [job for job in jobs if job.parameters.subject]
    if own and given.publish:
        raise UsageError(checks.message("--publish", own[0].key, "runs that judge the claims of a paper"))
    todo = [job for job in jobs if given.force or job in own or not manifest.finished(job, folders)]
    for job in todo:
        if fault := runner.disagreements(job, folders):
            raise UsageError(fault)
    published = [job for job in jobs if given.publish and job.paper.published]
    for job in published:
        runner.check_writable(folders.figures / job.place)
        path = folders.figures / job.key / claims.LEDGER
        try:
            known = claims.read(path) if path.exists() else None
        except ValueError as error:
            raise UsageError(
                f"{error}; mend or remove it (a run is merged into the published ledger)"
            ) from None
        for made in known.runs if known else ():
            if made.scale == job.parameters.scale and made.seeds > job.parameters.seeds:
                expected = f"at least {made.seeds} with --publish, as published"
                raise UsageError(checks.message(f"seeds ({job.key})", str(job.parameters.seeds), expected))
    for job in todo:
        obtain(job)
    with Display(console) as display:
        for job in jobs:
            if job not in todo:
                display.ended(Outcome(job.key, "skipped"))
        outcomes = runner.run(todo, folders, display, parallel=given.jobs)
    ledgers, faults = chapters.ledgers(folders, papers, local=True)
    failed = [outcome.key for outcome in outcomes if outcome.status == "failed"]
    asked = {job.key: job.place for job in jobs if job.key not in failed and job not in own}
    for job in own:
        if job.key not in failed:
            tell(console, job, folders)
    if shown := [result for ledger in ledgers if ledger.paper in asked for result in ledger.claims]:
        console.print(claims.table(shown))
        for line in claims.told(shown):
            console.print(line)
        compare(console, asked, folders)
    if public := [job for job in published if job.key not in failed]:
        runner.publish(public, folders)
        results.write(folders.root, papers)
    if ledgers and len(own) < len(jobs):
        path = chapters.report(folders, papers, [job.place for job in jobs if job.key in failed])
        console.print(f"report: {path}", soft_wrap=True)
    if failed:
        earlier = "; the report shows their previous runs, if there are any" if len(own) < len(jobs) else ""
        faults.append(f"failed: {', '.join(failed)}{earlier}")
    for fault in faults:
        console.print(fault, style="red", markup=False, soft_wrap=True)
    return int(bool(faults))


def tell(console: Console, job: PaperJob, folders: Folders) -> None:
    """Prints what a run that judges no claims has found, and where its results are."""
    folder = folders.runs / job.place
    if (answer := folder / "figures" / ANSWER).is_file():
        console.print(answer.read_text(encoding="utf-8"), markup=False)
    console.print(f"notebook: {folder / job.paper.notebook}", soft_wrap=True)
    console.print(f"tables and pictures: {folder / 'figures'}", soft_wrap=True)


def compare(console: Console, places: Mapping[str, str], folders: Folders) -> None:
    """Prints how runs agree with the published ledgers: papers and the places of their results."""
    found = []
    for key, place in sorted(places.items()):
        own, old = map(claims.known, (manifest.made(place, folders), folders.figures / key))
        if own is None:
            continue
        if old is None:
            console.print(f"{place}: there are no published results to compare with")
        elif (agrees := agreement.agreement(old, own)) is None:
            told = f"{place}: nothing that is published was measured at this scale with these parameters"
            console.print(told, soft_wrap=True)
        else:
            found.append(agrees)
    if found:
        whole = agreement.total(found)
        console.print(f"compared with the published ledgers: {whole}")
        for difference in (*whole.changed, *whole.differences[:SHOWN]):
            console.print(f"  {difference}", markup=False, soft_wrap=True)
        if more := len(whole.differences[SHOWN:]):
            console.print(f"  and {more} more numbers")


def obtain(job: PaperJob) -> None:
    """Downloads and checks the data sets of a job, so that a failure comes before its notebook starts."""
    for name in job.paper.data.get(job.parameters.scale, ()):
        from dmlcore import data  # imported here because it is slow, and most runs do not need it

        try:
            data.obtain(name)
        except (OSError, ValueError) as error:
            raise UsageError(f"data of {job.key}: {error}") from None


def overview(console: Console, papers: Mapping[str, Paper]) -> int:
    """Prints the papers with their parameters and claims."""
    table = Table(header_style="bold")
    for name in ("paper", "title", "-p parameters", "claims", "quick run"):
        table.add_column(name, overflow="fold")
    for paper in papers.values():
        table.add_row(
            paper.key,
            f"{paper.title}\n{paper.reference}",
            "\n".join(f"{name}={value}" for name, value in paper.parameters.defaults().items()),
            str(len(paper.claims)),
            f"about {seconds(paper.quick_seconds)}",
        )
    console.print(table)
    return 0


def check(console: Console, folders: Folders, papers: Mapping[str, Paper]) -> int:
    """Checks that ledgers follow from samples and have the declared claims, and that nothing was edited."""
    paths = sorted(folders.figures.glob(f"*/{claims.LEDGER}"))
    faults = []
    for path in paths:
        paper = papers.get(path.parent.name)
        try:
            faults += claims.recheck(path, paper.claims if paper else None)
        except ValueError as error:
            faults.append(str(error))
    for path in sorted(folders.figures.glob(f"*/{SETTINGS}")):
        paths.append(path)
        if not unsealed(path)[1]:
            faults.append(f"{path}: not the settings that a run has written: they were edited")
    pages = [path.relative_to(folders.root) for path, _ in results.old(folders.root, papers)]
    faults += [f"{page}: not the results of the ledgers (`docs --pages` writes them)" for page in pages]
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    console.print(f"{len(paths)} files checked, {len(faults) or 'no'} disagreements")
    return int(bool(faults))


def advise(console: Console, arguments: Sequence[str], root: Path) -> int:
    """Recommends a method for a recorded cluster; UsageError for a wrong argument or record."""
    given = Parser("recommend", f"{CALL} recommend").parse_args(arguments)
    try:
        return recommending.recommend(console, given, root)
    except (ValueError, OSError) as error:
        raise UsageError(recommending.typed(str(error))) from None
    except KeyboardInterrupt:
        kept = f"; the same call goes on from {given.save}" if given.save else "; try --save to keep runs"
        sys.stderr.write(f"\ninterrupted before there was any result{kept}\n")
        return 130


def test(arguments: Sequence[str], root: Path) -> int:
    """Replaces this process by pytest, on all cores by default; never returns."""
    own = any(word.startswith(("-n", "--numprocesses", "--pdb")) or word == "no:xdist" for word in arguments)
    # One process more than cores, because tests with real clocks sleep most of their time.
    spread = [] if own else ["-n", str((os.cpu_count() or 1) + 1), "--max-worker-restart=0"]
    return _become(["-m", "pytest", *spread, *arguments], root)


def lab(arguments: Sequence[str], root: Path) -> int:
    """Replaces this process by JupyterLab, with the tour open; never returns.

    The server accepts connections from this machine only and requires a token. An argument that would change
    this raises UsageError.
    """
    fixed = {"ip", "sock", "token", "password", "hashed_password", "identity_provider_class",
             "allow_unauthenticated_access", "password_required"}  # fmt: skip
    for word in arguments:
        option = word.lstrip("-").partition("=")[0].rpartition(".")[2]
        if word.startswith("-") and option in fixed:
            expected = (
                "options that leave address and token as they are (notebooks run code, so JupyterLab "
                "listens on 127.0.0.1 and asks for a token)"
            )
            hint = "ssh -L to connect from another machine"
            raise UsageError(checks.message("lab", word.partition("=")[0], expected, hint))
    environment = {
        **arithmetic.settings(),
        "PYTHONPATH": files.on_path("PYTHONPATH", root),
        "JUPYTER_PREFER_ENV_PATH": "1",  # use the kernel of this interpreter
        # Without its setting there, JupyterLab asks for news over what one reads, although it fetches none.
        "JUPYTER_CONFIG_PATH": files.on_path("JUPYTER_CONFIG_PATH", Path(__file__).with_name("jupyter")),
    }
    options = ["--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={root}",  # notebooks show figures/
               f"--LabApp.default_url=/lab/tree/notebooks/{TOUR}",
               "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
               "--LabApp.news_url=None"]  # fmt: skip
    return _become(["-m", "dmlcore.reproduce.lab", *options, *arguments], root, environment)


def _become(arguments: Sequence[str], root: Path, environment: Mapping[str, str] | None = None) -> int:
    sys.stdout.flush()
    os.chdir(root)
    os.execve(sys.executable, [sys.executable, *arguments], os.environ | (environment or {}))
