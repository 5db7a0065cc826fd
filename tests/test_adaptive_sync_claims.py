"""Settings in which claims of `papers/adaptive_sync.py` come out the other way; its places and methods."""

import numpy as np
import optax
import pytest
from opposing import Opposition

import dmlcore as dml
from dmlcore.reproduce.papers import adaptive_sync as paper
from dmlcore.reproduce.papers.adaptive_sync import (
    ATLAS,
    COMMUNICATION,
    PLACES,
    TROUBLED,
    WITHOUT,
    Place,
)
from dmlcore.reproduce.papers.adaptive_sync_map import OURS, adaptive, cluster_of, single, spaces

DIGITS = dml.problems.digits_mlp()
EVEN, BUSY = Place(1, 0.0, "cheap"), Place(4, 0.0, "server load 4")
DECLARED = {claim.id: claim for claim in paper.PAPER.claims}
opposes = Opposition()


def inside(name, value):
    """Whether a sample lies in the range of a claim."""
    low, high = DECLARED[name].expected
    return value >= low and (high is None or value <= high)


def lead(place, policy, rate, rival, rival_rate):
    """Time of a rival to a loss of 0.5 / time of adaptive sync, on one seed."""
    methods = {
        "mine": dml.Method(policy, optimizer=optax.sgd(rate)),
        "rival": dml.Method(rival, optimizer=optax.sgd(rival_rate)),
    }
    options = {"samples": 20_000, "until": {"loss": 0.5}, "resolve": True}
    runs = dml.compare(methods, DIGITS, cluster_of(place, DIGITS), None, seeds=[100], **options)
    return dml.metrics.speedup(dml.metrics.time_to(runs, "loss", 0.5), "rival")["mine", 100]


@opposes("A1", "A1-faster", "A1-best", "A1-pulls", "A1-worst", "A1-data", "A1-data-faster")
def test_the_threshold_decides_where_the_server_is_busy():
    """A small one leads ASP by more than the paper says; with a large one BSP is the faster."""
    ahead = lead(BUSY, dml.adaptive_sync(2), 0.4, dml.asp(), 0.1)
    behind = lead(BUSY, dml.adaptive_sync(32), 0.1, dml.bsp(), 1.0)
    for name in ("A1", "A1-faster", "A1-best", "A1-pulls", "A1-worst", "A1-data", "A1-data-faster"):
        assert inside(name, ahead)
        assert not inside(name, behind)


@opposes("A2", "A2-better", "A2-data", "A2-data-better")
def test_one_learning_rate_decides_which_is_ahead():
    for rate, ahead in ((0.05, True), (1.0, False)):
        methods = {"mine": dml.adaptive_sync(32), "BSP": dml.bsp()}
        runs = dml.compare(
            methods, DIGITS, cluster_of(EVEN, DIGITS), optax.sgd(rate), seeds=[100], seconds=3.0
        )
        accuracy = 100 * runs.groupby("method")["accuracy"].last()
        gain = accuracy["mine"] - accuracy["BSP"]
        for name in ("A2", "A2-better", "A2-data", "A2-data-better"):
            assert inside(name, gain) == ahead


@opposes("A1-rate")
@pytest.mark.parametrize(
    ("place", "threshold", "rate", "helps"), [(BUSY, 2, 0.4, True), (EVEN, 64, 0.1, False)]
)
def test_groups_help_where_updates_cost_the_server_time(place, threshold, rate, helps):
    """Where no push is fast or lagging, adaptive sync is ASP."""
    policy = dml.adaptive_sync(threshold)
    tasks = dml.simulate(policy, cluster_of(place, DIGITS), samples=20_000).tasks
    weight = tasks.loc[tasks["update"] >= 0, "weight"].sum() / tasks["push_end"].notna().sum()
    assert (weight < 1) == helps
    assert inside("A1-rate", lead(place, policy, rate, dml.asp(weight=weight), rate)) == helps


def kinds(policy, place):
    """The state that each push has."""
    trace = dml.simulate(policy, cluster_of(place, DIGITS), samples=10_000)
    return [step.state.kind[step.push.worker] for step in dml.follow(policy, trace)]


@opposes("A1-acts")
@pytest.mark.parametrize(("threshold", "acts"), [(32, False), (2, True)])
def test_the_rules_act_where_the_threshold_is_small(threshold, acts):
    found = kinds(adaptive(0.5, threshold), EVEN)
    assert inside("A1-acts", np.mean([kind != "normal" for kind in found])) == acts


@opposes("A1-stragglers")
@pytest.mark.parametrize(("late", "acts"), [(2.0, False), (0.5, True)])
def test_stragglers_are_found_unless_they_must_be_twice_as_stale_as_copies_may_be(late, acts):
    found = kinds(adaptive(late, 2), TROUBLED[0])
    assert inside("A1-stragglers", found.count("lagging") / len(found)) == acts


@opposes("A1-rules")
@pytest.mark.parametrize(("threshold", "saves"), [(512, False), (2, True)])
def test_a_rule_saves_time_only_where_it_acts(threshold, saves):
    """Without stragglers all workers wait for the slowest; with a large threshold there are none anyway."""
    rate, without = 0.2, adaptive(0.5, threshold, **WITHOUT["no stragglers"])
    assert inside("A1-rules", lead(TROUBLED[0], adaptive(0.5, threshold), rate, without, rate)) == saves


@pytest.mark.parametrize("name", WITHOUT)
def test_each_rule_changes_what_is_applied(name):
    cluster = cluster_of(TROUBLED[-1], DIGITS)
    policies = adaptive(0.5, 2), adaptive(0.5, 2, **WITHOUT[name])
    one, two = (dml.simulate(policy, cluster, samples=10_000).tasks for policy in policies)
    assert one[["update", "weight"]].to_numpy().tolist() != two[["update", "weight"]].to_numpy().tolist()


def test_every_claim_says_what_would_show_the_opposite():
    opposes.check(paper)


@pytest.mark.parametrize("place", ATLAS, ids=str)
def test_places_have_the_regime_that_they_name(place):
    found, cost = cluster_of(place, DIGITS).regime(DIGITS), COMMUNICATION[place.communication]
    assert found == pytest.approx((cost.ratio, cost.server_load))


def test_places_are_on_the_map():
    assert {*TROUBLED} < {*PLACES} < {*ATLAS}
    assert len({str(place) for place in ATLAS}) == len(ATLAS)


@pytest.mark.parametrize("name", [OURS, *paper.RIVALS])
def test_every_value_of_a_knob_is_a_policy_of_its_own(name):
    many = spaces([name], 8, 100, 0.1, values=5)[name]
    alone = single(name, many)
    made = {
        each.make(**{knob: value for knob, (value,) in each.knobs.items()}).name for each in alone.values()
    }
    assert len(made) == len(alone) == (1 if name in ("BSP", "ASP") else 15 if name == OURS else 5)
    assert {each.rate for each in alone.values()} == {many.rate}


def test_a_study_tunes_the_threshold():
    """The first threshold, a small one, is not the best where pushes and updates cost the server nothing."""
    given = spaces([OURS], 8, 80, 0.15, values=2), DIGITS, cluster_of(TROUBLED[0], DIGITS), {"loss": 0.8}
    found = dml.study(*given, budget=24, seeds=[0])
    assert int(found.table["setting"][OURS].split(" = ")[-1]) >= 32
