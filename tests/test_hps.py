"""What 04_hps.ipynb measures, and for each claim a setting in which it comes out the other way."""

import functools
import itertools

import numpy as np
import optax
import pytest
from opposing import Opposition, rule
from scipy import stats

import dmlcore as dml
from dmlcore.reproduce.papers import hps as paper
from dmlcore.reproduce.papers import hps_measures as measures

LAW = stats.gamma(64, scale=1 / 64)
SPEEDS = [1400, 1200, 1000, 600]
EVEN = dml.Cluster.uniform(4)
PROBLEM = dml.problems.digits_mlp()
DECLARED = {claim.id: claim for claim in paper.PAPER.claims}
SWEPT = {
    "BSP": (dml.Method(dml.bsp()), (0.4, 0.8, 1.6)),
    "SSP": (dml.Method(dml.ssp(2)), (0.4, 0.8, 1.6)),
    "ASP": (dml.Method(dml.asp()), (0.1, 0.2, 0.4)),
}
opposes = Opposition()
OWN_STEPS = pytest.mark.parametrize("own_steps", [pytest.param(False, marks=pytest.mark.full), True])


def holds(name, sample):
    """Whether a claim would hold where all seeds give this number."""
    return rule([sample], DECLARED[name].expected) == "holds"


def composed(scheduling=True, own_steps=None, bits=32):
    transport = dml.transport.plain()
    if bits < 32:
        nearest = dml.codecs.affine(bits, stochastic=False)
        transport = dml.transport.coded(push=dml.codecs.affine(bits), pull=dml.codecs.difference(nearest))
    if own_steps is not None:
        transport = dml.transport.pipelined(transport, own_steps=own_steps)
    load = dml.loads.equal_finish_time(caps=64) if scheduling else dml.loads.equal()
    return dml.Method(dml.bsp(), load=load, transport=transport)


def links(seconds, speeds=SPEEDS, jitter=LAW):
    """Workers whose links take so long for 32 bits, one way."""
    bandwidth = PROBLEM.parameter_bytes / seconds if seconds else np.inf
    return dml.Cluster.from_speeds(speeds, bandwidth=bandwidth, jitter=jitter)


def simulated(method, cluster, seed=0, **options):
    size = {"parameter_bytes": PROBLEM.parameter_bytes, "tensor_shapes": PROBLEM.tensor_shapes}
    how = {"load": method.load, "transport": method.transport}
    return dml.simulate(method.policy, cluster, seed=seed, **how, **size, **(options or {"updates": 60}))


def trained(method, cluster, rate, **options):
    return dml.train(
        PROBLEM,
        cluster,
        method.policy,
        optax.sgd(rate),
        load=method.load,
        transport=method.transport,
        **options,
    )


def updates_to(method, rate, target=0.5, updates=200):
    """Updates to the target loss, on seed 100."""
    run = trained(method, EVEN, rate, updates=updates, seed=100, eval_every=5, until={"loss": target})
    return dml.metrics.crossing(run.history["update"], run.history["loss"], target)


def seconds_to(method, rates, cluster, target=0.5):
    """Seconds to the target loss at the best of these rates, on seed 100."""
    options = {"seeds": [100], "samples": 25_600, "until": {"loss": target}, "resolve": True}
    runs = dml.sweep({"it": method}, PROBLEM, cluster, optax.sgd, rates, **options)
    return dml.metrics.time_to(runs, "loss", target).min()


def leads(ours, cluster):
    """Time of each rival / time of H-PS."""
    own = seconds_to(ours, (0.4, 0.8, 1.6), cluster)
    return {name: seconds_to(*each, cluster) / own for name, each in SWEPT.items()}


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.2], ids=lambda seconds: f"{seconds} s")
@pytest.mark.parametrize(
    "method",
    [composed(False), composed(), composed(own_steps=False, bits=8), composed(False, True, 4)],
    ids=["BSP", "scheduling", "late, 8 bits", "own steps, 4 bits, equal batches"],
)
def test_round_ends_are_those_of_the_simulator(method, seconds):
    """One timeline gives the times of updates on all links."""
    cluster = links(seconds).with_stragglers(2, fraction=0.2)
    computing = measures.computing(simulated(method, links(0.01).with_stragglers(2, fraction=0.2)))
    push, bandwidth = method.transport.push, cluster.bandwidth_bytes_per_second[0]
    nbytes = push.num_bytes(PROBLEM.tensor_shapes) if push else PROBLEM.parameter_bytes
    ends = measures.round_ends(computing, nbytes / bandwidth, pipelined=method.transport.pipelined)
    np.testing.assert_allclose(ends, simulated(method, cluster).updates["time"], rtol=1e-9)


