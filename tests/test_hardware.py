"""Clusters from hardware, by hand; and servers of a known load."""

import math
from itertools import pairwise, product

import pytest
from scipy import stats

import dmlcore as dml
from dmlcore.cluster.hardware import LINKS, PARAMETERS, SPEEDS

TCP = 1448 / 1538


def test_resnet50_by_hand():
    """16 A100 on one link of 10 Gbit/s, and the processor beside it."""
    found = dml.presets.hardware("resnet50", "10GbE", "a100", workers=16)
    nbytes = 25_557_032 * 4
    compute, transfer = 256 / 2470, 8 * nbytes / (10e9 * TCP)
    processor = (3 + 3 + 2) * nbytes / 204.8e9
    transfers = 2 * (transfer + 50e-6)
    assert found.regime.communication_ratio == pytest.approx(transfers / compute, rel=1e-12)
    assert found.regime.server_load == pytest.approx(
        16 * transfer / (compute + transfers + processor), rel=1e-12
    )
    assert (found.parameter_bytes, found.batch_size) == (nbytes, 256)
    assert found.cluster.num_workers == 16


def test_bert_by_hand():
    """Four servers on InfiniBand: a worker's own link, which sends to all of them, is the slower end."""
    found = dml.presets.hardware("bert_large", "InfiniBand HDR", "v100", workers=3, shards=4)
    nbytes = 335_141_888 * 4
    compute, transfer = 64 / 171.52, 8 * nbytes / (200e9 * 4096 / 4122)
    processor = 8 * nbytes / 204.8e9 / 4
    transfers = 2 * (transfer + 2e-6)
    assert found.regime.communication_ratio == pytest.approx(transfers / compute, rel=1e-9)
    cycle = compute + transfers + processor
    assert found.regime.server_load == pytest.approx(3 * max(processor, transfer / 4) / cycle, rel=1e-9)


def alone(**options):
    """Seconds of a push of one worker on free links: what the trace says."""
    found = dml.presets.hardware("vgg16", accelerator="p100", workers=1, memory_bandwidth=1e300, **options)
    sizes = {"parameter_bytes": found.parameter_bytes, "batch_size": found.batch_size}
    tasks = dml.simulate(dml.asp(), found.cluster, updates=3, **sizes).tasks
    return (tasks["push_end"] - tasks["compute_end"])[0]


@pytest.mark.parametrize(("link", "server_link"), [*product(["1GbE", "25GbE"], ["10GbE", "100GbE"])])
@pytest.mark.parametrize("shards", [1, 2, 8])
def test_a_transfer_takes_the_rate_of_the_slower_end(link, server_link, shards):
    gigabits = min(float(link[:-3]), float(server_link[:-3]) * shards)
    seconds = 138_357_544 * 32 / (gigabits * 1e9 * TCP) + 50e-6
    assert alone(link=link, server_link=server_link, shards=shards) == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize(("model", "accelerator"), SPEEDS)
def test_a_faster_link_never_makes_it_worse(model, accelerator):
    order = ["1GbE", "10GbE", "25GbE", "100GbE", "InfiniBand HDR"]
    assert order == [*LINKS]
    for shards in (1, 4):
        options = {"model": model, "accelerator": accelerator, "shards": shards}
        found = [dml.presets.hardware(link=link, **options).regime for link in order]
        for slow, fast in pairwise(found):
            assert fast.communication_ratio < slow.communication_ratio
            assert fast.server_load <= slow.server_load


def test_a_faster_link_or_more_servers_make_more_updates():
    def rate(**options):
        found = dml.presets.hardware(workers=8, **options)
        trace = dml.simulate(dml.asp(), found.cluster, updates=300, parameter_bytes=found.parameter_bytes)
        return dml.metrics.updates_per_second(trace)

    rates = [rate(link=link) for link in LINKS]
    assert rates == sorted(rates)
    assert rate(shards=4) > 2 * rate()


def test_every_model_was_measured_and_a_default_is_there():
    assert {model for model, _ in SPEEDS} == {*PARAMETERS}
    assert dml.presets.hardware() == dml.presets.hardware("resnet50", "10GbE", "a100", 16)
    assert dml.presets.hardware(jitter=stats.expon()).cluster.jitter.mean() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "gpt"},
            "model: expected one of 'resnet50', 'vgg16', 'inception_v3', 'bert_large', got 'gpt'",
        ),
        (
            {"link": "wifi"},
            "link: expected one of '1GbE', '10GbE', '25GbE', '100GbE', 'InfiniBand HDR', got 'wifi'",
        ),
        (
            {"server_link": "wifi"},
            "server_link: expected one of '1GbE', '10GbE', '25GbE', '100GbE', 'InfiniBand HDR', got 'wifi'",
        ),
        (
            {"accelerator": "tpu"},
            "model='resnet50', accelerator: expected one of 'k80', 'p100', 'v100', 'a100', got 'tpu'",
        ),
        ({"model": "bert_large"}, "model='bert_large', accelerator: expected one of 'v100', got 'a100'"),
        ({"workers": 0}, "workers: expected a whole number >= 1, got 0"),
        (
            {"shards": 0},
            "shards: expected a whole number from 1 to 25557032 (the number of parameters), got 0",
        ),
        ({"memory_bandwidth": 0}, "memory_bandwidth: expected a number > 0, got 0"),
        (
            {"jitter": 3},
            "jitter: expected a law by name, such as 'exponential'",
        ),
    ],
)
def test_messages(options, message):
    with pytest.raises(ValueError, match="expected") as error:
        dml.presets.hardware(**options)
    assert str(error.value).startswith(message)


UNEVEN = dml.Cluster.from_speeds([100, 1000, 3000], latency=[0.1, 0, 0.01], bandwidth=1e6).with_stragglers(
    3, workers=[1]
)


@pytest.mark.parametrize("load", [1e-6, 0.3, 1.0, 2.5, 2.999])
@pytest.mark.parametrize("cluster", [UNEVEN, dml.Cluster.uniform(3), dml.presets.unstable(5)], ids=str)
def test_a_server_of_a_known_load(cluster, load):
    busy = dml.presets.busy_server(cluster, load, 4000, batch_size=20, jitter=stats.expon())
    assert busy.regime(4000, 20).server_load == pytest.approx(load, rel=1e-9)
    assert busy.regime(4000, 20).communication_ratio == cluster.regime(4000, 20).communication_ratio


def test_messages_of_a_busy_server():
    for load in (0, 3, math.nan):
        with pytest.raises(ValueError, match="server_load: expected"):
            dml.presets.busy_server(UNEVEN, load)
    with pytest.raises(ValueError, match=r"problem: expected a problem.*, got 'x'"):
        dml.presets.busy_server(UNEVEN, 1.0, "x")


@pytest.mark.parametrize(
    ("problem", "batch_size", "message"),
    [
        (0, 32, "problem: expected more than 0 bytes (the server's link has a bandwidth), got 0"),
        (
            2**70,
            32,
            "problem: expected a whole number from 0 to 1152921504606846976 (bytes of parameters)",
        ),
        (4000, 2**40, "batch_size: expected a whole number from 1 to 2147483647, got 1099511627776"),
    ],
)
def test_a_regime_of_what_cannot_be(problem, batch_size, message):
    with pytest.raises(ValueError, match="expected") as error:
        dml.Cluster.uniform(2).with_server(bandwidth=1e6).regime(problem, batch_size)
    assert str(error.value).startswith(message)
