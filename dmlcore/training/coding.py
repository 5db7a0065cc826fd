"""The effect of a transport on values: rounding by codecs with a memory per worker, and own steps.

Memories have an axis of W + 2 workers: the last two entries belong to no worker. Padding rows use the first
of them; the other one never changes, and is the memory at the start of a run.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dmlcore import checks
from dmlcore.cluster.faults import loses_memory
from dmlcore.methods.codecs import transmit
from dmlcore.methods.local import ALL_REMEMBER, ALL_STAY, IN_STEP
from dmlcore.methods.transport import resolve
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training.batches import PULL_CODES, PUSH_CODES, run_key, task_key
from dmlcore.training.compiling import isolated
from dmlcore.types import Codec, LocalSteps, Transport


class Coding(NamedTuple):
    """The effect of a transport on values; a static argument of loops."""

    pull: Codec | None
    push: Codec | None
    own_steps: bool


class Memory(NamedTuple):
    """The memories of workers and codecs, by worker; fields are () if they are not needed."""

    keys: Any  # random keys of the codecs for pull and push, as words, (W + 2, 2, ...)
    pull: Any  # memory of the codec for pulls, (W + 2, ...)
    push: Any  # memory of the codec for pushes, (W + 2, ...)
    own: Any  # own step of each worker since its last answer, trees like the parameters, (W + 2, ...)


# What messages ask for if something may be lost between two tasks of a worker.
WITHOUT_MEMORY = "a transport without memory, unlike error_feedback, difference, power_sgd and own_steps"
WITHOUT_STATE = (
    "local steps without memory, unlike keep_state, control_variates, dynamic, fragments and mixing"
)
EVERY_PUSH = "a policy that applies every push that arrives, in order"


def coding_of(trace: Trace) -> Coding | None:
    """Returns the effect of a trace's transport on values; None: no effect.

    Raises:
        ValueError: the transport has a memory, and the updates do not contain all pushes; or its name has a
            codec that is not in `CODECS`.
    """
    if not trace.metadata.get("changes_values"):
        return None
    try:
        coding = coding_by(resolve(trace.metadata["transport"]))
    except ValueError as error:  # a trace has no more than the name
        raise ValueError(
            f"{error}; if it is a codec of your own, put its function into dml.codecs.CODECS"
        ) from None
    if coding is not None and remembers(coding):
        _check_complete(trace, "transport", trace.metadata["transport"], WITHOUT_MEMORY, coding.own_steps)
    return coding


def coding_by(transport: Transport) -> Coding | None:
    """Returns the effect of a transport on values; None: no effect."""
    named = Coding(transport.pull, transport.push, transport.own_steps)
    return named if transport.changes_values else None


def remembers(coding: Coding | None) -> bool:
    """Returns whether messages depend on earlier messages of the same worker."""
    if coding is None:
        return False
    probe = jnp.zeros(1)
    return coding.own_steps or any(jax.tree.leaves(codec.init(probe)) for codec in coding[:2] if codec)


def memory_of(transport: Transport, local: LocalSteps | None) -> tuple[str, str, str] | None:
    """Returns the part of a method that has a memory of a worker's earlier tasks, for messages.

    That is its argument, its value, and the values without memory. None: no part has a memory.
    """
    if remembers(coding_by(transport)):
        return "transport", transport.name, WITHOUT_MEMORY
    if local is not None and local.remembers:
        return "local", local.name, WITHOUT_STATE
    return None


def check_kept(trace: Trace, problem: Problem) -> None:
    """Raises ValueError if what workers keep of local steps would depend on tasks that are in no update.

    If the server keeps the mean of it, none may be lost. If workers keep their own parameters, all are to be
    in every update, and to pull every version.
    """
    _check_complete(trace, "local", trace.metadata["local"], WITHOUT_STATE)
    if problem.inner is None:
        return
    streams, incidents = problem.inner.rule.streams, trace.metadata.get("incidents", ())
    if streams:
        tasks = trace.tasks[trace.tasks["update"] >= 0]
        update, version = tasks["update"], (tasks["clock"] + 1 - problem.inner.delay).clip(lower=0)
        in_step = (tasks["clock"] == update) & (tasks["version_read"] == version)
        if not in_step.all() or (update.value_counts() != trace.num_workers).any():
            checks.reject("policy", trace.metadata["policy"], IN_STEP)
    # Own parameters are lost also where a worker was back in time for the update.
    gone = {each["kind"] for each in incidents if loses_memory(each) or (streams and each["kind"] == "leave")}
    if gone and problem.inner.rule.must_remember:
        expected = ALL_STAY if streams else ALL_REMEMBER
        checks.reject("trace", f"one with incidents {sorted(gone)}", expected)


def _check_complete(trace: Trace, name: str, given: str, expected: str, lost: bool = False) -> None:
    """Raises ValueError if a push that is in no update comes before one that is, for the same worker.

    The memory of `given` would depend on that push; with `lost`, also on tasks whose push has never arrived.
    """
    tasks = trace.tasks.sort_values(["worker", "clock"])
    applied = tasks["update"] >= 0
    sent = applied | tasks["push_end"].notna() | lost
    gone = sent & ~applied & applied[::-1].groupby(tasks["worker"]).cummax()[::-1]
    back = tasks["update"].where(applied).groupby(tasks["worker"]).diff() < 0
    if (gone | back).any():
        first = tasks[gone | back].iloc[0]
        when = "no update" if first["update"] < 0 else "an earlier update"
        push = f"the push of worker {first['worker']:g}, clock {first['clock']:g}, is in {when}"
        checks.reject(name, given, f"{expected} (under {trace.metadata['policy']} {push})", EVERY_PUSH)


def start(coding: Coding | None, seed: int, num_workers: int, params: Any) -> Any:
    """Returns the memories at the start of a run, when every worker has `params`; () without coding."""
    if coding is None:
        return ()
    nothing = optax.tree.zeros_like(params)
    memory = Memory(
        jnp.stack([jax.random.key_data(run_key(seed, stream)) for stream in (PULL_CODES, PUSH_CODES)]),
        coding.pull.init(params) if coding.pull else (),
        coding.push.init(nothing) if coding.push else (),
        nothing if coding.own_steps else (),
    )
    return for_each(num_workers + 2, memory)


def for_each(count: int, tree: Any) -> Any:
    """Returns the memories of `count` workers, or of anything else, which are all like this one."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), tree)


