"""The command line: what it refuses, in one line and before anything is written, and the other commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import logs
import pytest
import tiny_papers

from dmlcore import files
from dmlcore.data import datasets
from dmlcore.experiments.study import judging, search
from dmlcore.experiments.study.goal import Goal
from dmlcore.reproduce import arithmetic, claims, command, lab
from dmlcore.reproduce import paper as declaring
from dmlcore.reproduce.paper import TUNING_SEEDS, Paper, TunedParameters, declare
from dmlcore.reproduce.papers import PAPERS
from dmlcore.reproduce.parsing import Parser
from dmlcore.trace.metrics import decide

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
        ("swfit", f"paper: expected one of {KEYS}, got 'swfit'; try swift"),
        ("swift -p stalness=3", f"-p: expected one of {NAMES}, got 'stalness'; try staleness"),
        ("swift -p output=here", "-p: expected one of scale, seeds, staleness, got 'output'"),
        ("swift -p staleness", "-p: expected NAME=VALUE, got 'staleness'"),
        ("swift -p staleness=3.5", "staleness (swift): expected a valid integer, got '3.5'"),
        ("swift -p staleness=-1", "staleness (swift): expected a number greater than or equal to 0"),
        ("--seeds many", "seeds (swift): expected a valid integer, got 'many'"),
        ("--scale huge", "scale (swift): expected 'quick' or 'full', got 'huge'"),
        ("swift --seeds " + "9" * 400, f"seeds (swift): expected a whole number <= 1048576, got '{'9' * 99}"),
        ("swift -p seeds=999999999", "seeds (swift): expected a whole number <= 1048576, got '999999999'"),
        ("--jobs 0", "--jobs: expected a whole number >= 1, got '0'"),
        ("--bogus", "unrecognized arguments: --bogus"),
        ("list swift", "list: expected no further arguments, got swift"),
        ("lab --ip=0.0.0.0", "lab: expected options that leave address and token as they are"),
        ("lab --IdentityProvider.token=", "lab: expected options that leave address"),
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
    given = Parser("reproduce", "paper_repro.py").parse_args(
        ["swift", "plain", "--seeds", "7", "-p", "staleness=8"]
    )
    jobs = command.plan(given, tiny_papers.PAPERS)
    assert [(job.key, job.parameters.seeds, job.parameters.staleness) for job in jobs] == [
        ("swift", 7, 8),
        ("plain", 7, 8),
    ]


def junk(homes, monkeypatch):
    for name in datasets.SOURCES["mnist"].sha256:
        (homes / "mnist" / name).write_bytes(b"junk")
    hint = "try deleting this damaged or different file and running again"
    return rf"paper_repro\.py: data of plain: .*ubyte\.gz: expected .*; {hint}"


def offline(homes, monkeypatch):
    source = datasets.SOURCES["mnist"]._replace(urls=("http://127.0.0.1:9/",))
    monkeypatch.setitem(datasets.SOURCES, "mnist", source)
    return r"paper_repro\.py: data of plain: mnist: cannot be downloaded"


@pytest.mark.parametrize("trouble", [junk, offline])
def test_data_are_here_and_whole_before_anything_runs(root, tmp_path_factory, monkeypatch, capsys, trouble):
    homes = tmp_path_factory.mktemp("homes")
    (homes / "mnist").mkdir()
    monkeypatch.setenv("DMLCORE_DATA", str(homes))
    monkeypatch.setattr(files, "cache", lambda: homes / "cache")
    message = trouble(homes, monkeypatch)
    papers = {"plain": tiny_papers.PAPERS["plain"].model_copy(update={"data": {"full": ("mnist",)}})}
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
    with pytest.raises(
        ValueError, match="scale of the data: expected one of 'quick', 'full', got 'fulll'; try 'full'"
    ):
        Paper(**{**dict(tiny_papers.PAPERS["plain"]), "data": {"fulll": ("mnist",)}})
    for paper in PAPERS.values():
        assert {name for names in paper.data.values() for name in names} <= set(datasets.SOURCES)


def judged(root):
    parameters = tiny_papers.Tiny(output=str(root / "figures/swift"))
    tiny_papers.PAPERS["swift"].conclude({"swift-1": [1.5] * 8}, parameters, data="toys", settings={"a": 1.5})
    return root / "figures/swift/claims.json"


def test_check(tmp_path, capsys):
    ledger = judged(tmp_path)
    assert command.main(["check"], root=tmp_path, papers=tiny_papers.PAPERS) == 0
    assert capsys.readouterr().out == "2 files checked, no disagreements\n"
    settings = ledger.with_name("settings.json")
    for changed in (settings.read_text().replace("1.5", "1.25"), "{}", "[]", "{"):
        settings.write_text(changed)
        assert command.main(["check"], root=tmp_path, papers=tiny_papers.PAPERS) == 1
        assert f"{settings}: not the settings that a run has written" in capsys.readouterr().err
    ledger.write_text(ledger.read_text().replace('"reproduced"', '"in part"'))
    assert command.main(["check"], root=tmp_path, papers=tiny_papers.PAPERS) == 1
    assert "swift-1: verdict is 'in part', but its settings give 'reproduced'" in capsys.readouterr().err
    ledger.write_text("{")
    assert command.main(["check"], root=tmp_path, papers=tiny_papers.PAPERS) == 1


def test_an_unknown_claim_is_refused(tmp_path):
    parameters = tiny_papers.Tiny(output=str(tmp_path))
    with pytest.raises(
        ValueError, match=re.escape("claim: expected one of 'swift-1', got 'swift-2'; try 'swift-1'")
    ):
        tiny_papers.PAPERS["swift"].conclude({"swift-2": [1.0]}, parameters)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": {"swift-2": "toys"}}, "claim: expected one of 'swift-1', got 'swift-2'; try 'swift-1'"),
        ({"data": {}}, "data of swift-1: expected the name of the data set of the measurement, got None"),
        ({}, "data of swift-1: expected the name of the data set of the measurement, got None"),
        (
            {"data": "toys", "tuned_on": [2, 1000]},
            "tuned_on: expected seeds that do not judge, unlike 0 to 7, got [2]",
        ),
    ],
)
def test_what_was_measured_on_what_is_told(tmp_path, given, message):
    parameters = tiny_papers.Tiny(output=str(tmp_path))
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny_papers.PAPERS["swift"].conclude({"swift-1": [1.0]}, parameters, **given)
    assert not [*tmp_path.iterdir()]


def test_the_last_cell_shows_statements_whole_and_keeps_the_tuning_seeds(tmp_path):
    finding, statement = "We measured so, " * 9, "The paper says so, " * 9
    claim = tiny_papers.CLAIM.model_copy(update={"finding": finding, "statement": statement})
    paper = tiny_papers.PAPERS["swift"].model_copy(update={"claims": (claim,)})
    parameters = tiny_papers.Tiny(output=str(tmp_path))
    given = {"data": {"swift-1": "toys"}, "tuned_on": TUNING_SEEDS}
    shown = paper.conclude({"swift-1": [1.5, 2.5, 3.5]}, parameters, **given)
    assert statement in shown.to_html()
    ledger = claims.read(tmp_path / "claims.json")
    assert (ledger.runs[0].tuned_on, ledger.claims[0].measured_on) == ((1000, 1001, 1002), "toys")
    assert finding not in (tmp_path / "claims.json").read_text()  # so that it can be mended without a run


def test_a_quick_run_takes_published_settings_and_outcomes(tmp_path, monkeypatch):
    """And none at full scale, if they cannot be read, or if it is asked to tune again."""
    monkeypatch.setattr(declaring, "FIGURES", tmp_path)
    paper, folder = tiny_papers.PAPERS["swift"], tmp_path / "swift"
    parameters = TunedParameters(output=str(folder), seeds=8)
    assert paper.settings(parameters) == {}
    paper.conclude({"swift-1": [1.5] * 8}, parameters, data="toys", settings={"a": {"best": 1}})
    assert paper.settings(parameters) == {"a": {"best": 1}}
    for other in ({"retune": True}, {"scale": "full"}):
        assert paper.settings(parameters.model_copy(update=other)) == {}
    few = parameters.model_copy(update={"seeds": 2, "output": str(tmp_path / "own")})
    assert "reproduced" in paper.conclude({"swift-1": [0.5] * 2}, few, data="toys").to_html()
    assert claims.read(tmp_path / "own/claims.json").claims[0].verdict == "undecided"
    for name in ("settings.json", "claims.json"):
        (folder / name).write_text("{")
    assert paper.settings(parameters) == {}
    assert "undecided" in paper.conclude({"swift-1": [0.5] * 2}, few, data="toys").to_html()


TITLE = 'title = "Example"\nreference = "Nobody 2026"\nnotebook = "e.ipynb"\n'
SHARED = '[shared]\nregime = "toys"\nsource = "ours"\ndata = "none"\n'
CLAIM = '[claims.E1]\nexpected = [1, inf]\nstatement = "It is\\n fast"\nmetric = "speed on $hills"\n'
PHRASES = "[phrases]\nhills = 'all hills'\n"


def declared(folder, texts):
    (folder / "example.toml").write_text(texts)
    return declare({"__file__": str(folder / "example.py"), "LARGE": (1, 2), "little": ()})


def test_the_texts_of_a_paper_stand_beside_its_module(tmp_path):
    paper = declared(tmp_path, TITLE + SHARED + PHRASES + CLAIM + "parts = 'LARGE'")
    assert (paper.key, paper.title, paper.findings, paper.summary) == ("example", "Example", {}, None)
    (claim,) = paper.claims
    assert (claim.paper, claim.statement, claim.metric) == ("example", "It is fast", "speed on all hills")
    assert (claim.regime, claim.source, claim.expected) == ("toys", "ours", (1, None))
    assert claim.parts == ("1", "2")


COMPARED = TITLE + SHARED + PHRASES + CLAIM + "[[comparisons]]\npaper = 'Figure 1'\nours = 'a.png'\n"


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (TITLE + PHRASES + CLAIM, "example.toml: claims.E1.source: Field required"),
        (
            TITLE + SHARED + PHRASES + CLAIM + "parts = 'LARG'",
            "name in example.toml: expected one of 'LARGE'",
        ),
        (TITLE + CLAIM, "example.toml: claims.E1.metric: Value error, text: expected $ only before"),
        (
            TITLE + SHARED + PHRASES + CLAIM + "sourse = 'ours'",
            "claims.E1.sourse: Extra inputs are not permitted",
        ),
        (
            TITLE + SHARED + "[claims.E1]\nexpected = [0, 0]\nstatement = 'It is fast'",
            "claims.E1.metric: Field required",
        ),
        (TITLE + "title", "example.toml: Expected '=' after a key"),
        (COMPARED + "verdict = 'differs'", "because: expected a reason (for the verdict 'differs'), got ''"),
        (
            COMPARED + "verdict = 'partly'\nbecause = 'so'",
            "verdict: Input should be 'same', 'differs' or 'not made'",
        ),
    ],
)
def test_texts_that_are_missing_or_unknown_are_refused(tmp_path, texts, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        declared(tmp_path, texts)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["list"], 0, next(iter(PAPERS))),
        (["--help"], 0, "other commands:"),
        (["nonsense"], 2, "paper: expected one of"),
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
    became, environments, before = [], [], dict(os.environ)

    def execve(program, words, environment):
        became.append(words[1:])
        environments.append(environment)

    monkeypatch.setattr(command.os, "execve", execve)
    monkeypatch.setattr(command.os, "chdir", lambda folder: None)
    command.main(["test", "-k", "ssp"], root=ROOT)
    command.main(["test", "-n0"], root=ROOT)
    command.main(["lab", "--no-browser", "--port=9999"], root=ROOT)
    processes = str(os.cpu_count() + 1)
    assert became[0] == ["-m", "pytest", "-n", processes, "--max-worker-restart=0", "-k", "ssp"]
    assert became[1] == ["-m", "pytest", "-n0"]
    assert "--ServerApp.ip=127.0.0.1" in became[2]
    assert f"--LabApp.default_url=/lab/tree/notebooks/{command.TOUR}" in became[2]
    assert (ROOT / "notebooks" / command.TOUR).is_file()
    assert became[2][-2:] == ["--no-browser", "--port=9999"]
    assert became[2][:2] == ["-m", "dmlcore.reproduce.lab"]
    assert not any("token" in word for word in became[2])  # which other users could read
    assert environments[:2] == [before] * 2
    assert environments[2].items() >= arithmetic.settings().items()
    assert environments[2]["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
    own = Path(environments[2]["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0])
    assert "fetchNews" in (own / "labconfig/default_setting_overrides.json").read_text(encoding="utf-8")
    assert dict(os.environ) == before  # of this process, in which further tests run


def called(monkeypatch, capsys, folder, line):
    """What the installed command does in a folder: its exit code and what it prints."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["dmlcore", *line.split()])
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    for name in ("NAME", "CALL"):
        monkeypatch.setattr(command, name, getattr(command, name))
    with pytest.raises(SystemExit) as ended:
        command.installed()
    return ended.value.code, "".join(capsys.readouterr())


