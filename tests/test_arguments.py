"""Malformed arguments of public functions: each is refused in one line that names it, before any work."""

import inspect
import math
import re
import types

import numpy as np
import optax
import pandas as pd
import pytest

import dmlcore as dml
from dmlcore.cluster import presets
from dmlcore.engines.engine import Engine
from dmlcore.methods import aggregate, codecs, loads, policies, transport
from dmlcore.trace import metrics, perfetto
from dmlcore.view import plot

NO_NUMBERS = ["3", True, math.nan, np.array([1, 2]), [], {}, -(10**400), 10**400, "9" * 400]
WRONG = {  # by annotation
    "int": [1.5, None, math.inf, *NO_NUMBERS],
    "int | None": [1.5, *NO_NUMBERS],
    "float": [None, *NO_NUMBERS],
    "float | None": NO_NUMBERS,
    "bool": ["yes", 1, None, np.array([True])],
    "Trace": [None, "trace", pd.DataFrame(), dml.Trace],
    "Cluster": [None, "cluster", dml.Cluster, 3],
}
CLUSTER = dml.Cluster.uniform(2)
TRACE = dml.simulate(dml.asp(), CLUSTER, updates=4)
RUNS = pd.DataFrame({"method": ["BSP"], "learning_rate": 0.1, "seed": 0, "time": 1.0, "loss": 1.0})
NEEDED = {  # what else a function must be given, where 1 will not do
    "batch_sizes": [1],
    "cluster": CLUSTER,
    "metric": "loss",
    "params": {"topics": np.ones((2, 2))},
    "policy": dml.asp(),
    "samples": [1.0],
    "response": dml.theory.erlang(2.0, 40.0),
    "runs": RUNS,
    "trace": TRACE,
    "upper": 9,
    "x": [1.0],
    "y": [1.0],
}
MORE = {"simulate": {"updates": 3}, "Cluster.with_speed_change": {"at": 1.0}}
MODULES = (aggregate, codecs, loads, metrics, policies, presets, dml.problems, transport)
LATER = {"topics_of", "top_words", "resolve"}  # what they are given besides has no class to be checked by


def functions():
    """Yields public functions with their names."""
    for module in MODULES:
        for name in [*getattr(module, "__all__", vars(module))]:  # a copy: a call may import more
            function = getattr(module, name)
            own = getattr(function, "__module__", "").startswith(("dmlcore.methods.", module.__name__))
            if isinstance(function, types.FunctionType) and own and name[0] != "_" and name not in LATER:
                yield name, function
    for name in dir(dml.Cluster):
        if name[0] != "_" and inspect.ismethod(method := getattr(CLUSTER, name)):
            yield f"Cluster.{name}", method
    yield "simulate", dml.simulate


def cases():
    for name, function in functions():
        parameters = inspect.signature(function).parameters.values()
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        required = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
        sound = {each: NEEDED.get(each, 1) for each in required} | MORE.get(name, {})
        for parameter in parameters:
            kind = parameter.annotation
            kind = kind.__name__ if isinstance(kind, type) else str(kind)
            for wrong in WRONG.get(kind, []):
                if name == "simulate" and parameter.name in ("seconds", "samples"):
                    yield function, parameter.name, sound | {"updates": None, parameter.name: wrong}
                else:
                    yield function, parameter.name, sound | {parameter.name: wrong}


FORM = re.compile(r".+: expected .+, got .+")  # on one line; "; try ..." where something may help


def refusal(call, *args, **given):
    """Returns the message by which a call refuses its arguments, or what else became of it."""
    try:
        return f"was done: {call(*args, **given)!r}"
    except ValueError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_every_number_flag_trace_and_cluster():
    found = [(function, name, refusal(function, **given)) for function, name, given in cases()]
    wrong = [
        (function.__name__, name, message)
        for function, name, message in found
        if not message.startswith(name) or not FORM.fullmatch(message)
    ]
    assert not wrong
    assert len(found) > 1000


def train(**given):
    sound = {"cluster": CLUSTER, "policy": dml.asp(), "optimizer": optax.sgd(0.1), "updates": 2}
    return dml.train(dml.problems.digits_mlp(), **sound | given)


def compare(methods, **given):
    return dml.compare(methods, dml.problems.digits_mlp(), CLUSTER, optax.sgd(0.1), updates=2, **given)


NUMBERS = (1.0, 1.0)
EMPTY = pd.DataFrame({"method": [], "seed": [], "time": [], "loss": []})
SPECIAL = {
    "samples_per_second": [lambda: dml.Cluster((), (), (), ()), lambda: dml.Cluster(1.0, *[NUMBERS] * 3),
                           lambda: dml.Cluster((math.nan,), *[(1.0,)] * 3)],
    "overhead_seconds": [lambda: dml.Cluster(NUMBERS, (0.0,), NUMBERS, NUMBERS)],
    "bandwidth_bytes_per_second": [lambda: dml.Cluster(NUMBERS, NUMBERS, NUMBERS, ("1", "1"))],
    "pull_latency_seconds": [lambda: dml.Cluster(*[NUMBERS] * 4, pull_latency_seconds=(1.0,))],
    "response": [lambda: dml.Cluster.from_response(2, None)],
    "methods": [lambda: compare({None: dml.asp()}), lambda: compare({}), lambda: compare("asp")],
    "methods['A']": [lambda: compare({"A": dml.asp})],
    "seeds": [lambda: compare({"A": dml.asp()}, seeds=[[0]]), lambda: compare({"A": dml.asp()}, seeds=3)],
    "seed": [lambda: train(seed=2**70), lambda: train(seed=[0])],
    "compensation": [lambda: train(compensation=math.nan), lambda: train(compensation="0")],
    "policy": [lambda: train(policy=dml.asp), lambda: train(policy=None)],
    "engine none, record": [lambda: train(engine=Engine("none", record=lambda job: None))],
    "asp(), observe_every": [lambda: train(policy=dml.asp()._replace(observe_every=0))],
    "workers": [lambda: dml.explore(dml.problems.digits_mlp(), workers=[0, 0])],
    "path": [lambda: dml.Trace.load(None), lambda: dml.Trace.load(""), lambda: TRACE.save(None),
             lambda: perfetto.write(TRACE, None)],
    "trace": [lambda: perfetto.write(None, "x"), lambda: perfetto.to_perfetto(None)],
    "runs": [lambda: plot.loss_curves(EMPTY), lambda: metrics.time_to(EMPTY, "loss", 1.0)],
    "data": [lambda: plot.sweep(EMPTY, "time", "loss")],
    "frame": [lambda: plot.regimes(EMPTY, "time", "loss")],
    "traces": [lambda: plot.staleness({}), lambda: plot.time_breakdown(None)],
    "times": [lambda: metrics.speedup(None, "BSP")],
    "y": [lambda: metrics.crossing([1, 2], [1], 0.5)],
    "rates": [lambda: metrics.walk(TRACE, print, [0.0], "abc")],
}  # fmt: skip


def test_a_function_that_was_replaced_says_by_what():
    with pytest.raises(AttributeError, match=r"no attribute 'tune': use dml\.study"):
        dml.tune  # noqa: B018
    with pytest.raises(ImportError, match=r"no attribute 'tune': use dml\.study"):
        from dmlcore import tune  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'tunes'"):
        from dmlcore import tunes  # noqa: F401


@pytest.mark.parametrize("name", SPECIAL)
def test_what_no_annotation_says(name):
    for call in SPECIAL[name]:
        message = refusal(call)
        assert message.startswith(f"{name}: expected ")
        assert FORM.fullmatch(message)
