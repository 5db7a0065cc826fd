"""Fragments of the parameters, which are synchronised in turn: Streaming DiLoCo.

The flattened parameters are divided into P contiguous fragments, as equal as can be. Update u is of the
fragment u mod P.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from dmlcore.problems.problem import Inner
from dmlcore.training import pacing


class Streamed(NamedTuple):
    """What a worker keeps besides the state of its local optimizer."""

    params: Any  # its own parameters
    clock: Any  # of its next task


def within(params: Any, number: Any, fragments: int) -> Any:
    """Returns which parameters are in fragment `number` mod `fragments`, a tree like the parameters."""
    flat, shaped = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), bool), params))
    bounds = jnp.array([flat.size * each // fragments for each in range(fragments + 1)])
    first, place = number % fragments, jnp.arange(flat.size)
    return shaped((bounds[first] <= place) & (place < bounds[first + 1]))


def chosen(where: Any, one: Any, two: Any) -> Any:
    """Returns the leaves of the first tree where the condition holds, and else of the second one."""
    return jax.tree.map(jnp.where, where, one, two)


def merged(inner: Inner, pulled: Any, own: Streamed) -> Any:
    """Returns the parameters with which a task begins: its worker's own, with the fragment that has come."""
    answers = own.clock - inner.delay  # the update that made what it pulls; none if negative
    come = within(pulled, answers, inner.rule.fragments)
    # Of a sum of two products a processor rounds either one, and programs differ in which.
    mixed = jax.tree.map(lambda mine, new: new + inner.rule.mixing * (mine - new), own.params, pulled)
    return chosen(jax.tree.map(lambda each: each & (answers >= 0), come), mixed, own.params)


def of_fragments(optimizer: Any, fragments: int) -> optax.GradientTransformation:
    """Returns an optimizer that updates one fragment after the other, each with a state of its own.

    What is like the parameters in a state is kept once, as fragments share no parameter; the rest, such as
    a count of steps, is kept for each fragment.
    """
    of_one = pacing.told_all(optimizer.update)

    def shared(params: Any) -> Any:
        """Returns the structure of a state, with trees like the parameters as leaves: True for these."""
        kinds, state = jax.eval_shape(lambda params: (params, optimizer.init(params)), params)
        return jax.tree.map(lambda part: part == kinds, state, is_leaf=lambda part: part == kinds)

    def init(params: Any) -> Any:
        def begun(once: bool, part: Any) -> Any:
            return part if once else jnp.broadcast_to(part, (fragments, *jnp.shape(part)))

        return jax.tree.map(begun, shared(params), optimizer.init(params)), jnp.zeros((), jnp.int32)

    def update(pushed: Any, state: Any, params: Any, **told: Any) -> tuple[Any, Any]:
        states, turn = state
        once, here = shared(params), within(params, turn, fragments)

        def mine(once: bool, part: Any, start: Any) -> Any:  # norms do not see other fragments
            return chosen(here, part, start) if once else part[turn]

        own = jax.tree.map(mine, once, states, optimizer.init(params))
        updates, after = of_one(pushed, own, params, **told)

        def put(once: bool, part: Any, new: Any) -> Any:
            return chosen(here, new, part) if once else part.at[turn].set(new)

        updates = chosen(here, updates, optax.tree.zeros_like(updates))
        return updates, (jax.tree.map(put, once, states, after), (turn + 1) % fragments)

    return optax.GradientTransformationExtraArgs(init, update)