def test_an_installed_package_has_a_command_and_types(monkeypatch, capsys, tmp_path):
    """In the repository it is `paper_repro.py`; elsewhere it does what needs no notebook."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"dmlcore": f"{command.__name__}:installed"}
    assert (ROOT / "dmlcore/py.typed").is_file()
    assert called(monkeypatch, capsys, ROOT / "docs", "check")[0] == 0
    monkeypatch.setattr(command, "__file__", str(tmp_path / "dmlcore/reproduce/command.py"))
    code, text = called(monkeypatch, capsys, tmp_path, "list")
    assert code == 0
    assert "adaptive_sync" in text
    code, text = called(monkeypatch, capsys, tmp_path, "recommend")
    assert code == 2
    assert text.startswith("dmlcore: ")
    for line in ("", "ssp", "check", "lab"):
        code, text = called(monkeypatch, capsys, tmp_path, line)
        assert code == 2
        assert "expected list or recommend" in text


def test_lab_has_a_token_above_all_configuration_files(monkeypatch, capsys):
    given = []
    monkeypatch.setattr("jupyterlab.labapp.main", given.extend)
    lab.main(["--no-browser"])
    token = given[1].removeprefix("--IdentityProvider.token=")
    assert given[0] == "--no-browser"
    assert len(token) == 48
    assert token in capsys.readouterr().err


class TestRecommend:
    @pytest.fixture(autouse=True)
    def few_trials(self, monkeypatch):
        """As on a slow machine: what a budget can afford is for test_recommend."""
        monkeypatch.setattr(search, "affordable", lambda *given: 3)

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
        line = f"recommend {tasks} --target loss=30 --methods BSP,ASP --budget 1 --seeds 1"
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

    # test_reading reads both; here it is the way from a record to the page
    @pytest.mark.parametrize("record", ["torch", pytest.param("hosts.csv", marks=pytest.mark.full)])
    def test_from_a_timeline_and_from_dates_and_hosts(self, record, tmp_path, capsys):
        """In one go, with the user's model and links."""
        logs.write(tmp_path)
        line = f"recommend {tmp_path / record} --target loss=30 --methods BSP,ASP --budget 1 --seeds 1"
        line += " --batch-size 8 --model-bytes 5.2GB --link 25Gb/s --server-link 100Gb/s --latency 50us"
        line += " --problem linear_regression(num_samples=64,num_features=3)"
        assert command.main(line.split(), root=tmp_path) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert ("`rank` is the number of the worker" if record == "torch" else "`host` names the") in shown
        assert "zero is the first" in shown
        assert "Links are as told: bandwidth 3.125e+09 bytes/s, server_bandwidth 1.25e+10 bytes/s" in shown
        assert "The fitted cluster predicts 1.0" in shown
        page = (tmp_path / "runs" / "recommend.html").read_text(encoding="utf-8")
        assert "zero is the first" in page

    def test_operations_and_columns_are_chosen(self, tmp_path, capsys):
        logs.write(tmp_path)
        line = (
            f"recommend {tmp_path / 'operations.parquet'} --target loss=30 --methods ASP --budget 1 --seeds 1"
        )
        line += " --events optype=forward,backward --columns worker=dp_rank --columns batch_size=8"
        line += " --problem linear_regression(num_samples=64,num_features=3)"
        assert command.main(line.split(), root=tmp_path) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "240 rows make 120 tasks" in shown
        assert "on 4 workers, 8 samples a task" in shown

    def test_methods_are_tuned_again_for_other_clusters(self, tasks, capsys):
        line = f"recommend {tasks} --target loss=30 --methods BSP --budget 1 --seeds 1"
        line += " --over workers=3 --over-budget 1 --problem linear_regression(num_samples=64,num_features=3)"
        assert command.main(line.split(), root=tasks.parent) == 0
        shown = capsys.readouterr().out
        assert "What if, with settings and learning rates tuned again for each cluster:" in shown
        assert '"never" is longer than' in shown

    # test_recommend is interrupted at further seeds
    @pytest.mark.parametrize("asked", ["judging", pytest.param("further", marks=pytest.mark.full)])
    def test_an_interrupt_shows_what_is_known_and_asks_nothing_more(self, tasks, capsys, monkeypatch, asked):
        original, first = Goal.runs, 0 if asked == "judging" else 8

        def runs(self, methods, given, *rest, **options):
            if any(first in each for each in given.values()):
                return None, True
            return original(self, methods, given, *rest, **options)

        monkeypatch.setattr(Goal, "runs", runs)
        monkeypatch.setattr(judging, "decide", lambda ratios: decide(ratios)._replace(outcome="undecided"))
        line = f"recommend {tasks} --target loss=30 --methods K-sync,ASP --budget 300 --over workers=2,3"
        problem = ["--problem", "linear_regression(num_samples=64, num_features=3)"]
        assert command.main([*line.split(), *problem], root=tasks.parent) == 130
        shown = capsys.readouterr().out
        assert "- Interrupted: " in shown
        assert "What if" not in shown
        page = (tasks.parent / "runs" / "recommend.html").read_text(encoding="utf-8")
        assert "Interrupted: " in page
        assert "What if?" not in page

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("--target loss=30", "the following arguments are required: RECORD"),
            ("TASKS", "the following arguments are required: --target"),
            ("TASKS --target loss", "--target: expected METRIC=VALUE, such as loss=0.1, got 'loss'"),
            ("TASKS --target loss=low", "--target: expected METRIC=VALUE, such as loss=0.1, got 'loss=low'"),
            ("TASKS --target lss=3", "--target: expected one of 'accuracy', 'loss'"),
            ("TASKS --target loss=3 --budget -1", "--budget: expected a number > 0, got '-1'"),
            ("TASKS --target loss=3 --seeds 0", "--seeds: expected a whole number >= 1, got '0'"),
            ("TASKS --target loss=3 --methods XSP", "--methods: expected one of '"),
            ("TASKS --target loss=3 --problem mine", "--problem: expected a call of one of "),
            (
                "TASKS --target loss=3 --output TASKS/page.html",
                "--output: expected a file in a folder that can be written to, got '",
            ),
            ("missing.csv --target loss=3", "RECORD: expected a file that exists, got 'missing.csv'"),
            (
                "TASKS --target loss=3 --over speed=1",
                "--over: expected one of 'workers', 'slowdown', 'c', 'rho', got 'speed'",
            ),
            (
                "TASKS --target loss=3 --over c=low",
                "--over: expected AXIS=VALUES, such as workers=8,16, got 'c=low'",
            ),
            (
                "TASKS --target loss=3 --over c=1 --over rho=1 --over workers=2",
                "--over: expected at most two axes, got ['c', 'rho', 'workers']",
            ),
            (
                "TASKS --target loss=3 --over-budget 9",
                "--over-budget: expected --over, whose clusters it is for",
            ),
            ("TASKS --target loss=3 --methods bsp", "--methods: expected one of 'BSP', "),
            ("TASKS --target loss=3 --link fast", "--link: expected a number > 0 in bytes/s, or one with a"),
            ("TASKS --target loss=3 --latency 3Gb", "--latency: expected a number > 0 in seconds, or one"),
            ("TASKS --target loss=3 --model-bytes big", "--model-bytes: expected a number > 0 in bytes"),
            ("TASKS --target loss=3 --columns host", "--columns: expected ROLE=COLUMN, such as worker=host"),
            ("TASKS --target loss=3 --columns worker=rank", "--columns, worker: expected one of 'worker',"),
            ("TASKS --target loss=3 --unit sec", "--unit: expected one of 'ns', "),
            ("TASKS --target loss=3 --events stage=0", "--events, column: expected one of 'worker',"),
            ("TASKS --target loss=3 --events a --events b=c", "--events: expected names alone, or COLUMN="),
            ("TASKS TASKS.xls --target loss=3", "RECORD: expected a DataFrame, or the path of a log"),
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
        told = r"at least 20 tasks of each worker.*worker 0 finished 9 tasks; try a record of about"
        assert re.search(told, capsys.readouterr().err)
