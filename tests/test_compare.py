"""Settings in which the claims of `papers/compare.py` come out the other way, and how its table is made."""

import types

import numpy as np
import optax
import pandas as pd
import pytest
from opposing import Opposition, rule
from scipy import stats

import dmlcore as dml
from dmlcore.experiments.study import judging
from dmlcore.reproduce.papers import compare as paper
from dmlcore.reproduce.papers import compare_table as tables
from dmlcore.reproduce.papers.compare_table import regimes

DECLARED = {claim.id: claim for claim in paper.PAPER.claims}
DIGITS = dml.problems.digits_mlp()
FACTORS = dml.problems.matrix_factorization(num_users=50, num_items=40)
CLUSTERS = regimes(8, DIGITS)
_, _, EPISODES, LINKS, SERVER = paper.REGIMES
CALM = dml.Cluster.uniform(8, latency=0.002)  # without jitter: no worker waits
BSP = dml.Method(dml.bsp(), optimizer=optax.sgd(0.8))
ASP = dml.Method(dml.asp(), optimizer=optax.sgd(0.1))
opposes = Opposition()


def ratios(problem, cluster, front, rival, target=0.3, seconds=15.0, every=8):
    """Time of a rival to the target / time of the method in front, on two seeds; 0 where only the rival
    reaches it."""
    runs = dml.compare(
        {"rival": rival, "front": front},
        problem,
        cluster,
        None,
        seeds=[100, 101],
        seconds=seconds,
        until={"loss": target},
        eval_every=every,
        resolve=True,
    )
    return dml.metrics.speedup(dml.metrics.time_to(runs, "loss", target), "rival")["front"]


def verdict(claim, values):
    return rule([*values], DECLARED[claim].expected)


@opposes("W1", "W2")
@pytest.mark.parametrize(("cluster", "faster"), [(CLUSTERS[EPISODES], True), (CALM, False)])
def test_an_asynchronous_method_leads_only_where_workers_wait(cluster, faster):
    found = ratios(DIGITS, cluster, ASP, BSP)
    assert verdict("W2", found) == ("holds" if faster else "fails")
    assert verdict("W1", found) == ("fails" if faster else "holds")


@opposes("W3")
@pytest.mark.parametrize(("cluster", "faster"), [(CLUSTERS[SERVER], True), (CALM, False)])
def test_local_steps_lead_only_where_messages_cost_something(cluster, faster):
    local = dml.local_steps(8, optax.sgd(0.4))
    front = dml.Method(dml.bsp(), local=local, optimizer=optax.sgd(2.0))
    assert verdict("W3", ratios(DIGITS, cluster, front, BSP)) == ("holds" if faster else "fails")


@opposes("W4")
@pytest.mark.parametrize(("share", "faster"), [(0.1, True), (1.0, False)], ids=["cheap", "all"])
def test_ssp_leads_on_a_saturated_server_only_where_pushes_are_cheap(share, faster):
    """`share` of the server's time is for pushes, which SSP cannot save."""
    jittery = dml.Cluster.uniform(16, jitter=stats.gamma(4, scale=0.25))
    seconds = dml.presets.busy_server(jittery, 4.0).server.seconds_per_push
    cluster = jittery.with_server(seconds_per_push=share * seconds, seconds_per_pull=(1 - share) * seconds)
    ssp, asp = (
        dml.Method(policy, optimizer=optax.sgd(16.0)) for policy in (dml.ssp(3), dml.asp(weight=None))
    )
    problem = dml.problems.matrix_factorization()
    found = ratios(problem, cluster, ssp, asp, target=0.2, seconds=30.0, every=40)
    assert verdict("W4", found) == ("holds" if faster else "fails")


@opposes("W5")
@pytest.mark.parametrize(
    "faster", [pytest.param(True, marks=pytest.mark.full), False], ids=["by samples", "all alike"]
)
def test_adaptive_load_leads_only_where_fewer_samples_take_less_time(faster):
    """Else a task takes 32 ms whatever its samples are."""
    speed, overhead = (1000.0, 0.0) if faster else (1e6, 0.032)
    cluster = dml.Cluster.uniform(8, speed, overhead=overhead, jitter=stats.gamma(2, scale=1 / 2))
    front = dml.Method(dml.adaptive_load(0.4, [8, 32]), optimizer=optax.sgd(0.4))
    found = ratios(DIGITS, cluster, front, dml.Method(dml.k_sync(4), optimizer=optax.sgd(0.8)))
    assert verdict("W5", found) == ("holds" if faster else "fails")


@opposes("W6")
def test_what_suits_digits_does_not_carry_over_always():
    """To matrix factorization with slow links."""
    cluster = regimes(8, FACTORS)[LINKS]
    bsp = dml.Method(dml.bsp(), optimizer=optax.sgd(8.0))
    coded = dml.transport.coded(push=dml.codecs.affine(8))
    options = {"target": 0.05, "seconds": 15.0}
    rounded = dml.Method(dml.bsp(), transport=coded, optimizer=optax.sgd(8.0))
    load = dml.Method(dml.adaptive_load(1.0, [8, 32]), optimizer=optax.sgd(1.0))
    assert verdict("W6", ratios(FACTORS, cluster, rounded, bsp, **options)) == "holds"
    assert verdict("W6", ratios(FACTORS, cluster, load, bsp, **options)) == "fails"


