"""The methods that `recommend` tries, and the values of their arguments (knobs)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import optax

from dmlcore import checks
from dmlcore.experiments.study.space import Space, as_space
from dmlcore.methods import codecs, loads, policies, transport
from dmlcore.methods.local import local_steps
from dmlcore.types import Method, Policy, Transport

Optimizer = Callable[[float], optax.GradientTransformation]
LEAST_LOAD = 4  # smallest batch size of load rules that follow the workers' speeds, in samples
BITS = 8, 4  # bits per value of a gradient; parameters are sent as differences with 8 bits per value


class Scale(NamedTuple):
    """The scale of a problem and a cluster, from which the library derives knobs and learning rates.

    Args:
        workers: P, the number of workers.
        batch_size: samples per task.
        task_seconds: mean seconds of a task of BSP, from its pull to the arrival of its push.
        together: learning rate that suits BSP, whose update is the mean gradient of all workers.
        alone: learning rate that suits ASP, whose update is the gradient of one worker.
        optimizer: learning rate -> optax optimizer.
        own_steps: whether a worker can add its own step to a pipeline's parameters; engines with a real clock
            do not support this.
    """

    workers: int
    batch_size: int
    task_seconds: float
    together: float
    alone: float
    optimizer: Optimizer
    own_steps: bool = True


def library(scale: Scale) -> dict[str, Space]:
    """Returns the methods that are tried by default, by name.

    It leaves out methods that are close to one of these.

    >>> scale = Scale(8, 32, 0.032, 0.8, 0.1, optax.sgd)
    >>> library(scale)["K-sync"]
    space(k_sync, k=[4, 2, 6, 7, 1])
    """
    return _wait_for_all(scale) | _wait_for_some(scale) | _wait_for_none(scale)


def _wait_for_all(scale: Scale) -> dict[str, Space]:
    rate, own = scale.together, scale.optimizer

    def quantized(bits: int) -> Method:
        return Method(policies.bsp(), transport=_coded(bits))

    def hps(bits: int) -> Method:
        pipeline = transport.pipelined(_coded(bits), own_steps=scale.own_steps)
        return Method(policies.bsp(), load="equal_finish_time()", transport=pipeline)

    return {
        "BSP": Space(policies.bsp, {}, rate, own),
        "balanced BSP": Space(lambda: Method(policies.bsp(), load="equal_finish_time()"), {}, rate, own),
        "quantized BSP": Space(quantized, _knobs(bits=BITS), rate, own),
        "H-PS": Space(hps, _knobs(bits=BITS), rate / 2, own),
        "local SGD": _local(policies.bsp(), 1.0, scale),
    }


def _wait_for_some(scale: Scale) -> dict[str, Space]:
    P, rate, own = scale.workers, scale.together, scale.optimizer
    watching = {} if own is not optax.sgd else _told_the_rate(scale)
    parts, rounds = _numbers(P // 2, P // 4, 3 * P // 4, P - 1, 1), _numbers(P, P // 2, 2 * P, P // 4, 4 * P)
    between = (rate * scale.alone) ** 0.5

    def deadline(tasks: float) -> Policy:
        return policies.deadline(tasks * scale.task_seconds)

    return {
        "K-sync": Space(policies.k_sync, _knobs(k=parts), rate, own),
        "K-batch-sync": Space(policies.k_batch_sync, _knobs(k=rounds), rate, own),
        "Rennala": Space(policies.rennala, _knobs(s=rounds), rate, own),
        "deadline": Space(deadline, _knobs(tasks=(1.5, 1.0, 2.5, 4.0)), rate, own),
        "SSP": Space(policies.ssp, _knobs(staleness=(3, 1, 16, 8, 2, 32)), rate, own),
        "K-async": Space(policies.k_async, _knobs(k=parts), between, own),
        "FedBuff": Space(policies.fedbuff, _knobs(k=parts), between, own),
        **watching,
    }


def _told_the_rate(scale: Scale) -> dict[str, Space]:
    """Returns the methods that take the learning rate, of plain SGD, as an argument."""
    rate, sizes = scale.together / 2, _numbers(scale.batch_size // 4, scale.batch_size)

    def adaptive_load(learning_rate: float) -> Policy:
        return policies.adaptive_load(learning_rate, sizes)

    return {
        "DBW": Space(policies.dbw, {}, rate, scale.optimizer),
        "adaptive load": Space(adaptive_load, {}, rate, scale.optimizer),
    }


def _wait_for_none(scale: Scale) -> dict[str, Space]:
    P, rate, own = scale.workers, scale.alone, scale.optimizer
    load = loads.speed_proportional(least=min(LEAST_LOAD, scale.batch_size))

    def quantized(bits: int) -> Method:
        return Method(policies.asp(), transport=_coded(bits))

    return {
        "ASP": Space(policies.asp, {}, rate, own),
        "quantized ASP": Space(quantized, _knobs(bits=BITS), rate, own),
        "DBS-SGD": Space(lambda: Method(policies.asp(), load=load), {}, rate, own),
        "Ringmaster": Space(policies.ringmaster, _knobs(r=_numbers(P, 2 * P, P // 2, 4 * P)), rate, own),
        "adaptive sync": Space(
            policies.adaptive_sync, _knobs(threshold=_numbers(P // 4, 4 * P, P)), rate, own
        ),
        "asynchronous local SGD": _local(policies.asp(), P**-0.5, scale),
    }


def _local(policy: Policy, rate: float, scale: Scale) -> Space:
    """Returns local steps with local rates that suit a mini-batch; the search is over the server's rate."""

    def make(steps: int, local_rate: float) -> Method:
        return Method(policy, local=local_steps(steps, scale.optimizer(local_rate)))

    inner = dict.fromkeys((scale.together / 2, (scale.together * scale.alone) ** 0.5, scale.alone))
    return Space(make, _knobs(steps=(8, 2, 32, 4, 16), local_rate=inner), rate, optax.sgd)