@OWN_STEPS
def test_losses_by_update_do_not_depend_on_links(own_steps):
    """A lock-step method is trained once for all links, and for a server's."""
    method = composed(own_steps=own_steps, bits=8)
    free = dml.Cluster.from_speeds(SPEEDS, jitter=LAW)
    clusters = [links(0.001), links(0.1), free.with_server(bandwidth=PROBLEM.parameter_bytes / 0.02)]
    runs = [trained(method, each, 0.5, updates=30, seed=1, eval_every=10) for each in clusters]
    for run in runs[1:]:
        assert (run.history["loss"] == runs[0].history["loss"]).all()
    retimed = measures.retimed(
        runs[0].history, simulated(method, clusters[2], seed=1, updates=30).updates["time"]
    )
    np.testing.assert_allclose(retimed["time"], runs[2].history["time"], rtol=1e-9)


@opposes("H6-pipeline")
@OWN_STEPS
def test_where_there_is_nothing_to_hide_the_pipeline_costs_time(own_steps):
    """Rounds last as long with and without it, and more updates are needed."""
    rates = (0.4, 0.8, 1.6)
    plain = min(updates_to(composed(False), rate) for rate in rates)
    late = min(updates_to(composed(False, own_steps), rate) for rate in rates)
    assert not holds("H6-pipeline", plain / late)


@opposes(*(f"H1-{rival}{kind}" for rival in paper.RIVALS for kind in ("", "-data", "-coded")))
@OWN_STEPS
def test_where_there_is_nothing_to_hide_every_rival_is_faster(own_steps):
    for rival, lead in leads(composed(False, own_steps), EVEN).items():
        for kind in ("", "-data", "-coded"):  # fewer bytes save nothing, either
            assert not holds(f"H1-{rival}{kind}", lead)


@opposes("H1-server", "H1-server-coded")
@pytest.mark.parametrize(
    ("transfer", "faster"), [(0.0, False), pytest.param(0.02, True, marks=pytest.mark.full)]
)
def test_a_server_whose_link_takes_no_time_leaves_nothing_to_hide(transfer, faster):
    bandwidth = PROBLEM.parameter_bytes / transfer if transfer else 1e12
    cluster = EVEN.with_server(bandwidth=bandwidth)
    least = min(leads(composed(False, True, 4), cluster).values())
    assert holds("H1-server", least) == faster
    assert faster or not holds("H1-server-coded", least)  # where fewer bytes save nothing, either


@opposes("H1-least", "H1-least-data", "H1-least-coded", "H1-most", "H1-most-data")
@pytest.mark.parametrize(
    ("transfer", "least", "most"),
    [(0.0, False, True), pytest.param(0.02, True, True, marks=pytest.mark.full), (0.5, True, False)],
)
def test_the_lead_grows_with_the_transfers_beyond_three_and_a_half(transfer, least, most):
    method, cluster = (
        (composed(True, True, 4), links(transfer)) if transfer else (composed(False, True), EVEN)
    )
    found = leads(method, cluster).values()
    for data in ("", "-data"):
        assert holds(f"H1-least{data}", min(found)) == least
        assert holds(f"H1-most{data}", max(found)) == most
    if not transfer:  # fewer bytes save nothing, either
        assert not holds("H1-least-coded", min(found))


