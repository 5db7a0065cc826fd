"""The explorer, driven without a browser: pictures follow settings, wrong ones change nothing."""

import asyncio
import dataclasses
import gc
import re
import weakref
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from test_report import contrast

import dmlcore as dml
from dmlcore.training.loop import compilations
from dmlcore.view import plot
from dmlcore.view.explorer import Settings
from dmlcore.view.explorer import explorer as theme
from dmlcore.view.explorer.explorer import summary, svg
from dmlcore.view.explorer.settings import POLICIES, RANGES, most_load

START = Settings(learning_rate=0.3, workers=4, k=3, seconds=0.5)


@pytest.fixture(scope="module")
def shared():
    return dml.explore(dml.problems.digits_mlp(), **dataclasses.asdict(START))


@pytest.fixture
def explorer(shared):
    """One for all tests, each of which finds it at `START`."""
    shared.update(**dataclasses.asdict(START))
    return shared


def test_a_move_changes_run_and_picture(explorer):
    explorer.update(policy="SSP", staleness=1)
    before = svg(explorer.figure)
    assert svg(explorer.update(staleness=1)) == before  # no move
    figure = explorer.update(staleness=9)
    assert figure is explorer.figure
    assert svg(figure) != before
    assert explorer.run.trace.metadata["policy"] == "ssp(staleness=9)"
    assert figure.axes[0].get_title(loc="left") == "ssp(staleness=9)"


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("staleness", (2, 3, 5, 8, 13)),
        ("learning_rate", (0.1, 0.2)),
        ("jitter", (0.0, 1.0)),
        ("slow_tasks", (0.0, 0.5)),
        ("slowdown", (1.0, 9.0)),
        ("slowest", (0.1, 1.0)),
        ("communication_ratio", (0.0, 1.0)),
        ("server_load", (0.5, 1.5)),
        ("seed", (1, 2)),
    ],
)
def test_such_a_move_compiles_nothing(explorer, setting, values):
    START.run(explorer.problem)
    before = compilations()
    for value in values:
        START.changed({setting: value}).run(explorer.problem)
    assert compilations() == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stalness": 3}, "setting: expected one of 'workers', "),
        ({"staleness": -1}, "staleness: expected a whole number from 0 to 16, got -1"),
        ({"workers": 2.5}, "workers: expected a whole number from 1 to 32, got 2.5"),
        ({"slowest": 0}, "slowest: expected a number >= 0.1 and <= 1, got 0"),
        ({"learning_rate": float("nan")}, "learning_rate: expected a number"),
        ({"communication_ratio": -0.1}, "communication_ratio: expected a number >= 0 and <= 4, got -0.1"),
        ({"server_load": 5}, "server_load: expected a number >= 0 and <= 4, got 5"),
        (
            {"server_load": 3.7},
            "server_load: expected a number <= 3.6 (0.9 x the number of workers), got 3.7",
        ),
        ({"deadline": 0.1}, "deadline: expected a number >= 0.5 and <= 10, got 0.1"),
        ({"policy": "ssp"}, "policy: expected one of 'BSP', 'SSP'"),
        (
            {"policy": "K-sync", "k": 5},
            "k: expected a whole number from 1 to 4 (the number of workers), got 5",
        ),
    ],
)
def test_wrong_settings_are_refused_and_change_nothing(explorer, wrong, message):
    state = explorer.settings, explorer.run, explorer.figure
    with pytest.raises(ValueError, match="expected") as error:
        explorer.update(**wrong)
    assert str(error.value).startswith(message)
    assert (explorer.settings, explorer.run, explorer.figure) == state
    with pytest.raises(ValueError, match="expected"):
        dml.explore(**{"workers": 4, **wrong})


def test_updates_are_added_as_they_are():
    """Lasso's loss goes down: its tasks are no gradients, and no rate scales them."""
    loss = dml.explore(dml.problems.lasso(), seconds=1.0).run.history["loss"]
    assert loss.iloc[-1] < loss.iloc[0]


def test_a_problem_is_told_from_other_things():
    with pytest.raises(ValueError, match=r"problem: expected a Problem, such as .*, got 3"):
        dml.explore(3)


@pytest.mark.parametrize("name", POLICIES)
def test_settings_mean_what_they_say(name):
    settings = Settings(workers=5, slowest=0.25, policy=name, staleness=2, k=4, slow_tasks=0.2, slowdown=3)
    cluster = settings.cluster()
    assert cluster.samples_per_second == (250.0, 1000.0, 1000.0, 1000.0, 1000.0)
    assert cluster.jitter.std() == pytest.approx(0.25)
    assert [(each.slowdown, each.fraction) for each in cluster.stragglers] == [(3, 0.2)]
    own = POLICIES[name].goes_by
    policy = settings.method()
    assert plot.style.family(policy.name) == name
    for setting in ("staleness", "k", "deadline"):  # the slider of the policy matters to it, others do not
        other = settings.changed({setting: 1}).method()
        assert (other.name != policy.name) == (setting == own)


