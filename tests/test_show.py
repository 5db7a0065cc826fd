"""How objects show themselves: escaped, well-formed, small, for light and dark, true to the trace."""

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import optax
import pytest
from scipy import stats

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace import metrics
from dmlcore.view import show
from dmlcore.view.show import drawings

EVIL = "<script>alert('&')</script>"
CLUSTER = dml.Cluster.from_speeds([500, 1000, 1000, 2000], jitter=stats.expon(), latency=0.01)
SVG = "{http://www.w3.org/2000/svg}"


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
    run = dml.train(problem, CLUSTER, dml.k_sync(2), optax.sgd(0.01), updates=60)
    many = dml.Cluster.uniform(300, jitter=stats.expon()).with_stragglers(3, workers=list(range(200)))
    crash = [dml.faults.Crash(worker=w, time=0.02, seconds=0.01) for w in range(200)]
    long = dml.simulate(dml.asp(), many.with_faults(*crash), updates=20_000)
    found = {"problem": problem, "run": run, "trace": run.trace, "long": long}
    found |= {"cluster": CLUSTER, "many": many.with_faults(*crash)}
    return found | {name: make() for name, make in ALL_POLICIES.items()}


def test_small_closed_and_of_any_theme(items):
    for name, item in items.items():
        page, met = shown(item)
        assert len(page) < 30_000, name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|background|url\(", page), name
        fills = {attributes[key] for _, attributes in met for key in ("fill", "stroke") if key in attributes}
        assert not {"#FFFFFF", "#ffffff", "white", "black", "#000000", "#DDDDDD"} & fills, name
        assert all(a.get("role") == "img" and a["aria-label"] for tag, a in met if tag == "svg"), name


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
    assert [tag for tag, _ in met].count("svg") == 2
    mean = metrics.staleness(items["run"].trace).mean()
    assert f">{mean:.3g} updates<" in page


@pytest.mark.parametrize("name", ["trace", "long"])
def test_a_timeline_shows_the_phases_of_its_window(items, name):
    """Bar by bar what `metrics.phases` says of the whole trace, though only a part is looked at."""
    trace = items[name]
    cut, end = drawings.window(trace)
    whole = metrics.phases(trace)
    workers = np.unique(np.linspace(0, trace.num_workers - 1, min(trace.num_workers, 16)).round())
    expected = whole[whole["worker"].isin(workers) & (whole["start"] < end)]
    assert 0 < end < trace.end_time
    assert len(cut) <= drawings.BARS
    key = ["worker", "start"]
    cut, expected = cut.sort_values(key), expected.sort_values(key)
    assert cut["kind"].tolist() == expected["kind"].tolist()
    np.testing.assert_array_equal(cut["start"], expected["start"])
    np.testing.assert_array_equal(cut["end"], expected["end"].clip(upper=end))
    assert f"the first {end:.3g} s of {trace.end_time:.4g} s" in trace._repr_html_()


def test_a_busy_window_is_cut_to_so_many_bars():
    """One worker makes a thousand times as many tasks as the others: twelve clocks are too many bars."""
    cluster = dml.Cluster.from_speeds([1e6, *[10] * 40], latency=1e-6)
    cut, end = drawings.window(dml.simulate(dml.asp(), cluster, updates=30_000))
    assert len(cut) == drawings.BARS
    assert cut["end"].max() <= end


def test_of_many_workers_some_are_drawn_and_it_says_so(items):
    page = items["long"]._repr_html_()
    assert "16 of 300 workers" in page
    assert "64 of 300 workers" in items["many"]._repr_html_()


def test_an_empty_run_and_one_that_diverged():
    assert "took no time" in dml.simulate(dml.bsp(), CLUSTER, updates=2).until(0)._repr_html_()
    assert "never finite" in drawings.curve([0, 1], [math.nan, math.inf], "loss").text
    line = drawings.curve([0, 1, 2, 3], [1, math.nan, 0.5, 0.2], "loss").find("path").get("d")
    assert line.count("M") == 2


def test_a_cluster_shows_what_it_was_made_of():
    cluster = CLUSTER.with_stragglers(4, fraction=0.1).with_speed_change(2, clock=30, workers=[0])
    page, met = shown(cluster)
    for fact in ("500 to 2000 samples/s", "expon()", "4x slow on 10%", "2x as long from task 30"):
        assert fact in page
    assert [tag for tag, _ in met].count("rect") == 4


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


def test_other_objects_are_refused():
    with pytest.raises(
        ValueError, match="item: got 3, allowed is one of Run, Trace, Cluster, Policy, Problem"
    ):
        show.html(3)