@opposes("H2", "H2-perfect")
def test_a_rule_that_follows_the_last_tasks_disturbs_equal_workers():
    even = dml.Cluster.uniform(8, jitter=LAW)
    equal, ours = (measures.spread(simulated(composed(each), even)).median() for each in (False, True))
    assert not holds("H2", ours / equal)
    uneven = dml.Cluster.from_speeds(SPEEDS, jitter=LAW)
    perfect = dml.Method(dml.bsp(), load=measures.perfect(lambda clock: SPEEDS))
    best, never, ours = (
        measures.spread(simulated(each, uneven, updates=150)).median()
        for each in (perfect, composed(False), composed())
    )
    assert not holds("H2-perfect", never / best)
    assert holds("H2-perfect", ours / best)


@opposes("H3")
def test_free_links_leave_a_pipeline_nothing_to_hide():
    for cluster, gains in ((EVEN, False), (links(0.02), True)):
        without, piped = (
            dml.metrics.time_breakdown(simulated(composed(False, own), cluster))["compute_share"].mean()
            for own in (None, False)
        )
        assert holds("H3", 100 * (piped - without)) == gains


@opposes("H4-loss", "H4-bytes")
def test_one_bit_costs_updates_and_sixteen_save_too_few_bytes():
    exact, coarse = (updates_to(composed(False, None, bits), 0.4) for bits in (32, 1))
    assert not holds("H4-loss", coarse / exact)
    sizes = PROBLEM.tensor_shapes
    nbytes = {bits: dml.codecs.of_width(bits).num_bytes(sizes) for bits in (32, 16, 8)}
    assert not holds("H4-bytes", nbytes[16] / nbytes[32])
    assert holds("H4-bytes", nbytes[8] / nbytes[32])


@functools.cache
def seconds_of(transfer, bits, pipelined=True, scheduling=True, even=False):
    """Seconds of 60 rounds on links that take so long for 32 bits."""
    method = composed(scheduling, False if pipelined else None)
    speeds, jitter = ([1000] * 4, None) if even else (SPEEDS, LAW)
    computing = measures.computing(simulated(method, links(0.01, speeds, jitter)))
    return measures.round_ends(computing, transfer * bits / 32, pipelined=pipelined)[-1]


@opposes("H5-hide", "H5-error")
def test_on_slow_links_a_width_that_does_not_hide_loses():
    best = seconds_of(0.15, 4)
    assert not holds("H5-hide", seconds_of(0.15, 32) / best)
    assert not holds("H5-error", seconds_of(0.15, 8) / best)
    assert holds("H5-error", seconds_of(0.005, 8) / seconds_of(0.005, 4))


def shares(transfer, even):
    """Shares of the gain in seconds of a round."""
    names = ("scheduling", "pipeline", "quantization")
    subsets = [{*some} for size in range(4) for some in itertools.combinations(names, size)]
    return measures.shares(
        {
            frozenset(used): seconds_of(
                transfer, 8 if "quantization" in used else 32, "pipeline" in used, "scheduling" in used, even
            )
            for used in subsets
        }
    )


@opposes("H6")
def test_shares_follow_the_cluster():
    assert not holds("H6", shares(0.005, even=True)["scheduling"])
    assert holds("H6", shares(0.002, even=False)["scheduling"])
    assert not holds("H6", shares(0.002, even=False)["quantization"])
    assert holds("H6", shares(0.2, even=False)["quantization"])


def test_shares_need_every_subset():
    with pytest.raises(ValueError, match="each subset"):
        measures.shares({frozenset(): 2.0, frozenset("ab"): 1.0})
    without_gain = measures.shares({frozenset(): 1.0, frozenset("a"): 2.0})
    assert np.isnan(without_gain["a"])


@opposes("H-model")
def test_the_model_is_one_of_rounds_without_fluctuation():
    balanced = 4 * 32 / sum(SPEEDS)
    transfer = 0.25 * balanced  # c = 0.5
    model = dml.theory.round_speedup(np.mean(SPEEDS) / min(SPEEDS), 0.5, 8)
    found = seconds_of(transfer, 32, False, False) / seconds_of(transfer, 8)
    assert not holds("H-model", 100 * abs(found / model - 1))


def test_every_claim_says_what_would_show_the_opposite():
    opposes.check(paper)
