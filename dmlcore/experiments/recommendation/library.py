"""The methods that `recommend` tries, with the knobs that each has."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import optax

from dmlcore import checks
from dmlcore.experiments.tuning import at_rate
from dmlcore.methods import codecs, loads, policies, transport
from dmlcore.methods.local import local_steps
from dmlcore.types import Method, Policy, Transport

Optimizer = Callable[[float], optax.GradientTransformation]
LEAST_LOAD = 4  # samples of a task whose size follows its worker's speed
BITS = 8, 4  # of a gradient's values; parameters travel as differences in 8 bits


class Scale(NamedTuple):
    """What a library's knobs and rates are measured in.

    Args:
        workers: P.
        batch_size: samples of a task.
        task_seconds: mean seconds of a task of BSP, from its pull to the arrival of its push.
        together: learning rate that suits BSP, whose update is the mean gradient of all workers.
        alone: that suits ASP, whose update is one worker's gradient.
        optimizer: learning rate -> optax optimizer.
        own_steps: whether a worker can go on with a step of its own, which real engines cannot.
    """

    workers: int
    batch_size: int
    task_seconds: float
    together: float
    alone: float
    optimizer: Optimizer
    own_steps: bool = True


class Trial(NamedTuple):
    """A method at one of its settings and at a learning rate."""

    method: str
    setting: int  # its place in the family's settings
    rate: float


class Family(NamedTuple):
    """A method and its settings.

    Args:
        make: knobs, by keyword -> method; one with a parameter `learning_rate` is told that, too.
        rate: learning rate around which its search begins.
        settings: values of the knobs, by keyword: those that come first are tried first.
        optimizer: of the server, by learning rate.
    """

    make: Callable[..., Policy | Method]
    rate: float
    settings: Sequence[Mapping[str, Any]]
    optimizer: Optimizer

    def of(self, trial: Trial) -> Method:
        """Returns the method of a trial."""
        return self.at(self.settings[trial.setting], trial.rate)

    def told(self, trial: Trial) -> str:
        """Returns a trial's setting as text."""
        setting = self.settings[trial.setting].items()
        return ", ".join(f"{k} = {v:.3g}" if isinstance(v, float) else f"{k} = {v}" for k, v in setting)

    def at(self, setting: Mapping[str, Any], rate: float) -> Method:
        """Returns the method with a setting, at a learning rate."""
        told = {"learning_rate": rate} if "learning_rate" in inspect.signature(self.make).parameters else {}
        made = self.make(**setting, **told)
        method = made if isinstance(made, Method) else Method(made)
        return method if method.optimizer is not None else method._replace(optimizer=self.optimizer(rate))