def _coded(bits: int) -> Transport:
    nearest = codecs.difference(codecs.affine(8, stochastic=False))
    return transport.coded(push=codecs.affine(bits), pull=nearest)


def _numbers(*values: int) -> list[int]:
    """Returns the different values that are at least 1."""
    return [*dict.fromkeys(value for value in values if value >= 1)]


def _knobs(**knobs: Iterable[Any]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(values) for name, values in knobs.items()}


def chosen(methods: Any, scale: Scale) -> dict[str, Space]:
    """Returns the methods for the argument `methods` of `recommend`.

    Args:
        methods: None for the library; a list of its names; or name -> a `Policy`, a `Method`, a function of
            the learning rate that returns one, a `dml.space`, or, for a method of the library, its knobs'
            values to try.
        scale: for knobs and learning rates.

    Raises:
        ValueError: a name or a knob is unknown, or there is no method.

    >>> scale = Scale(8, 32, 0.032, 0.8, 0.1, optax.sgd)
    >>> chosen({"SSP": {"slack": [1]}}, scale)
    Traceback (most recent call last):
    ValueError: methods['SSP']: expected one of 'staleness', got 'slack'
    """
    every = library(scale)
    if methods is None:
        return every
    if not isinstance(methods, Mapping):
        return {name: checks.choice("methods", name, every) for name in checks.listed("methods", methods)}
    if not methods:
        checks.fail("methods", methods, "None or at least one method")
    start = (scale.together * scale.alone) ** 0.5
    return {
        name: _narrowed(name, given, every)
        if isinstance(given, Mapping) and not isinstance(given, Space)
        else as_space(name, given)._replace(rate=start)
        for name, given in methods.items()
    }


def _narrowed(name: Any, given: Mapping[str, Any], every: Mapping[str, Space]) -> Space:
    """Returns a method of the library with other values of its knobs."""
    own, argument = checks.choice("methods", name, every), f"methods[{name!r}]"
    if given and not own.knobs:
        checks.fail(argument, given, "a Policy or a Method (this one has no knobs)")
    for knob in given:
        checks.choice(argument, knob, own.knobs)
    values = {knob: tuple(checks.listed(f"{argument}, {knob}", each)) for knob, each in given.items()}
    return own._replace(knobs={**own.knobs, **values})
