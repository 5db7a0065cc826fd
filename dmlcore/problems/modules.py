"""Problems of flax modules: the module as pure functions, with random keys where it has dropout."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from dmlcore import checks

from .problem import Batch, Params, Problem
from .supervised import Judge, supervised
from .validation import check_rows

if TYPE_CHECKING:
    from flax import nnx


class Functions(NamedTuple):
    """A module as pure functions.

    Args:
        init: random key -> parameters, as the module initialises them.
        train: parameters, inputs, random key -> outputs while training. The key is for dropout, if any.
        judge: parameters, inputs -> outputs without dropout.
        keyed: whether `train` needs the key.
        name: of the module's class.
    """

    init: Callable[[jax.Array], Params]
    train: Callable[[Params, Any, Any], Any]
    judge: Callable[[Params, Any], Any]
    keyed: bool
    name: str


def functions(build: Callable[[nnx.Rngs], nnx.Module]) -> Functions:
    """Returns a module of flax.nnx as pure functions; its arrays that are no variables are constants.

    Raises:
        ValueError: it is no module, or has variables that are neither parameters nor random streams, such as
            the statistics of `nnx.BatchNorm`; or it is one of flax.linen with dropout.
    """
    # Imported here because it takes half a second, and most problems do without it.
    from flax import linen, nnx

    expected = "a function from nnx.Rngs to a module of flax.nnx"
    if isinstance(build, linen.Module) or (isinstance(build, type) and issubclass(build, linen.Module)):
        hint = "lambda rngs: nnx.bridge.ToNNX(module, rngs=rngs).lazy_init(inputs)"
        checks.reject("build", "a module of flax.linen", expected, hint)
    if isinstance(build, nnx.Module):
        name = type(build).__name__
        checks.reject("build", f"the module {name} itself", expected, f"lambda rngs: {name}(..., rngs=rngs)")
    module = build(nnx.Rngs(0))  # not traced, so that constants have values
    if not isinstance(module, nnx.Module):
        checks.fail("build", module, expected)
    if isinstance(module, nnx.bridge.ToNNX):  # it is not told whether it trains
        called = inspect.signature(type(module.to_nnx__module).__call__).parameters
        if flags := sorted({"deterministic", "train", "training"} & {*called}):
            expected = "a module of flax.nnx that passes it on, see docs/your_model.md"
            checks.reject("build", f"a module of flax.linen with the argument {flags[0]}", expected)
        module.to_nnx__rngs = None  # dropout that is always on raises an error
    module.eval()
    judging = nnx.graphdef(module)
    module.train()
    kinds = nnx.Param, nnx.RngState, nnx.Variable
    graph, params, streams, rest, constants = nnx.split(module, *kinds, ...)
    if others := sorted({type(each).__name__ for _, each in nnx.to_flat_state(rest)}):
        expected = (
            "a module with parameters alone (statistics can be parameters, see CONTRIBUTING.md; LayerNorm "
        )
        checks.fail("build", others, expected + "and GroupNorm have none)")
    if not jax.tree.leaves(params):
        checks.reject("build", "a module without parameters", "a module with parameters")
    leaves, tree = jax.tree.flatten(streams)

    def seeded(key: Any) -> Any:
        """Returns the random streams of the module that begin with a key."""

        def begun(place: int, leaf: Any) -> jax.Array:
            if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return jnp.zeros(leaf.shape, leaf.dtype)
            own = jax.random.fold_in(key, place)
            return jax.random.split(own, leaf.shape) if leaf.shape else own

        fresh = [begun(place, leaf) for place, leaf in enumerate(leaves)]
        return jax.tree.unflatten(tree, fresh)

    def merged(graph: Any, params: Params, key: Any) -> Any:
        return nnx.merge(graph, params, seeded(key), constants)

    def init(key: jax.Array) -> Params:
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

    return Functions(
        jax.jit(init),
        lambda params, inputs, key: merged(graph, params, key)(inputs),
        lambda params, inputs: merged(judging, params, jax.random.key(0))(inputs),
        bool(leaves),
        type(module).__name__,
    )


def from_flax(
    build: Callable[[nnx.Rngs], nnx.Module],
    loss: Judge,
    data: Batch,
    test_data: Batch | None = None,
    *,
    inputs: Callable[[Batch], Any] | None = None,
    metrics: Mapping[str, Judge] | None = None,
    eval_samples: int = 5000,
    coupled: bool = False,
    name: str | None = None,
) -> Problem:
    """Returns the problem that trains a module of flax.nnx; tasks are gradients of the mean loss.

    Guarantees: parameters start as the module initialises them, from the run's key. Dropout has a random key
    for each sample (for each task, if `coupled`), a function of (seed, worker, clock, position in the task),
    the same on every engine and in replay; it is off while metrics are computed. Keep the object: compiled
    programs belong to it.

    Args:
        build: `nnx.Rngs` -> the module, such as `lambda rngs: nnx.Linear(64, 10, rngs=rngs)`. Its variables
            are floating-point parameters; batch statistics are refused, because a task has no state. Arrays
            that are no variables, such as masks, are constants, those of `build(nnx.Rngs(0))`. A module of
            `flax.linen` is wrapped by `nnx.bridge`, as the page on own models says.
        loss: outputs, batch of B samples -> loss of each sample, (B,).
        data: training samples, a pytree of arrays with the same first axis N, such as a dict of `inputs`
            (N, ...) and `labels` (N,).
        test_data: samples like those of `data`, for `test_loss` and `metrics`. Default: None, `metrics` judge
            the training data.
        inputs: batch -> what the module is called with. Default: None, the entry `inputs` of the batch.
        metrics: name -> function of outputs and batch, a number for each sample, (B,), of which the history
            has the mean. Default: None, `loss` and `test_loss` alone.
        eval_samples: metrics use so many first samples of each part, >= 1. Default: 5000.
        coupled: whether the loss of a sample depends on the other rows of its batch, as for `Problem`.
        name: the name in plots and traces. Default: None, that of the module's class.

    Returns:
        The problem. Parameters are nested dicts, as of `nnx.to_pure_dict`.

    Raises:
        ValueError: `build` makes no module of flax.nnx, or one with other variables than parameters and
            random streams, or one of flax.linen that is not told whether it trains; or an argument is wrong,
            which the message names.

    >>> import numpy as np, optax
    >>> from flax import nnx
    >>> rows = {"inputs": np.eye(4, dtype="float32"), "labels": np.arange(4)}
    >>> problem = from_flax(
    ...     lambda rngs: nnx.Linear(4, 4, rngs=rngs),
    ...     lambda scores, batch: optax.softmax_cross_entropy_with_integer_labels(scores, batch["labels"]),
    ...     rows,
    ... )
    >>> problem, problem.parameter_bytes
    (Problem(Linear, 4 samples), 80)
    """
    checks.integer("eval_samples", eval_samples, low=1)
    checks.boolean("coupled", coupled)
    metrics = {} if metrics is None else metrics
    if not isinstance(metrics, Mapping):
        checks.fail("metrics", metrics, "a dict of functions")
    judges = {f"metrics[{key!r}]": judge for key, judge in metrics.items()}
    check_rows("data", data)
    if inputs is None:
        if not isinstance(data, Mapping) or "inputs" not in data:
            got = str([*data]) if isinstance(data, Mapping) else type(data).__name__
            checks.reject("data", got, "a dict with the entry inputs, or inputs= (a function of a batch)")
        inputs = operator.itemgetter("inputs")
    for argument, given in {"build": build, "loss": loss, "inputs": inputs, **judges}.items():
        checks.function(argument, given)
    if test_data is not None:
        check_rows("test_data", test_data)
    if taken := sorted({"loss", "test_loss"} & {*metrics}):
        checks.fail("metrics", taken, "other names than loss and test_loss, which `loss` has")
    made = functions(build)

    def whole(params: Params, batch: Batch, key: Any) -> jax.Array:
        return loss(made.train(params, inputs(batch), key), batch)

    def each(params: Params, batch: Batch, keys: jax.Array) -> jax.Array:
        if coupled:
            return whole(params, batch, keys[0])
        alone = jax.tree.map(lambda leaf: leaf[:, None], batch)  # a batch of one for each key
        return jax.vmap(whole, (None, 0, 0))(params, alone, keys).reshape(-1)

    return supervised(
        name or made.name,
        made.init,
        lambda params, batch: made.judge(params, inputs(batch)),
        lambda params, found, batch: loss(found, batch),
        data,
        test_data,
        metrics=metrics,
        eval_samples=eval_samples,
        coupled=coupled,
        losses=each if made.keyed else lambda params, batch: whole(params, batch, None),
    )