def test_rounds_with_a_deadline_last_as_long_as_set():
    """In tasks of 36 ms on free links; 7 of 8 equal workers without jitter are always in time."""
    settings = Settings(policy="deadline", deadline=1.2, jitter=0, slow_tasks=0, slowest=0.5)
    updates = dml.simulate(settings.method(), settings.cluster(), seconds=0.9).updates
    assert updates["time"].diff().iloc[1:].tolist() == pytest.approx([1.2 * 0.036] * (len(updates) - 1))
    assert (updates["num_tasks"] == 7).all()


@pytest.mark.parametrize("workers", [1, 4, 32])
@pytest.mark.parametrize("load", [0.1, 0.9, 4.0])
def test_the_regime_is_as_set(workers, load):
    """Also with slow episodes and a slow worker; c is that of a task at full speed."""
    settings = Settings(workers=workers, server_load=min(load, most_load(workers)), communication_ratio=2)
    assert settings.cluster().regime(0, 32).server_load == pytest.approx(settings.server_load, rel=1e-9)
    even = settings.changed({"slow_tasks": 0, "slowest": 1}).cluster().regime(0, 32)
    assert even.communication_ratio == pytest.approx(2, rel=1e-9)
    assert Settings().cluster().regime(0, 32).server_load == 0
    assert {*Settings().cluster().latency_seconds} == {0.002}


def test_a_server_that_is_full_is_busy_and_slows_asp():
    runs = [Settings(policy="ASP", server_load=load).run(dml.problems.digits_mlp()) for load in (0, 4)]
    free, full = (len(run.trace.updates) for run in runs)
    assert full < 0.5 * free
    assert full == pytest.approx(
        4.0 / runs[1].trace.metadata["cluster"]["server"]["seconds_per_push"], rel=0.05
    )
    said = [summary(run) for run in runs]
    assert re.search(r"the processor of the server is busy (99|100)% of the time", said[1])
    assert "server" not in said[0]


def test_a_picture_shows_the_run_and_the_one_before(explorer):
    explorer.update(policy="BSP")
    before = explorer.run.history
    lanes, curves = explorer.update(policy="ASP").axes
    now = explorer.run.history
    assert lanes.get_xlim() == pytest.approx((0, explorer.run.trace.end_time / 8))
    assert lanes.get_xlabel() == curves.get_xlabel() == "time (s)"
    line, grey = curves.lines
    assert line.get_color() == plot.METHOD_COLORS["ASP"]
    assert (line.get_xdata()[-1], line.get_ydata()[-1]) == (now["time"].iloc[-1], now["loss"].iloc[-1])
    assert list(grey.get_xdata()) == before["time"].tolist()
    assert [text.get_text() for text in curves.get_legend().get_texts()] == ["now", "before"]


def test_a_run_is_told_in_numbers():
    said = summary(Settings(policy="BSP", jitter=0, slow_tasks=0).run(dml.problems.digits_mlp()))
    begin, _, loss = said.rpartition(" ")
    assert begin == "58 updates in 4 s; workers compute 53% of the time; mean staleness 0 updates; loss"
    assert float(loss) > 0


def test_a_run_that_diverged_is_called_so():
    problem = dml.problems.linear_regression()  # whose steps must be far smaller
    curves = dml.explore(problem, seconds=0.5, workers=4).figure.axes[1]
    assert curves.get_legend().get_texts()[0].get_text() == "now (diverged)"


def test_no_figure_is_left_open_and_no_setting_of_matplotlib_changed(explorer):
    settings, figures = dict(mpl.rcParams), plt.get_fignums()
    for staleness in (4, 5):
        svg(explorer.update(policy="SSP", staleness=staleness))
    assert plt.get_fignums() == figures
    assert dict(mpl.rcParams) == settings


def test_sliders_and_explorer_follow_each_other(explorer):
    panel = explorer.panel
    image = panel.image.value
    panel.controls["staleness"].value = 7
    assert explorer.settings.staleness == 7
    assert panel.image.value != image
    assert panel.image.value == svg(explorer.figure)
    assert "updates in 0.5 s" in panel.note.value
    explorer.update(staleness=2, policy="K-sync")
    assert (panel.controls["staleness"].value, panel.controls["policy"].value) == (2, "K-sync")
    assert (panel.controls["staleness"].disabled, panel.controls["k"].disabled) == (True, False)
    panel.controls["workers"].value = 2  # takes k along
    assert (explorer.settings.workers, explorer.settings.k) == (2, 2)
    assert panel.controls["k"].max == 2
    explorer.update(communication_ratio=0.7)  # by hand: no value of the slider
    assert panel.controls["communication_ratio"].value == 0.7
    panel.controls["server_load"].value = 1.5
    assert explorer.settings.server_load == 1.5
    assert "the processor of the server is busy" in panel.note.value
    panel.controls["workers"].value = 1  # takes the load along
    assert (explorer.settings.workers, explorer.settings.server_load) == (1, 0.9)
    bundle = explorer._repr_mimebundle_(include=None, exclude=None)
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data


