"""Settings in which the claims of `papers/ssp.py` come out the other way: none holds by construction."""

import math

import numpy as np
import optax
import pytest
from opposing import Opposition
from scipy import stats

import dmlcore as dml
from dmlcore.reproduce.papers import ssp as paper

EXPONENTIAL = dml.Cluster.uniform(4, jitter=stats.expon())
opposes = Opposition()


def lead(problem, cluster, optimizer, target, rival, staleness=3, **options):
    """Time of a rival to the target / time of SSP, on one seed."""
    runs = dml.compare(
        {"rival": rival, "SSP": dml.ssp(staleness)},
        problem,
        cluster,
        optimizer,
        seeds=[100],
        until={"loss": target},
        **options,
    )
    return dml.metrics.speedup(dml.metrics.time_to(runs, "loss", target), "rival")["SSP", 100]


def saturated(push, jitter=None):
    """16 workers and a server of four times the load that saturates it; pushes have this share of it."""
    free = dml.Cluster.uniform(16, jitter=jitter)
    service = dml.presets.busy_server(free, 4.0).server.seconds_per_push
    return free.with_server(seconds_per_push=push * service, seconds_per_pull=(1 - push) * service)


@opposes("S2-BSP", "S2-BSP-data", "S2-clock-BSP")
@pytest.mark.parametrize(("cluster", "faster"), [(EXPONENTIAL, True), (dml.Cluster.uniform(4), False)])
def test_ssp_leads_bsp_only_where_some_are_late(cluster, faster):
    """S2-BSP: equal workers wait for nobody under BSP either, and SSP's reads are older."""
    problem = dml.problems.digits_mlp()
    assert (lead(problem, cluster, optax.sgd(0.5), 0.5, dml.bsp(), seconds=12.0) > 1) == faster


@opposes("S2-ASP", "S2-ASP-data", "S2-clock-ASP")
@pytest.mark.parametrize(("push", "faster"), [(0.1, True), (None, False)], ids=["saturated", "free"])
def test_the_server_decides_between_ssp_and_asp(push, faster):
    """These were not reproduced on a free server."""
    jitter = stats.gamma(4, scale=0.25)
    cluster = saturated(push, jitter) if push else dml.Cluster.uniform(16, jitter=jitter)
    problem = dml.problems.matrix_factorization()
    found = lead(problem, cluster, optax.sgd(16.0), 0.2, dml.asp(weight=None), seconds=20.0)
    assert (found > 1) == faster


@opposes("S9-crossover", "S9-theory", "S9-dear", "S9-saturated-ASP")
@pytest.mark.parametrize(("push", "ahead"), [(0.1, True), (1.0, False)], ids=["cheap", "all"])
def test_ssp_overtakes_asp_only_where_reads_load_the_server(push, ahead):
    """Clocks of SSP(16) over those of ASP, by which the theory predicts a crossover at a load below 4."""
    cluster = saturated(push, stats.gamma(4, scale=0.25))
    ssp, asp = (
        dml.metrics.clocks_per_second(dml.simulate(policy, cluster, seconds=20.0))
        for policy in (dml.ssp(16), dml.asp(weight=None))
    )
    assert (ssp > 1.05 * asp) == ahead


@opposes("S3")
def test_a_persistent_straggler_leaves_nothing_to_gain():
    """S3: whatever s is, three of four workers are idle two thirds of the time in the long run."""
    cluster = dml.Cluster.uniform(4).with_stragglers(3, fraction=1, workers=[0])
    traces = [dml.simulate(dml.ssp(s), cluster, samples=32 * 4 * 2000) for s in (0, 1, 3)]
    shares = [dml.metrics.time_breakdown(trace)["compute_share"].mean() for trace in traces]
    assert np.diff(shares).max() < 0.001


@opposes("S6")
def test_transient_stragglers_leave_something_to_gain():
    cluster = dml.Cluster.uniform(8, 64.0, overhead=0.5, jitter=stats.expon())

    def makespan(s):
        tasks = dml.simulate(dml.ssp(s), cluster, samples=32 * 8 * (101 + s)).tasks
        return tasks.loc[tasks["clock"] == 99, "push_end"].max()

    assert makespan(0) / makespan(8) > 1.02


