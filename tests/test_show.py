"""Notebook displays: escaped, well-formed, small, for light and dark, the same bytes each time."""

import base64
import inspect
import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import optax
import pytest
from PIL import Image
from scipy import stats

import dmlcore as dml
from dmlcore.engines.spec import RunSpec
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace import metrics
from dmlcore.view import show

METHOD = dml.Method(dml.ssp(3), load="equal", local=dml.local_steps(4, optax.sgd(0.1)), compensation=0.0)
SIZES = {"updates": 100, "parameter_bytes": 800, "tensor_shapes": [150, 50], "batch_size": 8}
EVIL = "<script>alert('&')</script>"
CLUSTER = dml.Cluster.from_speeds([500, 1000, 1000, 2000], jitter=stats.expon(), latency=0.01)
BUSY = CLUSTER.with_server(bandwidth=1e9, seconds_per_push=0.02, shards=2)


class Tags(HTMLParser):
    """Which tags a browser would meet, and whether each that opens closes."""

    def __init__(self, page):
        super().__init__()
        self.open, self.met = [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.met.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def shown(item):
    page = item._repr_html_()
    ET.fromstring(page)  # well-formed XML too
    return page, Tags(page).met


@pytest.fixture(scope="module")
def items():
    problem = dml.problems.linear_regression()
    run = dml.train(problem, CLUSTER, dml.k_sync(2), optax.sgd(2e-4), updates=60)
    many = dml.Cluster.uniform(300, jitter=stats.expon()).with_stragglers(3, workers=list(range(200)))
    crash = [dml.faults.Crash(worker=w, time=0.02, seconds=0.01) for w in range(200)]
    long = dml.simulate(dml.asp(), many.with_faults(*crash), updates=20_000)
    found = {"problem": problem, "run": run, "trace": run.trace, "long": long}
    found |= {"cluster": CLUSTER, "many": many.with_faults(*crash), "busy": BUSY}
    found |= {"hardware": dml.presets.hardware(workers=4), "regime": BUSY.regime(problem)}
    found |= {"method": METHOD, "spec": RunSpec.checked(METHOD, BUSY, **SIZES)}
    return found | {name: make() for name, make in ALL_POLICIES.items()}


def pictures(met):
    """The pictures of a page, as text for readers who cannot see them and as arrays of pixels."""
    found = [attributes for tag, attributes in met if tag == "img"]
    contents = [base64.b64decode(each["src"].removeprefix("data:image/webp;base64,")) for each in found]
    return {
        each["alt"]: np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
        for each, content in zip(found, contents, strict=True)
    }


def test_small_closed_and_of_any_theme(items):
    """Text takes the theme's colour; pictures bring a white background for their black text."""
    for name, item in items.items():
        page, met = shown(item)
        assert len(page) < 30_000, name
        assert not re.search(r"https?://|color|background|url\(", page), name
        for label, pixels in pictures(met).items():
            assert label in page.replace(f'alt="{label}"', ""), "also in writing"
            assert (pixels[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()
            assert pixels.min() < 60


def test_the_same_bytes_each_time(items):
    assert items["run"]._repr_html_() == items["run"]._repr_html_()


def test_text_is_escaped():
    policy = dml.asp()._replace(name=EVIL)
    trace = dml.simulate(policy, CLUSTER, updates=5)
    trace.metadata["problem"] = EVIL
    cluster = dml.Cluster.uniform(2, jitter=stats.gamma(4, scale=0.25))
    object.__setattr__(cluster, "jitter", type("Law", (), {"__name__": EVIL, "ppf": None})())
    for item in (policy, trace, cluster):
        page, met = shown(item)
        assert "&lt;script&gt;" in page
        assert "script" not in {tag for tag, _ in met}


def test_a_run_shows_its_last_metrics_and_its_trace(items):
    page, met = shown(items["run"])
    last = items["run"].history.iloc[-1]
    assert f">{last['loss']:.4g}<" in page
    assert ">k_sync(k=2)<" in page
    loss, timeline = pictures(met)
    first = items["run"].history["loss"].iloc[0]
    assert loss == f"Training loss over time: {first:.3g} at the start, {last['loss']:.3g} at the end"
    assert timeline.startswith("Timeline of the workers: ")
    mean = metrics.staleness(items["run"].trace).mean()
    assert f">{mean:.3g} updates<" in page


@pytest.mark.parametrize("name", ["trace", "long"])
def test_it_says_how_much_of_a_run_its_timeline_is(items, name):
    trace = items[name]
    (label,) = pictures(shown(trace)[1])
    said = re.fullmatch(r"Timeline of the workers: the first (.*) s of (.*) s", label)
    assert 0 < float(said[1]) < float(said[2]) == pytest.approx(trace.end_time, rel=1e-3)


def test_an_empty_run_and_one_that_diverged():
    assert "took no time" in dml.simulate(dml.bsp(), CLUSTER, updates=2).until(0)._repr_html_()
    problem = dml.problems.linear_regression()
    with pytest.warns(UserWarning, match="training diverged"):
        run = dml.train(problem, CLUSTER, dml.bsp(), optax.sgd(100.0), updates=30)
    assert "at the start, nan at the end" in run._repr_html_()


def test_a_cluster_shows_what_it_was_made_of():
    cluster = CLUSTER.with_stragglers(4, fraction=0.1).with_speed_change(2, clock=30, workers=[0])
    page, met = shown(cluster)
    for fact in ("500 to 2000 samples/s", "expon()", "4x slow on 10%", "2x as long from task 30"):
        assert fact in page
    assert [*pictures(met)] == ["Samples/s of each worker, 500 to 2000"]


def test_a_cluster_shows_its_server():
    facts = facts_of(BUSY)
    assert facts["server"] == "1e+09 B/s, 0.02 s a push, 2 shards"
    assert facts_of(BUSY)["server load"] == "depends on the size of the parameters: regime(problem) tells it"
    alone = dml.Cluster.uniform(4).with_server(seconds_per_push=0.01)
    assert facts_of(alone)["server load"] == "rho = 0.95, tasks of 32 samples"  # 4 * 10 / (32 + 10)
    assert facts_of(CLUSTER)["server"] == "takes no time"
    assert "server load" not in facts_of(CLUSTER)


def facts_of(item):
    """The table of a card: its facts by name."""
    rows = ET.fromstring(item._repr_html_()).iter("tr")
    return {row.find("th").text: row.find("td").text for row in rows}


@pytest.mark.parametrize("bits", [32, 8])
def test_a_run_shows_what_it_was_short_of(bits):
    """As `Cluster.regime` has it, of its own batches; where messages are rounded, by what they weigh."""
    problem = dml.problems.linear_regression()
    cluster = CLUSTER.with_stragglers(3, workers=[1]).with_server(bandwidth=1e5, seconds_per_push=0.02)
    transport = dml.transport.coded(push=dml.codecs.affine(bits=bits)) if bits < 32 else None
    options = {"updates": 20, "batch_size": 50, "transport": transport}
    run = dml.train(problem, cluster, dml.asp(), optax.sgd(1e-4), **options)
    ratio, load = cluster.regime(problem, 50)
    facts = facts_of(run)
    shown = [float(facts[name].split(",")[0]) for name in ("communication ratio c", "server load rho")]
    if bits == 32:
        assert shown == [float(f"{ratio:.2g}"), float(f"{load:.2g}")]
    else:
        assert shown[0] < ratio
    last = run.history.iloc[-1]
    parts = [
        (part, last[f"{part.replace(' ', '_')}_utilisation"]) for part in ("processor", "link in", "link out")
    ]
    said = ", ".join(f"{part} busy {busy:.0%} of the time" for part, busy in parts)
    assert facts["server"] == f"{said}; {last['mean_queue']:.3g} messages wait on average"
    assert {*facts} == {*facts_of(run.trace)} | {"loss", "server"}
    free = facts_of(dml.simulate(dml.asp(), CLUSTER, updates=3))
    assert free["server load rho"] == "0, the server takes no time"


def test_a_trace_of_an_unknown_cluster_has_no_regime():
    trace = dml.simulate(dml.asp(), CLUSTER, updates=3)
    del trace.metadata["cluster"]
    assert "server load rho" not in facts_of(trace)


def test_hardware_shows_its_regime():
    hardware = dml.presets.hardware("vgg16", "25GbE", "p100", workers=8, shards=2)
    facts, regime = facts_of(hardware), hardware.regime
    assert facts["communication ratio c"].startswith(f"{regime.communication_ratio:.2g}, ")
    assert facts["server load rho"].startswith(f"{regime.server_load:.2g}, saturated")
    assert facts["parameters"] == "553.4 MB"
    assert facts["speed"] == "154 samples/s"
    assert "vgg16 on 8 p100, 25GbE, 2 servers on 25GbE" in hardware._repr_html_()


@pytest.mark.parametrize(
    ("link", "rho", "limit"),
    [(0.001, None, "computing"), (1.0, 0.5, "the workers' links"), (1.0, 3, "the server")],
)
def test_a_regime_says_where_the_bottleneck_is(link, rho, limit):
    cluster = dml.Cluster.uniform(8, latency=link)
    if rho is not None:
        cluster = dml.presets.busy_server(cluster, rho, 0)
    regime = cluster.regime(0)
    facts = facts_of(regime)
    assert [*facts] == ["communication ratio c", "server load rho", "bottleneck"]
    assert facts["bottleneck"].startswith(f"{limit}: ")
    assert facts["communication ratio c"].startswith(f"{regime.communication_ratio:.2g}: the seconds")
    served = f"{rho:.2g}: seconds of work" if rho else "0: the server takes no time."
    assert facts["server load rho"].startswith(served)


def test_a_policy_shows_its_docstring_and_its_bound(items, monkeypatch):
    assert "at most 3 clocks ahead" in items["ssp"]._repr_html_()
    assert "none on a worker" in items["asp"]._repr_html_()
    for name in ALL_POLICIES:
        assert ">in a line<" in items[name]._repr_html_(), name

    def mine():
        """Mine & yours."""

        def on_push(state, push):
            return state, dml.types.Decision()

        return dml.Policy("mine()", lambda workers: None, on_push)

    assert ">in a line<" not in mine()._repr_html_()  # a function in a function cannot be found
    monkeypatch.setitem(globals(), "mine", mine)
    assert "Mine &amp; yours." in mine()._repr_html_()


def test_a_policy_shows_each_of_its_knobs_with_its_meaning():
    for name, make in ALL_POLICIES.items():
        policy = make()
        maker = getattr(dml.policies, policy.name.partition("(")[0])
        facts, arguments = facts_of(policy), inspect.signature(maker).parameters
        assert {*arguments} <= {*facts}, name
        told = [text for argument in arguments if ": " in (text := facts[argument])]
        assert len(told) == len(arguments), f"{name}: an argument that its docstring does not explain"
    facts = facts_of(dml.ssp(3))
    assert facts["staleness"].startswith("3: ")
    assert facts["weight"].startswith("None: ")
    assert facts_of(dml.k_sync_schedule([(0.0, 1)]))["phases"].startswith("[(0.0, 1)]: ")  # by position


def test_a_policy_says_what_a_run_adds_and_a_method_what_it_brings():
    alone = facts_of(dml.ssp(3))
    names = ("load", "transport", "local steps")
    assert all(alone[name].startswith("that of the run; by default ") for name in names)
    facts = facts_of(METHOD)
    assert [facts[name] for name in ("load", "local steps", "compensation")] == [
        "equal",
        "local_steps(4)",
        "lambda = 0",
    ]
    assert facts["transport"] == alone["transport"]
    assert {*alone} <= {*facts}
    assert "load" not in facts_of(dml.adaptive_load(0.1, [8, 16]))  # sizes all tasks


def test_a_method_is_written_as_the_call_that_makes_it():
    assert repr(METHOD) == "Method(ssp(staleness=3), load='equal', compensation=0.0, local=local_steps(4))"
    assert repr(dml.Method(dml.bsp())) == "Method(bsp())"
    plain = dml.Method(dml.ssp(3), load="equal", compensation=0.0)
    assert repr(eval(repr(plain), {"Method": dml.Method, "ssp": dml.ssp})) == repr(plain)


def test_a_run_to_come_shows_what_will_be_run():
    spec = RunSpec.checked(METHOD, BUSY, **SIZES)
    assert repr(spec) == "RunSpec(ssp(staleness=3), 4 workers, updates=100, seed=0)"
    facts, trace = facts_of(spec), dml.simulate(METHOD, BUSY, **SIZES)
    assert (facts["ends after"], facts["task"]) == ("100 updates", "32 samples in 4 local steps")
    assert (facts["parameters"], facts["bytes of a task"]) == ("200 numbers", "800 pulled, 800 pushed")
    assert facts["cluster"] == str(BUSY)
    assert facts["staleness"].startswith("3: ")
    regime = ("communication ratio c", "server load rho")
    assert [facts[name] for name in regime] == [facts_of(trace)[name] for name in regime]


def test_other_objects_are_refused():
    with pytest.raises(
        ValueError, match=r"item: expected one of Run, Trace, Cluster, Policy, Problem.*, got 3"
    ):
        show.html(3)