def test_every_claim_says_what_would_show_the_opposite():
    opposes.check(paper)


def test_clusters_differ_in_one_number():
    numbers = {name: cluster.regime(DIGITS) for name, cluster in CLUSTERS.items()}
    assert tuple(CLUSTERS) == paper.REGIMES
    assert numbers[LINKS].communication_ratio == pytest.approx(4)
    assert numbers[SERVER].server_load == pytest.approx(4)
    for name in paper.REGIMES:
        assert (numbers[name].communication_ratio > 1) == (name == LINKS)
        assert (numbers[name].server_load > 0) == (name == SERVER)


def answer(seconds, lasted=9.0):
    """What a study has found, with these times by method; runs that reach no target end after `lasted`."""
    frame = pd.DataFrame(seconds).T
    ran = frame.replace(np.inf, lasted).rename_axis("method").rename_axis("seed", axis=1).stack()
    told = pd.DataFrame({"setting": "", "learning_rate": 0.1}, index=frame.index)
    return types.SimpleNamespace(seconds=frame, told=told, runs=ran.rename("time").reset_index())


def outcomes(seconds):
    """The outcome of each method, by name."""
    return {name: found.outcome for name, found in judging.outcomes(seconds).items()}


def test_methods_that_the_rule_does_not_tell_apart_are_at_the_front():
    seconds = answer({"A": [1.0, 1.4] * 4, "B": [1.3] * 8, "C": [2.0] * 8, "D": [np.inf] * 8}).seconds
    found = {"A": "best", "B": "undecided", "C": "slower", "D": "not reached"}
    assert outcomes(seconds) == found
    assert {*outcomes(seconds[[0, 1]]).values()} == {"best", "undecided", "not reached"}, "too few seeds"
    assert {*outcomes(seconds.loc[["D"]]).values()} == {"not reached"}


def test_rows_are_ratios_to_bsp_on_the_same_seed():
    one = answer({"BSP": [1.0, 4.0, 2.0] * 3, "ASP": [0.5, 1.0, 4.0] * 3, "H-PS": [np.inf] * 9})
    other = answer({"Adam": [np.inf, 1.0, 1.0] * 3})
    groups = {"ASP": "none", "BSP": "all", "H-PS": "all", "Adam": tables.OTHER}
    found = tables.rows([one, other], groups)
    assert [*found.index] == [*groups]
    assert found[tables.RATIO].to_dict() == {"BSP": 1.0, "ASP": 0.5, "H-PS": 4.5, "Adam": 0.5}
    assert found["reached"].to_dict() == {"BSP": 9, "ASP": 9, "H-PS": 0, "Adam": 6}
    assert found["outcome"].to_dict() == {
        "ASP": "best",
        "BSP": "undecided",
        "H-PS": "not reached",
        "Adam": tables.ALONE,
    }
    assert tables.relative(found.loc["H-PS"]) == ">4.50"


def test_conclusions_name_what_is_not_told_apart_and_what_was_not_reached():
    seconds = {"BSP": [2.0, 2.2] * 4, "ASP": [1.0, 1.2] * 4, "BSP, AdamW": [0.5, 0.6] * 4}
    about = {"straggling": 1.4, "c": 0.1, "rho": 0.0}
    groups = dict(zip(seconds, ["all", "none", tables.OTHER], strict=True))
    made = tables.rows([answer(seconds)], groups).rename_axis("method").reset_index()
    one = made.assign(problem="first", regime="even", **about)
    other = one.assign(problem="second", seconds=[1.0, np.inf, 1.0])
    told = tables.conclusions(pd.concat([one, other]))
    assert told[0].endswith("ASP is faster than all others, in 0.52 of BSP's time.")
    assert "ASP is the safest choice, if it is tuned on each cluster: on none" in told[2]
    assert "Never slower than BSP, on any cluster or problem: ASP." in tables.conclusions(one)
    near = one.assign(outcome=["undecided", "best", tables.ALONE])
    assert "ASP is the fastest in the median, and BSP is not told apart from it" in tables.fastest(near)
    slow = one.assign(outcome=["best", "slower", tables.ALONE], **{tables.RATIO: [1.0, 1.1, 0.2]})
    assert not [each for each in tables.conclusions(slow) if each.startswith("Never slower")]
    two = pd.concat([one, one.assign(regime="uneven")])
    assert tables.headline(two) == "ASP is the best on all 2 clusters (first)"
    differs = tables.headline(pd.concat([one, slow.assign(regime="uneven")]))
    assert differs.endswith("each of 2 methods\nis the best on one or more of the 2 clusters (first)")
    never = one.assign(outcome=["best", "not reached", tables.ALONE], seconds=[1.0, np.inf, np.inf])
    assert " inf" not in " ".join(tables.conclusions(never)).replace("infinity", "")
    assert tables.fastest(one.assign(outcome="not reached")).endswith("no method reaches the target.")
