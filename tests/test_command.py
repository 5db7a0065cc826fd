"""The command line: what it refuses, in one line and before anything is written, and the other commands."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_papers

from dmlcore import files
from dmlcore.data import datasets
from dmlcore.reproduce import claims, command, lab
from dmlcore.reproduce.paper import TUNING_SEEDS, Comparison, declare
from dmlcore.reproduce.papers import PAPERS

ROOT = Path(__file__).parents[1]
KEYS = "swift, plain, broken, slow, left, right, long"
NAMES = "scale, seeds, staleness"


@pytest.fixture
def root(tmp_path):
    tiny_papers.write_notebooks(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("swfit", f"paper: got 'swfit', allowed is one of {KEYS}; did you mean swift?"),
        ("swift -p stalness=3", f"-p: got 'stalness', allowed is one of {NAMES}; did you mean staleness?"),
        ("swift -p output=here", "-p: got 'output', allowed is one of"),
        ("swift -p staleness", "-p: got 'staleness', allowed is NAME=VALUE"),
        ("swift -p staleness=3.5", "staleness (swift): got '3.5', allowed is a valid integer"),
        ("swift -p staleness=-1", "staleness (swift): got '-1', allowed is greater than or equal to 0"),
        ("--seeds many", "seeds (swift): got 'many', allowed is a valid integer"),
        ("--scale huge", "scale (swift): got 'huge', allowed is 'quick' or 'full'"),
        ("swift --seeds " + "9" * 400, f"seeds (swift): got '{'9' * 299}..., allowed is at most 1048576"),
        ("swift -p seeds=999999999", "seeds (swift): got '999999999', allowed is at most 1048576"),
        ("--jobs 0", "argument --jobs: got '0', allowed is a whole number >= 1"),
        ("--bogus", "unrecognized arguments: --bogus"),
        ("list swift", "list takes no further arguments, got swift"),
        ("lab --ip=0.0.0.0", "lab: got --ip, allowed is"),
        ("lab --IdentityProvider.token=", "lab: got --IdentityProvider.token, allowed is"),
    ],
)  # fmt: skip
def test_bad_usage(root, capsys, line, message):
    before = sorted(root.rglob("*"))
    assert command.main(line.split(), root=root, papers=tiny_papers.PAPERS) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"paper_repro.py: {message}")
    assert shown.err.count("\n") == 1
    assert sorted(root.rglob("*")) == before


def test_a_notebook_with_other_parameters_is_refused(tmp_path, capsys):
    tiny_papers.write_notebooks(tmp_path, parameters='scale = "quick"\nseeds = 3\nstalness = 2\noutput = ""')
    assert command.main(["plain"], root=tmp_path, papers=tiny_papers.PAPERS) == 2
    assert "lacks staleness and has unknown stalness" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_parameter_goes_to_the_papers_that_have_it():
    given = command.parse(["swift", "plain", "--seeds", "7", "-p", "staleness=8"])
    jobs = command.plan(given, tiny_papers.PAPERS)
    assert [(job.key, job.parameters.seeds, job.parameters.staleness) for job in jobs] == [
        ("swift", 7, 8),
        ("plain", 7, 8),
    ]


def junk(homes, monkeypatch):
    for name in datasets.MNIST.sha256:
        (homes / "mnist" / name).write_bytes(b"junk")
    return r"paper_repro\.py: data of plain: .*ubyte\.gz is damaged .* Delete the file and run again"


def offline(homes, monkeypatch):
    source = datasets.MNIST._replace(urls=("http://127.0.0.1:9/",))
    monkeypatch.setitem(datasets.SOURCES, "mnist", source)
    return r"paper_repro\.py: data of plain: mnist: cannot be downloaded"


@pytest.mark.parametrize("trouble", [junk, offline])
def test_data_are_here_and_whole_before_anything_runs(root, tmp_path_factory, monkeypatch, capsys, trouble):
    homes = tmp_path_factory.mktemp("homes")
    (homes / "mnist").mkdir()
    monkeypatch.setenv("DMLCORE_DATA", str(homes))
    monkeypatch.setattr(files, "cache", lambda: homes / "cache")
    message = trouble(homes, monkeypatch)
    papers = {"plain": replace(tiny_papers.PAPERS["plain"], data={"full": ("mnist",)})}
    monkeypatch.setattr(command.runner, "run", lambda jobs, *_, **__: started.extend(jobs) or [])
    started: list = []
    before = sorted(root.rglob("*"))
    assert command.main(["plain", "--scale", "full"], root=root, papers=papers) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(f"^{message}", shown.err, re.MULTILINE)
    assert sorted(root.rglob("*")) == before
    assert not started
    assert command.main(["plain"], root=root, papers=papers) == 0  # at quick scale it needs no data
    assert len(started) == 1


def test_data_are_declared_by_known_names():
    with pytest.raises(ValueError, match="scale of the data: got 'fulll', allowed is one of 'quick', 'full'"):
        replace(tiny_papers.PAPERS["plain"], data={"fulll": ("mnist",)})
    for paper in PAPERS.values():
        assert {name for names in paper.data.values() for name in names} <= set(datasets.SOURCES)


def judged(root):
    parameters = tiny_papers.Tiny(output=str(root / "figures/swift"))
    tiny_papers.PAPERS["swift"].conclude({"swift-1": [1.5, 2.5, 3.5]}, parameters, data="toys")
    return root / "figures/swift/claims.json"


def test_check(tmp_path, capsys):
    ledger = judged(tmp_path)
    assert command.main(["check"], root=tmp_path, papers=tiny_papers.PAPERS) == 0
    assert capsys.readouterr().out == "1 files checked, no disagreements\n"
    ledger.write_text(ledger.read_text().replace('"reproduced"', '"mixed"'))
    assert command.main(["check"], root=tmp_path, papers=tiny_papers.PAPERS) == 1
    assert "swift-1: verdict is 'mixed', but its samples give 'reproduced'" in capsys.readouterr().err
    ledger.write_text("{")
    assert command.main(["check"], root=tmp_path, papers=tiny_papers.PAPERS) == 1


def test_an_unknown_claim_is_refused(tmp_path):
    parameters = tiny_papers.Tiny(output=str(tmp_path))
    with pytest.raises(ValueError, match=re.escape("claim: got 'swift-2', allowed is one of 'swift-1'")):
        tiny_papers.PAPERS["swift"].conclude({"swift-2": [1.0]}, parameters)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": {"swift-2": "toys"}}, "claim: got 'swift-2', allowed is one of 'swift-1'"),
        ({"data": {}}, "data of swift-1: got None, allowed is the name of the data set"),
        ({}, "data of swift-1: got '', allowed is the name of the data set"),
        ({"data": "toys", "tuned_on": [2, 1000]}, "tuned_on: got [2], allowed is seeds that do not judge"),
    ],
)
def test_what_was_measured_on_what_is_told(tmp_path, given, message):
    parameters = tiny_papers.Tiny(output=str(tmp_path))
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny_papers.PAPERS["swift"].conclude({"swift-1": [1.0]}, parameters, **given)
    assert not [*tmp_path.iterdir()]


def test_the_last_cell_shows_findings_whole_and_keeps_the_tuning_seeds(tmp_path):
    finding = "The paper says so, and we measured so, " * 4
    claim = tiny_papers.CLAIM.model_copy(update={"finding": finding})
    paper = replace(tiny_papers.PAPERS["swift"], claims=(claim,))
    parameters = tiny_papers.Tiny(output=str(tmp_path))
    given = {"data": {"swift-1": "toys"}, "tuned_on": TUNING_SEEDS}
    shown = paper.conclude({"swift-1": [1.5, 2.5, 3.5]}, parameters, **given)
    assert finding in shown.to_html()
    ledger = claims.read(tmp_path / "claims.json")
    assert (ledger.tuned_on, ledger.claims[0].measured_on) == ((1000, 1001, 1002), "toys")
    assert finding not in (tmp_path / "claims.json").read_text()  # so that it can be mended without a run


def test_a_comparison_that_differs_says_why():
    Comparison("Figure 1", "a.png", "same")
    with pytest.raises(
        ValueError, match="because: got '', allowed is the reason where the verdict is 'differs'"
    ):
        Comparison("Figure 1", "a.png", "differs")
    with pytest.raises(
        ValueError, match="verdict: got 'partly', allowed is one of 'same', 'differs', 'not made'"
    ):
        Comparison("Figure 1", "a.png", "partly", "so")
    with pytest.raises(ValueError, match="claim with a finding: got 'E2', allowed is one of 'E1'"):
        declare("p", {"E1": {}}, findings={"E2": "So."})


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["list"], 0, next(iter(PAPERS))),
        (["--help"], 0, "other commands:"),
        (["nonsense"], 2, "paper: got 'nonsense'"),
        (["test", "--no-such-option"], 4, "unrecognized arguments"),
        (["lab", "--version"], 0, "4."),
    ],
)
def test_exit_codes_of_the_script(arguments, code, text):
    """Here all dependencies are installed, so that the script goes on in this interpreter."""
    process = subprocess.run(
        [sys.executable, str(ROOT / "paper_repro.py"), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
    )
    assert process.returncode == code, process.stderr
    assert text in process.stdout + process.stderr
    assert "Traceback" not in process.stderr


def test_what_lab_and_test_become(monkeypatch):
    became = []
    monkeypatch.setattr(command.os, "execv", lambda program, words: became.append(words[1:]))
    monkeypatch.setattr(command.os, "chdir", lambda folder: None)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "")
    command.main(["test", "-k", "ssp"], root=ROOT)
    command.main(["test", "-n0"], root=ROOT)
    command.main(["lab", "--no-browser", "--port=9999"], root=ROOT)
    processes = str(os.cpu_count() + 1)
    assert became[0] == ["-m", "pytest", "-n", processes, "--max-worker-restart=0", "-k", "ssp"]
    assert became[1] == ["-m", "pytest", "-n0"]
    assert "--ServerApp.ip=127.0.0.1" in became[2]
    assert f"--LabApp.default_url=/lab/tree/{command.TOUR}" in became[2]
    assert (ROOT / "notebooks" / command.TOUR).is_file()
    assert became[2][-2:] == ["--no-browser", "--port=9999"]
    assert became[2][:2] == ["-m", "dmlcore.reproduce.lab"]
    assert not any("token" in word for word in became[2])  # which other users could read


def test_lab_has_a_token_above_all_configuration_files(monkeypatch, capsys):
    given = []
    monkeypatch.setattr("jupyterlab.labapp.main", given.extend)
    lab.main(["--no-browser"])
    token = given[1].removeprefix("--IdentityProvider.token=")
    assert given[0] == "--no-browser"
    assert len(token) == 48
    assert token in capsys.readouterr().err


class TestRecommend:
    @pytest.fixture
    def tasks(self, tmp_path):
        path = tmp_path / "tasks.csv"
        rows = [
            f"{worker},8,{seconds + 0.001 * (task % 5)}"
            for worker, seconds in enumerate((0.01, 0.03))
            for task in range(30)
        ]
        path.write_text("\n".join(["worker,samples,seconds", *rows]))
        return path

    def test_table_reason_and_page(self, tasks, capsys):
        line = f"recommend {tasks} --target loss=30 --methods BSP,ASP --budget 3 --seeds 2"
        line += " --over workers=2,3 --over c=0,1"
        problem = ["--problem", "linear_regression(num_samples=64, num_features=3)"]
        assert command.main([*line.split(), *problem], root=tasks.parent) == 0
        shown = capsys.readouterr().out
        assert "on 2 workers, 8 samples a task: the slowest task" in " ".join(shown.split())
        assert "links and server are modelled as taking no time" in shown
        page = (tasks.parent / "runs" / "recommend.html").read_text(encoding="utf-8")
        assert "<th>BSP</th>" in page
        assert "What if?" in page
        assert page.count("data:image") == 2
        assert "<script" not in page
        assert re.findall(r'(?:src|href)="(?!data:)', page) == []

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("--target loss=30", "the following arguments are required: TRACE"),
            ("TASKS", "the following arguments are required: --target"),
            ("TASKS --target loss", "--target: got 'loss', allowed is METRIC=VALUE"),
            ("TASKS --target loss=low", "--target: got 'loss=low', allowed is METRIC=VALUE"),
            ("TASKS --target lss=3", "target: got 'lss', allowed is a metric of the problem"),
            ("TASKS --target loss=3 --budget -1", "--budget: got '-1', allowed is a number > 0"),
            ("TASKS --target loss=3 --seeds 0", "--seeds: got '0', allowed is a whole number >= 1"),
            ("TASKS --target loss=3 --methods XSP", "methods: got 'XSP', allowed is one of"),
            ("TASKS --target loss=3 --problem mine", "--problem: got 'mine', allowed is"),
            ("TASKS --target loss=3 --output TASKS/page.html", "--output: got '"),
            ("missing.csv --target loss=3", "cluster: got 'missing.csv', allowed is a file that exists"),
            ("TASKS --target loss=3 --over speed=1", "--over: got 'speed', allowed is one of 'workers'"),
            ("TASKS --target loss=3 --over c=low", "--over: got 'c=low', allowed is AXIS=VALUES"),
            ("TASKS --target loss=3 --bogus 1", "unrecognized arguments: --bogus 1"),
        ],
    )
    def test_bad_usage(self, tasks, capsys, line, message):
        arguments = ["recommend", *line.replace("TASKS", str(tasks)).split()]
        assert command.main(arguments, root=tasks.parent) == 2
        shown = capsys.readouterr()
        assert shown.err.startswith(f"paper_repro.py: {message}")
        assert shown.err.count("\n") == 1
        assert not (tasks.parent / "runs").exists()

    def test_a_short_record_says_how_long_it_should_be(self, tasks, capsys):
        tasks.write_text("\n".join(tasks.read_text().splitlines()[:10]))
        assert command.main(["recommend", str(tasks), "--target", "loss=3"], root=tasks.parent) == 2
        assert re.search(r"worker 0 finished 9 tasks.*at least 20 .*record about", capsys.readouterr().err)