def settings(**knobs: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns all combinations of the knobs' values, those of values that come first at the front.

    >>> settings(steps=[8, 2], bits=[4])
    [{'steps': 8, 'bits': 4}, {'steps': 2, 'bits': 4}]
    """
    ranked = sorted(itertools.product(*(enumerate(values) for values in knobs.values())), key=_places)
    return [dict(zip(knobs, (value for _, value in each), strict=True)) for each in ranked]


def _places(values: Iterable[tuple[int, Any]]) -> int:
    return sum(place for place, _ in values)


def library(scale: Scale) -> dict[str, Family]:
    """Returns every method that is tried by default, by name.

    Left out are those that are close to one that is here.

    >>> scale = Scale(8, 32, 0.032, 0.8, 0.1, optax.sgd)
    >>> library(scale)["K-sync"].settings
    [{'k': 4}, {'k': 2}, {'k': 6}, {'k': 7}, {'k': 1}]
    """
    return _wait_for_all(scale) | _wait_for_some(scale) | _wait_for_none(scale)


def _wait_for_all(scale: Scale) -> dict[str, Family]:
    rate, own = scale.together, scale.optimizer

    def quantized(bits: int) -> Method:
        return Method(policies.bsp(), transport=_coded(bits))

    def hps(bits: int) -> Method:
        pipeline = transport.pipelined(_coded(bits), own_steps=scale.own_steps)
        return Method(policies.bsp(), load="equal_finish_time()", transport=pipeline)

    return {
        "BSP": Family(policies.bsp, rate, settings(), own),
        "balanced BSP": Family(
            lambda: Method(policies.bsp(), load="equal_finish_time()"), rate, settings(), own
        ),
        "quantized BSP": Family(quantized, rate, settings(bits=BITS), own),
        "H-PS": Family(hps, rate / 2, settings(bits=BITS), own),
        "local SGD": _local(policies.bsp(), 1.0, scale),
    }


def _wait_for_some(scale: Scale) -> dict[str, Family]:
    P, rate, own = scale.workers, scale.together, scale.optimizer
    watching = {} if own is not optax.sgd else _told_the_rate(scale)
    parts, rounds = _numbers(P // 2, P // 4, 3 * P // 4, P - 1, 1), _numbers(P, P // 2, 2 * P, P // 4, 4 * P)
    between = (rate * scale.alone) ** 0.5

    def deadline(tasks: float) -> Policy:
        return policies.deadline(tasks * scale.task_seconds)

    return {
        "K-sync": Family(policies.k_sync, rate, settings(k=parts), own),
        "K-batch-sync": Family(policies.k_batch_sync, rate, settings(k=rounds), own),
        "Rennala": Family(policies.rennala, rate, settings(s=rounds), own),
        "deadline": Family(deadline, rate, settings(tasks=(1.5, 1.0, 2.5, 4.0)), own),
        "SSP": Family(policies.ssp, rate, settings(staleness=(3, 1, 16, 8, 2, 32)), own),
        "K-async": Family(policies.k_async, between, settings(k=parts), own),
        "FedBuff": Family(policies.fedbuff, between, settings(k=parts), own),
        **watching,
    }


def _told_the_rate(scale: Scale) -> dict[str, Family]:
    """Methods that need to know the learning rate, of plain SGD."""
    rate, sizes = scale.together / 2, _numbers(scale.batch_size // 4, scale.batch_size)

    def adaptive_load(learning_rate: float) -> Policy:
        return policies.adaptive_load(learning_rate, sizes)

    return {
        "DBW": Family(policies.dbw, rate, settings(), scale.optimizer),
        "adaptive load": Family(adaptive_load, rate, settings(), scale.optimizer),
    }


def _wait_for_none(scale: Scale) -> dict[str, Family]:
    P, rate, own = scale.workers, scale.alone, scale.optimizer
    load = loads.speed_proportional(least=min(LEAST_LOAD, scale.batch_size))

    def quantized(bits: int) -> Method:
        return Method(policies.asp(), transport=_coded(bits))

    return {
        "ASP": Family(policies.asp, rate, settings(), own),
        "quantized ASP": Family(quantized, rate, settings(bits=BITS), own),
        "DBS-SGD": Family(lambda: Method(policies.asp(), load=load), rate, settings(), own),
        "Ringmaster": Family(policies.ringmaster, rate, settings(r=_numbers(P, 2 * P, P // 2, 4 * P)), own),
        "adaptive sync": Family(
            policies.adaptive_sync, rate, settings(threshold=_numbers(P // 4, 4 * P, P)), own
        ),
        "asynchronous local SGD": _local(policies.asp(), P**-0.5, scale),
    }


def _local(policy: Policy, rate: float, scale: Scale) -> Family:
    """Local steps at rates around those that suit a mini-batch; what is searched is the server's rate."""

    def make(steps: int, local_rate: float) -> Method:
        return Method(policy, local=local_steps(steps, scale.optimizer(local_rate)))

    inner = dict.fromkeys((scale.together / 2, (scale.together * scale.alone) ** 0.5, scale.alone))
    return Family(make, rate, settings(steps=(8, 2, 32, 4, 16), local_rate=inner), optax.sgd)


def _coded(bits: int) -> Transport:
    nearest = codecs.difference(codecs.affine(8, stochastic=False))
    return transport.coded(push=codecs.affine(bits), pull=nearest)


def _numbers(*values: int) -> list[int]:
    """Those of at least 1, each once."""
    return [*dict.fromkeys(value for value in values if value >= 1)]


def chosen(methods: Any, scale: Scale) -> dict[str, Family]:
    """Returns the families that `recommend` is asked for.

    Args:
        methods: None for the library; names of it; or by name a `Policy`, a `Method`, a function of the
            learning rate that returns one, or of a method of the library the knobs' values to try.
        scale: of knobs and rates.

    Raises:
        ValueError: an unknown name or knob, or no method.

    >>> scale = Scale(8, 32, 0.032, 0.8, 0.1, optax.sgd)
    >>> chosen({"SSP": {"slack": [1]}}, scale)
    Traceback (most recent call last):
    ValueError: methods['SSP']: got 'slack', allowed is one of 'staleness'
    """
    every = library(scale)
    if methods is None:
        return every
    if not isinstance(methods, Mapping):
        return {name: checks.choice("methods", name, every) for name in checks.listed("methods", methods)}
    if not methods:
        checks.fail("methods", methods, "None, or at least one method")
    return {name: _family(name, given, every, scale) for name, given in methods.items()}


def _family(name: Any, given: Any, every: Mapping[str, Family], scale: Scale) -> Family:
    if not isinstance(name, str):
        checks.fail("methods", name, "a string, as the name of each method")
    argument = f"methods[{name!r}]"
    if isinstance(given, Mapping):
        family = checks.choice("methods", name, every)
        known = {
            knob: [*dict.fromkeys(each[knob] for each in family.settings)] for knob in family.settings[0]
        }
        if given and not known:
            checks.fail(argument, given, "a policy or a Method: this one has no knobs")
        for knob in given:
            checks.choice(argument, knob, known)
        return family._replace(
            settings=settings(
                **known | {knob: checks.listed(f"{argument}, {knob}", given[knob]) for knob in given}
            )
        )
    start = (scale.together * scale.alone) ** 0.5
    if isinstance(given, Method) and given.optimizer is not None:
        checks.fail(argument, given, "one without an optimizer of its own, since its rate is searched")
    if isinstance(given, Policy | Method):
        return Family(lambda: given, start, settings(), scale.optimizer)
    at_rate(name, given, start)  # raises where it is no method
    return Family(
        lambda learning_rate: at_rate(name, given, learning_rate), start, settings(), scale.optimizer
    )
