"""The methods that `recommend` tries, and the values of their arguments (knobs)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import optax

from dmlcore import checks
from dmlcore.experiments.study.space import Optimizer, Space, as_space
from dmlcore.methods import codecs, loads, policies, transport
from dmlcore.methods.local import local_steps
from dmlcore.types import Method, Policy, Transport

LEAST_LOAD = 4  # smallest batch size of load rules that follow the workers' speeds, in samples
KEPT = 0.1, 0.01, 0.03  # share of a gradient's entries that are sent, the largest ones
PLAIN_SGD = "DBW", "adaptive load"  # methods that take the learning rate of plain SGD
BITS = 8, 4  # bits per value of a gradient
PULL = codecs.difference(codecs.affine(8, stochastic=False))  # of parameters


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
    P, rate, alone, seconds = scale.workers, scale.together, scale.alone, scale.task_seconds
    between, bsp, asp = (rate * alone) ** 0.5, policies.bsp(), policies.asp()
    parts, rounds = _numbers(P // 2, P // 4, 3 * P // 4, P - 1, 1), _numbers(P, P // 2, 2 * P, P // 4, 4 * P)
    inner = dict.fromkeys((rate / 2, between, alone))
    sizes = _numbers(scale.batch_size // 4, scale.batch_size)
    balanced = "equal_finish_time()"
    by_speed = loads.speed_proportional(least=min(LEAST_LOAD, scale.batch_size))

    def deadline(tasks: float) -> Policy:
        return policies.deadline(tasks * seconds)

    def adaptive_load(learning_rate: float) -> Policy:
        return policies.adaptive_load(learning_rate, sizes)

    def hps(bits: int) -> Method:
        pipeline = transport.pipelined(_coded(bits), own_steps=scale.own_steps)
        return Method(bsp, load=balanced, transport=pipeline)

    def of(make: Callable[..., Policy | Method], rate: float, **knobs: Iterable[Any]) -> Space:
        return Space(make, {name: tuple(values) for name, values in knobs.items()}, rate, scale.optimizer)

    def local(policy: Policy, rate: float) -> Space:
        """Returns local steps at rates that suit a mini-batch; the search is over the server's rate."""

        def make(steps: int, local_rate: float) -> Method:
            return Method(policy, local=local_steps(steps, scale.optimizer(local_rate)))

        return of(make, rate, steps=(8, 2, 32, 4, 16), local_rate=inner)._replace(optimizer=optax.sgd)

    every = {
        # All workers are waited for.
        "BSP": of(policies.bsp, rate),
        "balanced BSP": of(lambda: Method(bsp, load=balanced), rate),
        "quantized BSP": of(lambda bits: Method(bsp, transport=_coded(bits)), rate, bits=BITS),
        "H-PS": of(hps, rate / 2, bits=BITS),
        "local SGD": local(bsp, 1.0),
        # Some are.
        "K-sync": of(policies.k_sync, rate, k=parts),
        "K-batch-sync": of(policies.k_batch_sync, rate, k=rounds),
        "Rennala": of(policies.rennala, rate, s=rounds),
        "deadline": of(deadline, rate, tasks=(1.5, 1.0, 2.5, 4.0)),
        "SSP": of(policies.ssp, rate, staleness=(3, 1, 16, 8, 2, 32)),
        "K-async": of(policies.k_async, between, k=parts),
        "FedBuff": of(policies.fedbuff, between, k=parts),
        # As many as training tells.
        "DBW": of(policies.dbw, rate / 2),
        "adaptive load": of(adaptive_load, rate / 2),
        # None is.
        "ASP": of(policies.asp, alone),
        "quantized ASP": of(lambda bits: Method(asp, transport=_coded(bits)), alone, bits=BITS),
        "sparse ASP": of(lambda fraction: Method(asp, transport=_sparse(fraction)), alone, fraction=KEPT),
        "DBS-SGD": of(lambda: Method(asp, load=by_speed), alone),
        "Ringmaster": of(policies.ringmaster, alone, r=_numbers(P, 2 * P, P // 2, 4 * P)),
        "adaptive sync": of(policies.adaptive_sync, alone, threshold=_numbers(P // 4, 4 * P, P)),
        "asynchronous local SGD": local(asp, P**-0.5),
    }
    own = PLAIN_SGD if scale.optimizer is not optax.sgd else ()
    return {name: space for name, space in every.items() if name not in own}


def _coded(bits: int) -> Transport:
    return transport.coded(push=codecs.affine(bits), pull=PULL)


def _sparse(fraction: float) -> Transport:
    return transport.coded(push=codecs.error_feedback(codecs.top_k(fraction)), pull=PULL)


def _numbers(*values: int) -> list[int]:
    """Returns the different values that are at least 1."""
    return [*dict.fromkeys(value for value in values if value >= 1)]


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
    every, start = library(scale), (scale.together * scale.alone) ** 0.5
    if not isinstance(methods, Mapping):
        names = every if methods is None else checks.listed("methods", methods)
        return {name: checks.choice("methods", name, every) for name in names}
    if not methods:
        checks.fail("methods", methods, "None or at least one method")
    found = {}
    for name, given in methods.items():
        own = isinstance(given, Mapping)
        found[name] = _narrowed(name, given, every) if own else as_space(name, given)._replace(rate=start)
    return found


def _narrowed(name: Any, given: Mapping[str, Any], every: Mapping[str, Space]) -> Space:
    """Returns a method of the library with other values of its knobs."""
    own, argument = checks.choice("methods", name, every), f"methods[{name!r}]"
    if given and not own.knobs:
        checks.fail(argument, given, "a Policy or a Method (this one has no knobs)")
    for knob in given:
        checks.choice(argument, knob, own.knobs)
    values = {knob: tuple(checks.listed(f"{argument}, {knob}", each)) for knob, each in given.items()}
    return own._replace(knobs={**own.knobs, **values})