def test_all_that_a_picture_shows_is_seen_in_a_dark_notebook():
    """Text has a contrast of 4.5 to the dark background, marks have one of 3; waiting recedes."""
    cluster = dml.Cluster.from_speeds([1000, 500], latency=0.01).with_server(seconds_per_push=0.01)
    looks, exchanged = set(), {}
    for policy in (dml.bsp(), dml.k_sync(1)):  # the second cancels
        figure = Figure(facecolor="white")
        with mpl.rc_context(plot.STYLE | {"figure.constrained_layout.use": False}):
            plot.timeline(dml.simulate(policy, cluster, updates=10), ax=figure.subplots())
        plain, _, rules = svg(figure).decode().rpartition("<style>")
        assert rules.startswith("@media (prefers-color-scheme: dark)")
        looks |= {*re.findall(r"(fill|stroke): (#\w{6})", plain)}
        exchanged |= re.findall(r"\[style\*=\"(\w+: #\w{6})\"\] \{\w+: (#\w{6}) !important\}", rules)
    assert {("fill", "#ffffff"), ("fill", "#262626"), ("fill", "#dddddd"), ("stroke", "#000000")} < looks
    looks |= {("stroke", color) for color in plot.METHOD_COLORS.values()}
    for kind, color in looks - {("fill", "#ffffff"), ("stroke", "#ffffff")}:
        shown = exchanged.get(f"{kind}: {color}", color)
        least = {"#262626": 4.5, "#dddddd": 1.5}.get(color, 3)
        assert contrast(shown, theme.PAGE) >= least, (kind, color)


def test_the_picture_follows_the_theme_of_the_notebook(explorer):
    """JupyterLab says on the body whether its theme is light; the picture's element has our class."""
    style, *_, image = explorer.panel.box.children
    assert theme.CLASS in image._dom_classes
    dark = style.value.rpartition("{color-scheme: light}")[2]
    for where in ('body[data-jp-theme-light="false"]', "body.vscode-dark", 'body[data-theme="dark"]'):
        assert f"{where} .{theme.CLASS}" in dark
    assert dark.endswith("{color-scheme: dark}</style>")
    ET.fromstring(style.value)


def test_of_many_moves_the_latest_wins(explorer, monkeypatch):
    panel, answered = explorer.panel, []
    monkeypatch.setattr(explorer, "update", lambda **settings: answered.append(settings["staleness"]))

    async def drag():
        for staleness in (2, 3, 4, 5):
            panel.controls["staleness"].value = staleness
        assert not answered
        while panel._waiting is not None:
            await asyncio.sleep(0.01)

    asyncio.run(drag())
    assert answered == [5]


def test_an_error_is_shown_where_the_sliders_are(explorer, monkeypatch):
    panel = explorer.panel

    def fail(**settings):
        raise ValueError("k: expected less, got <b>")

    with monkeypatch.context() as patched:
        patched.setattr(explorer, "update", fail)
        panel.controls["slowdown"].value = 2.0
    assert panel.note.value == "k: expected less, got &lt;b&gt;"
    assert ET.fromstring(f"<p>{panel.note.value}</p>").text == "k: expected less, got <b>"


def test_every_slider_stays_in_the_range_of_its_setting(explorer):
    for name, control in explorer.panel.controls.items():
        if name == "policy":
            assert list(control.options) == list(POLICIES)
        elif name in ("learning_rate", "communication_ratio"):
            assert (control.options[0][1], control.options[-1][1]) == RANGES[name]
            assert getattr(explorer.settings, name) in [value for _, value in control.options]
        else:
            assert RANGES[name][0] <= control.min < control.max <= RANGES[name][1]


def test_widgets_are_imported_for_sliders_only():
    package = Path(dml.__file__).parent
    found = [
        path for path in package.rglob("*.py") if "import ipywidgets" in path.read_text(encoding="utf-8")
    ]
    assert found == [package / "view" / "explorer" / "panel.py"]


def test_sliders_let_go_of_what_was_there(explorer):
    """Moves may put off the collection of cycles, but what the user has made is freed when it is let go."""

    class Own:
        pass

    own = Own()
    own.itself = own
    gone = weakref.ref(own)
    panel = explorer.panel
    panel.controls["staleness"].value = 5
    assert gc.isenabled()
    del own
    gc.collect()
    assert gone() is None