def of(memory: Any, worker: Any) -> Any:
    """Returns the memory of one worker."""
    return jax.tree.map(lambda leaf: leaf[worker], memory)


def put(memory: Any, worker: Any, part: Any) -> Any:
    """Returns the memories with a new memory of one worker."""
    return jax.tree.map(lambda leaf, own: leaf.at[worker].set(own), memory, part)


def received(coding: Coding | None, part: Any, worker: Any, clock: Any, params: Any) -> tuple[Any, Any]:
    """Returns the parameters that a worker computes on when the server sends `params`, and its new memory."""
    if coding and coding.pull:
        params, memory = _transmitted(coding.pull, part.keys[0], worker, clock, part.pull, params)
        part = part._replace(pull=memory)
    if coding and coding.own_steps:
        params = jax.tree.map(jnp.add, params, part.own)
    return params, part


def sent(
    coding: Coding | None,
    part: Any,
    worker: Any,
    clock: Any,
    gradient: Any,
    view: Any = None,
    step: Any = None,
) -> tuple[Any, Any]:
    """Returns the received value of a gradient computed on `view`, and the worker's new memory.

    The gradient is not weighted yet. Own steps need a view, and `step`, which maps a gradient and parameters
    to the parameters after one step.
    """
    if coding and coding.own_steps:
        part = part._replace(own=jax.tree.map(jnp.subtract, step(gradient, view), view))
    if coding and coding.push:
        gradient, memory = _transmitted(coding.push, part.keys[1], worker, clock, part.push, gradient)
        part = part._replace(push=memory)
    return gradient, part


def _transmitted(
    codec: Codec, words: Any, worker: Any, clock: Any, memory: Any, value: Any
) -> tuple[Any, Any]:
    """Returns the received value and the codec's new memory, isolated: the same on a worker and in replay."""
    key = task_key(jax.random.wrap_key_data(words), worker, clock)
    return isolated(clock >= 0, functools.partial(transmit, codec), key, memory, value)


class Coder:
    """A worker's end of links with codecs, for engines with a real clock; it starts with `params`."""

    def __init__(self, coding: Coding, seed: int, worker: int, params: Any):
        self._coding, self._worker = coding, worker
        self.memory = of(start(coding, seed, 0, params), 0)

    def compile(self, params: Any, gradient: Any) -> None:
        """Compiles the functions for values like these, without changing the memory."""
        memory = self.memory
        self.received(0, params)
        jax.block_until_ready(self.sent(0, gradient))
        self.memory = memory

    def received(self, clock: int, params: Any) -> Any:
        """Returns the parameters on which the worker computes task `clock` when the server sends `params`."""
        view, self.memory = _received(self._coding, self.memory, self._worker, clock, params)
        return view

    def sent(self, clock: int, gradient: Any) -> Any:
        """Returns the received value of the gradient of task `clock`."""
        found, self.memory = _sent(self._coding, self.memory, self._worker, clock, gradient)
        return found


_received = jax.jit(received, static_argnames="coding")
_sent = jax.jit(sent, static_argnames="coding")