@opposes("S2-topics")
def test_workers_that_never_read_do_not_find_the_topics():
    """With a bound of a million every worker samples by its own documents alone."""
    problem = dml.problems.lda(num_documents=40)

    def cosine(policy):
        run = dml.train(problem, EXPONENTIAL, policy, optax.identity(), samples=40 * 50, batch_size=10)
        estimate = dml.problems.topics_of(run.params)
        return dml.problems.match_topics(np.asarray(estimate), dml.problems.bars().topics)[1]

    assert cosine(dml.ssp(10**6)) - cosine(dml.bsp()) < -0.05


def regret(number, step):
    """Regret of SSP(1) and the bound of theorem 1 after 256 to 2048 updates of four workers.

    Terms |x - c| with c uniform in [-1, 1], so that F = sqrt(2) and L = 1; `step` makes the t-th step of
    that of the theorem.
    """
    trace = dml.simulate(dml.ssp(1), EXPONENTIAL, samples=32 * (number + 4))
    points = np.random.default_rng(0).uniform(-1, 1, number)
    rates = step(dml.theory.regret_rates(math.sqrt(2), 1, 1, 4, number))
    walk = dml.metrics.walk(
        trace, lambda t, x: (abs(x[0] - points[t]), np.sign(x - points[t])), np.ones(1), rates
    )
    ends = np.array([number // 8, number // 4, number // 2, number])
    found = [walk.losses[:end].sum() - np.abs(points[:end] - np.median(points[:end])).sum() for end in ends]
    return ends, np.array(found), dml.theory.regret_bound(math.sqrt(2), 1, 1, 4, number)


@opposes("S5-growth", "S5-bound")
def test_regret_grows_like_the_number_of_updates_where_steps_do_not_fall():
    ends, found, _ = regret(16_384, lambda rates: np.full(len(rates), rates[0]))
    assert np.polyfit(np.log(ends), np.log(found), 1)[0] > 0.9
    _, found, bound = regret(16_384, lambda rates: np.full(len(rates), 10.0))
    assert found[-1] > bound


@opposes("S5-bound")
def test_asynchronous_reads_are_out_of_turn_by_more_than_lemma_1_allows():
    trace = dml.simulate(dml.asp(weight=None), EXPONENTIAL, updates=400)
    assert dml.metrics.out_of_turn(trace).sum(axis=1).max() > dml.theory.most_out_of_turn(1, 4)


@opposes("S7-staleness")
@pytest.mark.parametrize(("staleness", "fresher"), [(3, True), (0, False)])
def test_eager_reads_are_fresher_only_where_reads_may_be_stale(staleness, fresher):
    """S7-staleness."""

    def lag(policy):
        counts = dml.metrics.clock_staleness(dml.simulate(policy, EXPONENTIAL, updates=400))
        return -np.average(counts.index, weights=counts)

    assert (lag(dml.ssp(staleness)) - lag(dml.essp(staleness)) >= 0.001) == fresher


@opposes("S1")
def test_asynchronous_workers_break_the_window():
    """S1."""
    trace = dml.simulate(dml.asp(), EXPONENTIAL, seconds=4.0)
    assert len(dml.metrics.read_window_violations(trace, 3)) > 0
    assert dml.metrics.clock_gap(trace) > 3


@opposes("S8")
def test_the_lead_grows_with_the_workers_where_stragglers_are_rare():
    """Of four workers seldom one is slow, and of 64 always. SSP's clocks over those of BSP."""

    def faster(number):
        cluster = dml.Cluster.uniform(number).with_stragglers(10, fraction=0.01, mean_tasks=1)
        work = {"samples": 32 * number * 300}
        clocks = [dml.metrics.clocks_per_second(dml.simulate(dml.ssp(s), cluster, **work)) for s in (16, 0)]
        return clocks[0] / clocks[1]

    assert faster(64) > 1.5 * faster(4)


@opposes("S9-saturated-BSP")
def test_equal_workers_gain_nothing_over_bsp_on_a_server_that_only_pushes_load():
    problem = dml.problems.digits_mlp()
    found = lead(problem, saturated(1.0), optax.sgd(1.0), 0.3, dml.bsp(), staleness=16, seconds=20.0)
    assert found <= 1


def test_every_claim_says_what_would_show_the_opposite():
    opposes.check(paper)
