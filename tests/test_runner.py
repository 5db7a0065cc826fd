"""Runs of notebooks: whole or not at all, skipped when nothing changed, and killed at any moment."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import tiny_papers
from PIL import Image

import dmlcore as dml
from dmlcore import files
from dmlcore.reproduce import claims, runner
from dmlcore.reproduce.command import main

HERE = Path(__file__).parent


PATH = os.pathsep.join([str(HERE), str(HERE.parent)])


@pytest.fixture
def root(tmp_path):
    tiny_papers.write_notebooks(tmp_path)
    return tmp_path


@pytest.fixture
def call(root, capsys, monkeypatch):
    """The command line in this process: exit code and output."""
    monkeypatch.setenv("PYTHONPATH", PATH)

    def call(*arguments):
        code = main(arguments, root=root, papers=tiny_papers.PAPERS)
        return code, capsys.readouterr().out

    return call


def start(root, *arguments):
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(HERE / "tiny_papers.py"), str(root), *arguments],
        env=os.environ | {"PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def made(root):
    """All files that runs have made, apart from the report."""
    found = files.tree(root / "figures") + files.tree(root / "runs")
    return {path.relative_to(root).as_posix() for path in found} - {"runs/report.html"}


OWN = "runs/swift/figures/claims.json"
PUBLISHED = "figures/swift/claims.json"


def whole(key, *more):
    """The files of a finished run."""
    names = ["manifest.json", f"{key}.ipynb", "figures/curve.svg", *(f"figures/{name}" for name in more)]
    return {f"runs/{key}/{name}" for name in names}


def test_a_run_and_its_resume(root, call):
    words = "swift", "plain", "--seeds", "9", "-p", "staleness=5"
    code, output = call(*words)
    assert code == 0, output
    assert made(root) == whole("swift", "claims.json") | whole("plain", "kernel.txt")
    assert (root / "runs/plain/figures/kernel.txt").read_text() == sys.executable
    assert "swift-1" in output
    assert "reproduced" in output
    assert output.count("first picture: ") == 1

    ledger = claims.read(root / OWN)
    assert ledger.runs[0].command == "python3 paper_repro.py swift --scale quick --seeds 9 -p staleness=5"
    assert ledger.claims[0].parts[0].samples == tuple(1.5 + seed for seed in range(9))
    assert str(root) not in (root / OWN).read_text()
    assert ledger.runs[0].versions == claims.versions()
    assert ledger.runs[0].hardware["cpu"] == claims.hardware()["cpu"]
    assert ledger.runs[0].hardware["cpu"] in (root / "runs/report.html").read_text()

    before = files.digests(files.tree(root), root)
    code, output = call(*words)
    assert code == 0
    assert output.count("skipped") == 2
    assert files.digests(files.tree(root), root) == before  # the report too: same files, same bytes


@pytest.fixture
def quick(monkeypatch):
    """A function stands in for the cells of `swift` and `plain`."""

    def execute(job, folders, staging, display, journal):
        output = staging / "figures"
        output.mkdir()
        (output / "curve.svg").write_text(f"<svg/><!-- {job.parameters.staleness} -->")
        (staging / job.paper.notebook).write_text("copy")
        samples = [1.5 + seed for seed in range(job.parameters.seeds)]
        parameters = job.parameters.model_copy(update={"output": str(output)})
        if job.paper.claims:
            job.paper.conclude({"swift-1": samples}, parameters, data="toys")
        return [1.0]

    monkeypatch.setattr(runner, "_execute", execute)


def test_a_run_is_compared_with_what_is_published_and_changes_nothing_of_it(root, call, quick):
    """Numbers by the rule of `agreement.same`; the words are those of the published ledger."""
    call("swift", "--publish")
    assert made(root) == whole("swift", "claims.json") | {PUBLISHED, "figures/swift/curve.svg"}
    (part,) = claims.read(root / PUBLISHED).claims[0].parts
    for samples, told in (
        (
            [1.5, 2.5, 3.49999],
            "7 of 8 numbers equal, 1 equal up to rounding, none different; outcomes that change: none",
        ),
        (
            [1.5, 0.5, 3.5],
            "7 of 8 numbers equal, 0 equal up to rounding, 1 different; outcomes that change: 1 of 1",
        ),
    ):
        result = claims.judge(tiny_papers.CLAIM, [*samples, *part.samples[3:]], "toys")
        ledger = claims.read(root / PUBLISHED).model_copy(update={"claims": (result,)})
        claims.write(root / PUBLISHED, ledger)
        text = (root / PUBLISHED).read_text()
        for words in ((), (), ("--force",)):
            code, output = call("swift", *words)
            assert (code, "skipped" in output) == (0, not words)
            assert f"compared with the published ledgers: {told}" in " ".join(output.split())
            assert f"1 our own: 1 {result.verdict}" in output
            assert (root / PUBLISHED).read_text() == text
    assert "\n  swift swift-1, seed 1: published 0.5, here 2.5\n" in output
    assert "\n  swift swift-1: published undecided, here holds\n" in output


def test_a_run_on_fewer_seeds_has_no_words_of_its_own(root, call, quick):
    call("swift", "--publish")
    _, output = call("swift", "--seeds", "3")
    told = "3 of 3 numbers equal, 0 equal up to rounding, none different; outcomes that change: none of 1"
    assert f"compared with the published ledgers: {told}" in " ".join(output.split())
    assert "1 our own: 1 reproduced" in output


def test_what_is_published_is_the_last_run(root, call, quick, capsys):
    """Also one that is skipped, and one with other parameters, but none on fewer seeds; earlier files go."""
    call("swift")
    assert not (root / "figures").exists()
    (root / "figures/swift").mkdir(parents=True)
    (root / "figures/swift/extra.svg").write_text("of another run")
    _, output = call("swift", "--publish")
    assert "skipped" in output
    assert {path.name for path in (root / "figures/swift").iterdir()} == {"claims.json", "curve.svg"}
    assert (root / PUBLISHED).read_bytes() == (root / OWN).read_bytes()
    _, output = call("swift", "-p", "staleness=3")
    told = "swift: nothing that is published was measured at this scale with these parameters"
    assert told in " ".join(output.split())
    assert claims.read(root / OWN).runs[0].command in (root / "runs/report.html").read_text()
    few = ["swift", "--seeds", "2", "--publish"]
    assert main(few, root=root, papers=tiny_papers.PAPERS) == 2
    assert "seeds (swift): expected at least 8 with --publish, as published, got 2" in capsys.readouterr().err
    call("swift", "--seeds", "9", "--publish")
    assert claims.read(root / PUBLISHED).runs[0].seeds == 9


def test_a_ledger_that_cannot_be_read_is_not_replaced(root, call, quick, capsys):
    call("swift", "--publish")
    for text in ("{", (root / PUBLISHED).read_text().replace('"format": 3', '"format": 2')):
        (root / PUBLISHED).write_text(text)
        assert main(["swift", "--publish"], root=root, papers=tiny_papers.PAPERS) == 2
        assert "mend or remove it" in capsys.readouterr().err
        assert (root / PUBLISHED).read_text() == text


def test_a_run_is_repeated_where_the_published_settings_change(root, call, quick):
    call("swift", "--publish")
    assert "skipped" in call("swift")[1]
    call("swift", "--scale", "full")
    (root / "figures/swift/settings.json").write_text("{}")
    assert "skipped" not in call("swift")[1]
    assert "skipped" in call("swift", "--scale", "full")[1]  # which takes none


def test_runs_of_both_scales_are_one_ledger(root, call, quick):
    call("swift", "--publish")
    call("swift", "--scale", "full", "--seeds", "9", "--publish")
    assert made(root) >= {PUBLISHED, "figures/swift/curve.svg", "figures/full/swift/curve.svg"}
    assert "figures/full/swift/claims.json" not in made(root)
    (run,) = claims.read(root / PUBLISHED).runs
    assert (run.scale, run.seeds) == ("full", 9)


def test_a_notebook_that_publishes_nothing_leaves_figures_alone(root, call, quick, monkeypatch):
    paper = tiny_papers.PAPERS["swift"].model_copy(update={"published": False})
    monkeypatch.setitem(tiny_papers.PAPERS, "swift", paper)
    call("swift", "--publish")
    assert made(root) == whole("swift", "claims.json")
    assert "skipped" in call("swift")[1]


def test_where_nothing_is_published_there_is_nothing_to_compare_with(root, call, quick):
    for scale in ("quick", "full", "quick"):
        _, output = call("swift", "--scale", scale)
        assert "there are no published results to compare with" in output
        assert "compared with" not in output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (OWN, "{"),
        (OWN, '{"versions": {}, "claims": 1}'),
        ("runs/swift/manifest.json", "[]"),
        ("runs/swift/manifest.json", "{}"),
        ("runs/swift/manifest.json", '{"inputs": [], "figures": {}, "cell_seconds": []}'),
    ],
)
def test_a_damaged_file_of_a_run_is_a_reason_to_run_again(root, call, quick, name, text):
    call("swift")
    before = (root / OWN).read_text()
    (root / name).write_text(text)
    code, output = call("swift")
    assert (code, "done" in output) == (0, True)
    assert (root / OWN).read_text() == before


def test_reasons_to_run_again(root, call, quick):
    call("plain", "-p", "staleness=5")
    _, output = call("plain", "-p", "staleness=5", "--force")
    assert "done" in output
    _, output = call("plain", "-p", "staleness=6")
    assert "done" in output
    assert "<!-- 6 -->" in (root / "runs/plain/figures/curve.svg").read_text()
    (root / "runs/plain/figures/curve.svg").unlink()
    _, output = call("plain", "-p", "staleness=6")
    assert "done" in output
    (root / "dmlcore").mkdir()
    (root / "dmlcore/policies.py").write_text("changed = True")
    _, output = call("plain", "-p", "staleness=6")
    assert "done" in output


def test_a_notebook_that_fails(root, call):
    code, output = call("broken", "plain")
    assert code == 1
    assert "cell 4: ValueError: out of luck" in output
    assert f"executed copy: {root / 'runs/broken.failed.ipynb'}" in output
    assert made(root) == whole("plain", "kernel.txt") | {"runs/broken.failed.ipynb"}
    assert "failed: broken; the report shows their previous runs" in output.splitlines()[-1]


def test_a_notebook_that_does_not_keep_its_word(root, call):
    for key, cell in (("swift", "pass"), ("plain", "Path(output, 'curve.svg').unlink()")):
        path = root / "notebooks" / f"{key}.ipynb"
        notebook = json.loads(path.read_text())
        notebook["cells"][-1]["source"] = cell
        path.write_text(json.dumps(notebook))
    code, output = call("swift", "plain")
    assert code == 1
    assert "the notebook did not write claims.json" in output
    assert "the notebook did not write curve.svg" in output
    assert made(root) == {"runs/swift.failed.ipynb", "runs/plain.failed.ipynb"}
    assert f"executed copy: {root / 'runs/plain.failed.ipynb'}" in output


def test_only_the_claims_of_what_was_asked_for_are_shown(root, call, quick):
    _, output = call("swift")
    assert "swift-1" in output
    assert "1 our own: 1 reproduced" in output
    code, output = call("plain")
    assert code == 0
    assert "swift-1" not in output


def test_a_ledger_that_cannot_be_read_is_told_at_the_end(root, call):
    broken = root / "figures/other/claims.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    code, output = call("plain")
    assert code == 1
    assert str(broken) in output.splitlines()[-1]


def test_notebooks_side_by_side(root, call):
    code, output = call("left", "right", "--jobs", "2")
    assert code == 0, output
    assert made(root) == whole("left") | whole("right")


@pytest.mark.parametrize(
    ("blow", "code"),
    # test_command.py has interrupts
    [(signal.SIGKILL, -9), pytest.param(signal.SIGINT, 130, marks=pytest.mark.full)],
)
def test_killed_halfway_and_started_again(root, call, blow, code):
    process = start(root, "slow")
    wait(lambda: (root / "halfway").exists(), process)
    process.send_signal(blow)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in output
    assert not (root / "figures").exists()

    (root / "again").touch()
    status, output = call("slow")
    assert status == 0, output
    assert made(root) == whole("slow")
    assert {path.name for path in (root / "runs").iterdir()} == {"slow"}
    wait(lambda: not alive(int((root / "halfway").read_text())))


def test_finished_runs_of_full_scale_are_kept_until_it_is_finished(root, call, monkeypatch):
    """A function stands in for the cells: it saves a run, and is killed the first time."""

    def execute(job, folders, staging, display, journal):
        before.append(None if journal is None else sorted(path.name for path in journal.glob("*")))
        if journal is not None:
            journal.mkdir(exist_ok=True)
            (journal / f"run {len(before)}").touch()
        if len(before) in (1, 3):
            raise Killed
        (staging / "figures").mkdir()
        (staging / "figures/curve.svg").write_text("<svg/>")
        (staging / job.paper.notebook).write_text("copy")
        return [1.0]

    before = []
    monkeypatch.setattr(runner, "_execute", execute)
    with pytest.raises(Killed):
        call("plain", "--scale", "full")
    assert call("plain", "--scale", "full")[0] == 0
    assert [path.name for path in (root / "runs/full").iterdir()] == ["plain"]
    with pytest.raises(Killed):
        call("plain", "--scale", "full", "-p", "staleness=5")
    assert call("plain", "--scale", "full", "-p", "staleness=6")[0] == 0
    assert call("plain")[0] == 0
    assert before == [[], ["run 1"], [], [], None], "those of other parameters do not count"


@pytest.mark.full  # the test before, for runs that test_journal kills
def test_a_notebook_of_full_scale_goes_on_where_it_was_killed(root, call):
    """The runs that were finished are not made again, and the results are those of a run at one go."""
    process = start(root, "long", "--scale", "full", "--seeds", "3")
    wait(lambda: (root / "halfway").exists(), process)
    process.kill()
    process.communicate(timeout=30)
    made_before = (root / "made.txt").read_text().split("\n")[:-1]
    assert sorted(made_before) == [f"{updates} {seed}" for updates in (4, 5) for seed in range(3)]
    (root / "again").touch()
    status, output = call("long", "--scale", "full", "--seeds", "3")
    assert status == 0, output
    assert sorted((root / "made.txt").read_text().split("\n")[6:-1]) == ["6 0", "6 1", "6 2"]
    assert {path.name for path in (root / "runs").iterdir()} == {"full"}
    resumed = (root / "runs/full/long/figures/frame.csv").read_text()
    full = made(root)
    (root / "made.txt").unlink()
    status, output = call("long", "--seeds", "3")  # of quick scale, which keeps no runs
    assert status == 0, output
    assert len((root / "made.txt").read_text().split("\n")[:-1]) == 9
    assert (root / "runs/long/figures/frame.csv").read_text() == resumed
    assert full == {name.replace("/", "/full/", 1) for name in made(root) - full}, (
        "neither scale touches the other"
    )


def test_stopped_between_any_two_files(root, call, monkeypatch):
    """A function stands in for the cells, and the k-th move into place kills the run."""

    def execute(job, folders, staging, display, journal):
        (staging / "figures").mkdir()
        for name in ("curve.svg", "other.svg"):
            (staging / "figures" / name).write_text(f"{job.parameters.staleness}")
        (staging / job.paper.notebook).write_text("copy")
        return [1.0]

    def replace(source, target):
        moves.append(target)
        if len(moves) == stop:
            raise Killed
        os_replace(source, target)

    os_replace = os.replace
    monkeypatch.setattr(runner, "_execute", execute)
    monkeypatch.setattr(os, "replace", replace)
    for stop in range(1, 6):  # the figures, the executed copy, the manifest, and each published file
        moves = []
        with pytest.raises(Killed):
            call("plain", "-p", f"staleness={stop}", "--publish")
        (root / "runs/.manifest.json.1.partial").write_text("{")
        (root / "figures/plain").mkdir(parents=True, exist_ok=True)
        (root / "figures/plain/.claims.json.1.partial").write_text("{")
        code, output = call("plain", "-p", f"staleness={stop}", "--publish")
        assert (code, "skipped" in output) == (0, stop > 3)
        published = {"figures/plain/curve.svg", "figures/plain/other.svg"}
        assert made(root) == whole("plain", "other.svg") | published
        assert (root / "figures/plain/other.svg").read_text() == f"{stop}"


class Killed(BaseException):
    pass


def test_figures_may_lie_on_another_file_system(root, call, quick, monkeypatch):
    """Files are written beside their places: nothing is moved there from `runs/`."""
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    (root / "figures").symlink_to(elsewhere)
    move = os.replace

    def replace(source, target):
        if len({elsewhere in Path(path).resolve().parents for path in (source, target)}) > 1:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(target))
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    code, output = call("swift", "--publish")
    assert (code, "done" in output) == (0, True)
    assert {path.name for path in (elsewhere / "swift").iterdir()} == {"curve.svg", "claims.json"}


def test_a_full_disk_leaves_what_was_published(root, call, quick, monkeypatch, capsys):
    """Results that do not all fit replace none."""
    call("swift", "--publish")
    copy = shutil.copyfile

    def copyfile(source, target):
        if "claims" not in Path(source).name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    before = files.digests(files.tree(root / "figures/swift"), root)
    assert main(["swift", "--seeds", "9", "--publish"], root=root, papers=tiny_papers.PAPERS) == 1
    assert "paper_repro.py: [Errno 28] No space left on device" in capsys.readouterr().err
    assert files.digests(files.tree(root / "figures/swift"), root) == before
    assert claims.read(root / OWN).runs[0].seeds == 9


@pytest.mark.parametrize("target", [None, "nowhere"])
def test_figures_that_cannot_be_written_are_told_before_a_cell_runs(root, monkeypatch, capsys, target):
    figures = root / "figures"
    figures.write_text("mine") if target is None else figures.symlink_to(target)
    monkeypatch.setattr(runner, "_execute", None)
    assert main(["swift", "--publish"], root=root, papers=tiny_papers.PAPERS) == 1
    assert f"{figures}: results cannot be written here (N" in capsys.readouterr().err


def test_where_results_cannot_be_written_all_notebooks_stop(root, monkeypatch, capsys):
    """Before the call returns, and with it the lock is let go of."""

    def finish(job, *rest):
        wait(lambda: (root / "halfway").exists())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), job.place)

    def execute(job, folders, staging, display, journal):
        if job.key == "slow":
            return as_usual(job, folders, staging, display, journal)
        (staging / "figures").mkdir()
        (staging / "figures/curve.svg").write_text("<svg/>")
        (staging / job.paper.notebook).write_text("copy")
        return [1.0]

    as_usual = runner._execute
    monkeypatch.setenv("PYTHONPATH", PATH)
    monkeypatch.setattr(runner, "_finish", finish)
    monkeypatch.setattr(runner, "_execute", execute)
    assert main(["slow", "plain", "--jobs", "2"], root=root, papers=tiny_papers.PAPERS) == 1
    told = capsys.readouterr().err
    assert "paper_repro.py: plain: [Errno 28] No space left on device" in told
    assert not alive(int((root / "halfway").read_text()))
    assert [path.name for path in (root / "runs").iterdir() if "partial" in path.name] == []
    assert made(root) <= {"runs/plain.failed.ipynb", "runs/slow.failed.ipynb"}
    with runner._alone(root / "runs"):
        pass


def test_one_run_at_a_time(root, capsys):
    first = start(root, "slow")
    wait(lambda: (root / "halfway").exists(), first)
    assert main(["plain"], root=root, papers=tiny_papers.PAPERS) == 1
    assert "another run is using it" in capsys.readouterr().err
    first.kill()
    first.communicate()


def wait(condition, process=None, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self").exists()


def test_a_published_picture_has_a_palette_that_cannot_be_seen(tmp_path):
    drawn = plt.figure(figsize=(3, 2))
    drawn.subplots().imshow(np.linspace(0, 1, 400).reshape(20, 20))
    source, target, again = (tmp_path / name for name in ("a.png", "b.png", "c.png"))
    dml.plot.save(drawn, source)
    plt.close(drawn)
    runner._copy(source, target)
    runner._copy(target, again)
    assert again.read_bytes() == target.read_bytes()
    assert target.stat().st_size < source.stat().st_size / 2
    old, new = (np.asarray(Image.open(path).convert("RGB"), int) for path in (source, target))
    assert old.shape == new.shape
    assert (new[0, 0] == old[0, 0]).all()
    assert np.abs(old - new).max() < 64
    assert (np.abs(old - new) > 16).mean() < 0.01
