"""Optimizers whose updates do not depend on the scale of gradients: Adam, Lion, RMSProp, sign methods.

A weight on a gradient has no effect there, so weights scale the update instead; unless the optimizer moves
parameters in its own state, too, such as a schedule-free one, whose update is no step of its own.
"""

import contextlib
import functools
import warnings
from typing import Any

import jax
import numpy as np
import optax

from dmlcore.checks import check_optax
from dmlcore.training import pacing
from dmlcore.training.optimizer import plain

FACTOR = 0.25
STEPS, FIRST = 8, 6  # steps that are tried, of which the first do not count: RAdam begins as SGD
WEIGHTS = "the weights of pushes scale the updates; dml.weigh_gradients(optimizer) turns this off"
HELD = (
    "the weights of pushes have hardly any effect: it moves parameters in its state, so they scale gradients"
)
MAGNITUDES = 10.0, 0.01  # of the gradients that are tried
PACE = 1e-3  # samples, and seconds, between steps that are tried
LATER = 0, 100, 10_000, 1_000_000  # progress at which they begin, if a schedule is 0 before


class WeighedGradients(optax.GradientTransformationExtraArgs):
    """An optimizer for which `scale_free` is False."""


def weigh_gradients(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Returns an optimizer whose gradients are weighted, and not its updates, even if it is scale-free.

    A policy gives each push g_i of an update a weight w_i. Plain SGD is given the gradient g = sum w_i g_i.
    Where u(g) is the update of an optimizer that does not depend on the scale of its gradients, such as Adam,
    weights whose sum w differs from 1 would have no effect: u(w g) = u(g). The server therefore makes the
    update w u(g / w), as plain SGD does, so that a stale push that counts half moves the parameters half as
    far; of all parameters, if some have such an optimizer. With this function it makes the update u(g), as an
    optimizer on its own would. So it does for optimizers whose state begins with the parameters and moves
    them, too, as schedule-free ones and averages of parameters do: w u(g / w) would move both apart.

    Args:
        optimizer: optax optimizer. The result is to be passed on as it is, not within a chain.

    Returns:
        The optimizer.

    Raises:
        ValueError: it is no optax optimizer.

    >>> import dmlcore as dml
    >>> problem, cluster = dml.problems.digits_mlp(8), dml.Cluster.uniform(2)
    >>> optimizer = weigh_gradients(optax.adam(0.01))
    >>> dml.train(problem, cluster, dml.fedasync(0.5), optimizer, updates=4)
    Run(fedasync(alpha=0.5), 4 updates, 0.064 s, loss 2.245)
    """
    check_optax("optimizer", optimizer)
    return WeighedGradients(optimizer.init, optimizer.update)


@functools.cache
def say_once(so: str) -> None:
    """Warns, once in a process, of what follows for a run whose optimizer is scale-free."""
    warnings.warn(f"optimizer: its updates do not depend on the scale of gradients, so {so}", stacklevel=3)


def scale_free(optimizer: Any, params: Any) -> bool:
    """Returns whether weights scale the updates of an optimizer; see `tried`."""
    free, held = tried(optimizer, params)
    return free and not held


def tried(optimizer: Any, params: Any) -> tuple[bool, bool]:
    """Returns whether an optimizer's updates are scale-free, and whether it moves parameters in its state.

    They are if gradients that are four times smaller make updates of some array that are hardly smaller. It
    tries gradients of two magnitudes on small parameters with the structure of `params`. What the optimizer
    does without gradients, such as weight decay, does not count.
    """
    if isinstance(optimizer, WeighedGradients):
        return False, False
    leaves, tree = jax.tree.flatten(params)
    kinds = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
    for most in (4, max((size for shape, _ in kinds for size in shape), default=1)):
        # An optimizer may be made for parameters of just these shapes.
        with contextlib.suppress(Exception):
            return _tried(optimizer.init, optimizer.update, tree, kinds, most)
    return False, False


@functools.lru_cache(maxsize=128)
def _tried(init: Any, update: Any, tree: Any, kinds: tuple[Any, ...], most: int) -> tuple[bool, bool]:
    rng = np.random.default_rng(0)

    def drawn() -> Any:
        shapes = [([min(size, most) for size in shape], dtype) for shape, dtype in kinds]
        return jax.tree.unflatten(
            tree, [np.asarray(rng.normal(size=shape), dtype) for shape, dtype in shapes]
        )

    params, gradients = drawn(), [drawn() for _ in range(STEPS)]

    # Single operations are compiled already, but a loop would be compiled again in each step.
    operations = str(jax.make_jaxpr(functools.partial(pacing.updated, update))(params, init(params), params))
    if "scan[" in operations or "while[" in operations:
        update = jax.jit(update)

    def counted(leaf: Any, later: int) -> Any:
        counts = later and not np.ndim(leaf) and jax.dtypes.issubdtype(leaf.dtype, np.integer)
        return np.asarray(leaf + later, leaf.dtype) if counts else leaf

    @functools.cache
    def after(magnitude: float, later: int) -> tuple[np.ndarray, Any]:
        """Returns the norm, by array, of what such gradients change of the updates; and the state."""
        state = rest = jax.tree.map(lambda leaf: counted(leaf, later), init(params))
        found = np.zeros(len(kinds))
        for number, each in enumerate(gradients):
            at = [later + PACE * number] * 2
            given = jax.tree.map(lambda leaf: np.asarray(magnitude * leaf, leaf.dtype), each)
            moved, state = pacing.updated(update, given, state, params, at)
            still, rest = pacing.updated(update, jax.tree.map(np.zeros_like, each), rest, params, at)
            gaps = jax.tree.map(lambda one, two: np.asarray(one - np.nan_to_num(two)), moved, still)
            found += [float((gap**2).sum()) * (number >= FIRST) for gap in jax.tree.leaves(gaps)]
        return found**0.5, state

    later = next((later for later in LATER if after(MAGNITUDES[0], later)[0].any()), LATER[0])
    pairs = [(after(FACTOR * each, later)[0], after(each, later)[0]) for each in MAGNITUDES]
    free = np.logical_and.reduce([(less > FACTOR**0.5 * more) & (more > 0) for less, more in pairs]).any()
    own, states = jax.tree.leaves(params), (init(params), after(MAGNITUDES[0], later)[1])
    held = any(
        any(np.array_equal(begin, each) for each in own) and not np.array_equal(begin, end)
        for begin, end in zip(*(map(plain, jax.tree.leaves(state)) for state in states), strict=False)
    )
    return bool(free), held
