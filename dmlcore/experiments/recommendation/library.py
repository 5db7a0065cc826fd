"""The methods that `recommend` tries, and the values of their arguments (knobs)."""

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


class Trial(NamedTuple):
    """A method with one of its settings and a learning rate."""

    method: str
    setting: int  # index into the settings of the family
    rate: float


class Family(NamedTuple):
    """A method and its settings.

    Args:
        make: knobs as keyword arguments -> method. A parameter `learning_rate` receives the learning rate.
        rate: learning rate around which the search begins.
        settings: values of the knobs by keyword, in the order in which they are tried.
        optimizer: learning rate -> optimizer of the server.
    """

    make: Callable[..., Policy | Method]
    rate: float
    settings: Sequence[Mapping[str, Any]]
    optimizer: Optimizer

    def of(self, trial: Trial) -> Method:
        """Returns the method of a trial."""
        return self.at(self.settings[trial.setting], trial.rate)

    def told(self, trial: Trial) -> str:
        """Returns the setting of a trial as text."""
        setting = self.settings[trial.setting].items()
        return ", ".join(f"{k} = {v:.3g}" if isinstance(v, float) else f"{k} = {v}" for k, v in setting)

    def at(self, setting: Mapping[str, Any], rate: float) -> Method:
        """Returns the method with a setting and a learning rate."""
        told = {"learning_rate": rate} if "learning_rate" in inspect.signature(self.make).parameters else {}
        made = self.make(**setting, **told)
        method = made if isinstance(made, Method) else Method(made)
        return method if method.optimizer is not None else method._replace(optimizer=self.optimizer(rate))


def settings(**knobs: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns all combinations of the knobs' values; combinations of early values come first.

    >>> settings(steps=[8, 2], bits=[4])
    [{'steps': 8, 'bits': 4}, {'steps': 2, 'bits': 4}]
    """
    ranked = sorted(itertools.product(*(enumerate(values) for values in knobs.values())), key=_places)
    return [dict(zip(knobs, (value for _, value in each), strict=True)) for each in ranked]


def _places(values: Iterable[tuple[int, Any]]) -> int:
    return sum(place for place, _ in values)


def library(scale: Scale) -> dict[str, Family]:
    """Returns the methods that are tried by default, by name.

    It leaves out methods that are close to one of these.

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
    """Returns the methods that take the learning rate, of plain SGD, as an argument."""
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
    """Returns local steps with local rates that suit a mini-batch; the search is over the server's rate."""

    def make(steps: int, local_rate: float) -> Method:
        return Method(policy, local=local_steps(steps, scale.optimizer(local_rate)))

    inner = dict.fromkeys((scale.together / 2, (scale.together * scale.alone) ** 0.5, scale.alone))
    return Family(make, rate, settings(steps=(8, 2, 32, 4, 16), local_rate=inner), optax.sgd)


def _coded(bits: int) -> Transport:
    nearest = codecs.difference(codecs.affine(8, stochastic=False))
    return transport.coded(push=codecs.affine(bits), pull=nearest)


def _numbers(*values: int) -> list[int]:
    """Returns the different values that are at least 1."""
    return [*dict.fromkeys(value for value in values if value >= 1)]


def chosen(methods: Any, scale: Scale) -> dict[str, Family]:
    """Returns the families for the argument `methods` of `recommend`.

    Args:
        methods: None for the library; a list of its names; or name -> a `Policy`, a `Method`, a function of
            the learning rate that returns one, or, for a method of the library, its knobs' values to try.
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
    return {name: _family(name, given, every, scale) for name, given in methods.items()}


def _family(name: Any, given: Any, every: Mapping[str, Family], scale: Scale) -> Family:
    if not isinstance(name, str):
        checks.fail("methods", name, "a string as the name of each method")
    argument = f"methods[{name!r}]"
    if isinstance(given, Mapping):
        family = checks.choice("methods", name, every)
        known = {
            knob: [*dict.fromkeys(each[knob] for each in family.settings)] for knob in family.settings[0]
        }
        if given and not known:
            checks.fail(argument, given, "a Policy or a Method (this one has no knobs)")
        for knob in given:
            checks.choice(argument, knob, known)
        return family._replace(
            settings=settings(
                **known | {knob: checks.listed(f"{argument}, {knob}", given[knob]) for knob in given}
            )
        )
    start = (scale.together * scale.alone) ** 0.5
    if isinstance(given, Method) and given.optimizer is not None:
        checks.fail(argument, given, "a Method without an optimizer (its learning rate is searched)")
    if isinstance(given, Policy | Method):
        return Family(lambda: given, start, settings(), scale.optimizer)
    at_rate(name, given, start)  # raises if it is not a method
    return Family(
        lambda learning_rate: at_rate(name, given, learning_rate), start, settings(), scale.optimizer
    )
