"""The training problem: a model, the computation of a task, the data, and an evaluation of parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from dmlcore import checks, notebook
from dmlcore.calls import kept
from dmlcore.problems.shards import Rule, num_samples, owners_of
from dmlcore.types import LocalSteps
from dmlcore.units import quantity

Params = Any
Batch = Any


class Inner(NamedTuple):
    """The local steps of a task."""

    rule: LocalSteps  # without its name and the number of steps, on which no program depends
    batch_size: int  # samples per step
    delay: int = 0  # tasks from a push to the one that has the answer; 0: workers keep no parameters


@dataclass(frozen=True, eq=False)
class Problem:
    """A training problem as pure functions on explicit data.

    Exactly one of `losses` and `update` is given. With `losses` the tasks are gradients: a task on a random
    batch of B samples computes the gradient of `mean(losses(params, batch))`. With `update` the problem is
    additive: a task is itself an update u, and with `optax.identity()` the server computes
    params <- params + u. Workers of an additive problem own samples: of P workers, worker w owns the samples
    w, w + P, w + 2P, ..., and takes them in turn.

    The first training checks a problem, see `dmlcore.problems.validation`. The user's cache folder remembers
    the problems that have passed.

    Problems compare and hash by identity, and a compiled program belongs to one problem object. The functions
    of `dml.problems` return the same object for the same arguments, as long as something refers to it or it
    is one of the last few that they made.

    Args:
        name: the name in plots and traces.
        init: random key -> parameters, any pytree of arrays, of floating-point numbers if tasks are
            gradients. D is the number of parameters.
        data: training samples, a pytree of NumPy or JAX arrays with the same first axis N; a batch of B
            samples is B rows of each.
        evaluate: parameters, eval_data -> dict of metrics, scalars; `loss` is the training objective.
        eval_data: the data that `evaluate` uses, any pytree of arrays.
        optimum: the minimum of `loss`. Default: None, not known.
        losses: parameters, batch of B samples -> loss of each sample, shape (B,). The loss of a sample must
            depend on its own row only, so that padding and rows of other tasks change nothing; the check of
            the problem tests this. A function with a third argument, `losses(params, batch, keys)`, also
            receives random keys, one per sample, shape (B,), for dropout or augmentation. A key is a function
            of (seed, worker, clock, position of the sample in its task), so the first b keys do not depend on
            the padding. A third argument with a default value receives no keys unless its name is `keys` or
            `key`. Default: None, the problem is additive.
        coupled: True declares that the loss of a sample depends on the other rows of the batch, as with batch
            statistics or contrastive losses. A task is then computed on exactly its own rows, without
            padding, and never merged with other tasks into one gradient; JAX compiles once per batch size.
        update: parameters as the worker sees them, batch of B samples, random key -> additive update u, a
            tree with the structure and shapes of these parameters. The key is a function of (seed, worker,
            clock). Default: None, tasks are gradients of `losses`.
        local: names of parameters with one row per sample, for parameters that are a dict. A row stays with
            the worker that owns the sample, and its transfer takes no time; `update` sees and changes the
            rows of its batch. Default: (), no such parameters.
        owner: the worker that owns each sample, shape (N,), as set by `sharded`. Default: None, all workers
            draw from all samples.
        inner: the local steps of a task, as set by `with_steps`. Default: None, a task is one gradient.
        message_bytes: the size of the parameters in messages, as set by `with_parameter_bytes`. Default:
            None, their own size.

    Raises:
        ValueError: not exactly one of `losses` and `update` is given; `local` is not a tuple, or is given
            without `update`; or `coupled` is not a bool, or is True with `update`.

    >>> from dmlcore.problems import linear_regression
    >>> problem = linear_regression(num_samples=20, num_features=3)
    >>> problem
    Problem(linear_regression, 20 samples)
    >>> params = problem.init(jax.random.key(0))
    >>> batch = jax.tree.map(lambda rows: rows[:4], problem.data)
    >>> problem.losses(params, batch).shape
    (4,)
    """

    name: str
    init: Callable[[jax.Array], Params]
    data: Batch
    evaluate: Callable[[Params, Any], Mapping[str, jax.Array]]
    eval_data: Any
    optimum: float | None = None
    losses: Callable[..., jax.Array] = field(default=cast(Any, None), kw_only=True)
    coupled: bool = field(default=False, kw_only=True)
    update: Callable[[Params, Batch, jax.Array], Params] = field(default=cast(Any, None), kw_only=True)
    local: tuple[str, ...] = field(default=(), kw_only=True)
    owner: np.ndarray | None = field(default=None, kw_only=True)
    inner: Inner | None = field(default=None, kw_only=True)
    message_bytes: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if (self.losses is None) == (self.update is None):
            checks.fail("losses, update", (self.losses, self.update), "exactly one of the two functions")
        if not isinstance(self.local, tuple) or (self.local and not self.additive):
            checks.fail("local", self.local, "a tuple of names of parameters, with an update")
        if checks.boolean("coupled", self.coupled) and self.additive:
            checks.fail("coupled", self.coupled, "False (an update always depends on its whole batch)")

    def sharded(self, owner: Rule | Sequence[int] | np.ndarray) -> Problem:
        """Returns this problem with data that workers own: every task draws from its own worker's samples.

        A task of B samples draws them at random, with replacement, as a function of (seed, worker, clock). So
        BSP with P workers minimises the mean of the workers' own mean losses, f = (1/P) sum_w f_w, which is
        the mean over samples only if all workers own equally many. While a worker is absent, its samples are
        not drawn. `evaluate` still uses all data.

        Args:
            owner: a rule such as `dml.shards.dirichlet(8, 0.1)`, or the number of the worker that owns each
                sample, shape (N,). The cluster must have as many workers as there are owners, and each worker
                must own at least one sample.

        Returns:
            The problem with `owner` set; the same object for the same owners.

        Raises:
            ValueError: `owner` is neither of these, a worker owns no sample, or the problem is already
                sharded, or additive (then workers own samples already).

        >>> from dmlcore.problems import digits_mlp
        >>> from dmlcore.problems.shards import iid
        >>> digits_mlp().sharded(iid(4)) is digits_mlp().sharded(iid(4))
        True
        """
        if self.additive or self.owner is not None:
            why = "additive, so workers own their samples" if self.additive else "already sharded"
            checks.fail("problem", self, f"a problem that can be sharded (this one is {why})")
        found = np.asarray(owners_of(owner, self.data), np.int32)
        rule = str(owner) if isinstance(owner, Rule) else f"{found.max() + 1} shards"
        return self._changed(name=f"{self.name}, {rule}", owner=found.tobytes())

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for another process, without the problems made from this one."""
        return {name: value for name, value in vars(self).items() if name != "_changed"}

    @functools.cached_property
    def _changed(self) -> Callable[..., Problem]:
        """Fields -> a copy with them, which does not need to be checked again; the same for the same fields.

        An owner is given as bytes.
        """

        @kept
        def made(**fields: Any) -> Problem:
            if "owner" in fields:
                fields["owner"] = np.frombuffer(fields["owner"], np.int32)
            problem = dataclasses.replace(self, **fields)
            vars(problem)["checked"] = self.checked
            return problem

        return made

    def with_steps(self, local: LocalSteps | None, batch_size: int, pipelined: bool = False) -> Problem:
        """Returns this problem, whose tasks make local steps instead of one gradient.

        Args:
            local: the local steps. None: the problem stays as it is.
            batch_size: samples per mini-batch, of one local step.
            pipelined: whether a worker computes a task while its last push and the answer to it travel.

        Returns:
            The problem with `inner` set; the same object for the same arguments.

        Raises:
            ValueError: the problem is additive.

        >>> import optax
        >>> from dmlcore.methods.local import local_steps
        >>> from dmlcore.problems import linear_regression
        >>> problem = linear_regression(num_samples=20, num_features=3)
        >>> problem.with_steps(local_steps(4, optax.sgd(0.1)), batch_size=8).inner.batch_size
        8
        """
        if local is None:
            return self
        if self.additive:
            checks.fail("local", local, f"None (tasks of {self.name} are themselves updates)")
        delay = (2 if pipelined else 1) if local.streams else 0
        key = Inner(local._replace(name="", steps=1, normalised=False), batch_size, delay)
        return self if key == self.inner else self._changed(inner=key)

    def with_parameter_bytes(self, parameter_bytes: int | str) -> Problem:
        """Returns this problem with messages as large as those of another model, for which it stands.

        Its training does not change: transfers, queues, codecs and accounts count the bytes of the other
        model, whose tensors are this problem's, all enlarged by the same factor; of a matrix, both sides by
        its root.

        Args:
            parameter_bytes: size of the other model's parameters in bytes, >= 1, or with a unit, such as
                "5.2GB".

        Returns:
            The problem with `message_bytes` set; the same object for the same size.

        Raises:
            ValueError: `parameter_bytes` is no such size.

        >>> from dmlcore.problems import linear_regression
        >>> linear_regression(num_samples=20, num_features=3).with_parameter_bytes("5.2GB").parameter_bytes
        5200000000
        """
        size = quantity("parameter_bytes", parameter_bytes, "size")
        if not 1 <= size <= checks.MAX_INT:
            checks.fail("parameter_bytes", parameter_bytes, "a size of at least one byte")
        return self._changed(message_bytes=round(size))

    def check_workers(self, num_workers: int) -> None:
        """Raises ValueError if the data are sharded for another number of workers.

        Args:
            num_workers: number of workers of the cluster.

        Raises:
            ValueError: the number of owners differs.

        >>> from dmlcore.problems import linear_regression
        >>> from dmlcore.problems.shards import iid
        >>> linear_regression(num_samples=20, num_features=3).sharded(iid(4)).check_workers(4)
        """
        if self.owner is not None and (shards := int(self.owner.max()) + 1) != num_workers:
            checks.reject("cluster", f"{num_workers}", f"{shards} workers, one for each shard of {self.name}")

    def check_batch(self, batch_size: int) -> None:
        """Raises ValueError if the samples of a task, with their indices, do not fit into memory.

        Args:
            batch_size: samples of a task.

        Raises:
            ValueError: they need more memory than the machine has.

        >>> from dmlcore.problems import linear_regression
        >>> linear_regression(num_samples=20, num_features=3).check_batch(32)
        """
        row = 4 + sum(leaf.nbytes for leaf in jax.tree.leaves(self.data)) / self.num_samples
        checks.check_memory("batch_size", batch_size, batch_size * row)

    @property
    def additive(self) -> bool:
        """Whether a task is an additive update and not a gradient."""
        return self.update is not None

    @functools.cached_property
    def keyed(self) -> bool:
        """Whether `losses` take random keys."""
        try:
            given = [*inspect.signature(self.losses).parameters.values()]
        except (TypeError, ValueError):  # it has no Python signature, or is not a function
            return False
        positional = [
            each for each in given if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
        return any(each.default is each.empty or each.name in ("keys", "key") for each in positional[2:3])

    def apart(self, params: Params) -> tuple[Params, dict[str, Any]]:
        """Splits parameters into those that are sent over the network, and the local ones.

        Args:
            params: parameters of this problem.

        Returns:
            The shared parameters, and a dict of the local ones by name.

        Raises:
            KeyError: a local parameter is missing.

        >>> from dmlcore.problems import lasso
        >>> problem = lasso(num_samples=50, num_features=20, num_nonzeros=3)
        >>> shared, local = problem.apart(problem.init(jax.random.key(0)))
        >>> [*shared], [*local]
        (['w'], ['beta'])
        """
        if not self.local:
            return params, {}
        shared = {name: value for name, value in params.items() if name not in self.local}
        return shared, {name: params[name] for name in self.local}

    def together(self, shared: Params, local: Mapping[str, Any]) -> Params:
        """Joins shared and local parameters: the inverse of `apart`.

        Args:
            shared: the parameters that are sent over the network.
            local: the local parameters by name.

        Returns:
            The parameters.

        Raises:
            TypeError: there are local parameters, and `shared` or `local` is not a mapping.

        >>> from dmlcore.problems import lasso
        >>> problem = lasso(num_samples=50, num_features=20, num_nonzeros=3)
        >>> params = problem.init(jax.random.key(0))
        >>> problem.together(*problem.apart(params)).keys() == params.keys()
        True
        """
        return {**shared, **local} if self.local else shared

    @property
    def num_samples(self) -> int:
        """The number of training samples, N."""
        return num_samples(self.data)

    @property
    def shard_sizes(self) -> np.ndarray:
        """The number of samples that each worker owns, (P,); ValueError if the problem is not sharded."""
        if self.owner is None:
            checks.fail("problem", self, "one that is sharded")
        return np.bincount(self.owner)

    @functools.cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics that `evaluate` returns."""
        return tuple(jax.eval_shape(self.evaluate, self.shapes, self.eval_data))

    @functools.cached_property
    def shapes(self) -> Params:
        """The shapes and types of the parameters; ValueError if a local one does not have N rows."""
        shapes = jax.eval_shape(self.init, jax.random.key(0))
        for name in self.local:
            there = shapes.get(name) if isinstance(shapes, dict) else None
            if there is None or there.shape[:1] != (self.num_samples,):
                expected = f"names of parameters in a dict, with a row for each of {self.num_samples} samples"
                checks.fail("local", name, expected)
        return shapes

    @property
    def parameter_bytes(self) -> int:
        """The bytes of a transfer of the parameters, without the local ones, or as told."""
        if self.message_bytes is not None:
            return self.message_bytes
        real = str(jax.dtypes.canonicalize_dtype(float))  # the types of parameters may depend on it
        if real not in self._bytes:
            self._bytes[real] = sum(leaf.size * leaf.dtype.itemsize for leaf in self._travelling)
        return self._bytes[real]

    @property
    def num_parameters(self) -> int:
        """How many numbers a transfer of the parameters has."""
        return sum(map(math.prod, self.tensor_shapes))

    @functools.cached_property
    def tensor_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors that travel, as many numbers as are told.

        Both sides of a larger matrix grow by the same factor; a vector has what is left of its numbers.
        """
        leaves = self._travelling
        if self.message_bytes is None:
            return tuple(leaf.shape for leaf in leaves)
        sizes = [leaf.size for leaf in leaves]
        width = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) / sum(sizes)
        factor = -(-self.message_bytes // width) / sum(sizes)
        told = np.diff(np.round(np.cumsum(sizes) * factor).astype(np.int64), prepend=0).tolist()
        shapes: list[tuple[int, ...]] = []
        for leaf, size in zip(leaves, told, strict=True):
            if leaf.ndim < 2:
                shapes.append((size,))
                continue
            columns = max(1, round(leaf.shape[-1] * factor**0.5))
            rows, left = divmod(size, columns)
            shapes += [(rows, columns), (left,)] if left else [(rows, columns)]
        return tuple(shapes)

    @property
    def _travelling(self) -> list[jax.ShapeDtypeStruct]:
        shapes = jax.eval_shape(lambda key: self.apart(self.init(key))[0], jax.random.key(0))
        return jax.tree.leaves(shapes)

    @functools.cached_property
    def checked(self) -> set[str]:
        """The float types, such as float32, with which `check_problem` has passed; copies keep this set."""
        return set()

    @functools.cached_property
    def _bytes(self) -> dict[str, int]:
        return {}

    _repr_html_ = notebook.html

    def __repr__(self) -> str:
        return f"Problem({self.name}, {self.num_samples} samples)"


def floating(name: str, dtype: Any) -> str:
    """Returns `dtype` if problems support it and it is enabled in JAX: a check for `memoised`.

    >>> floating("dtype", "int8")
    Traceback (most recent call last):
    ValueError: dtype: expected one of 'float32', 'float64', got 'int8'
    """
    dtype = checks.one_of("float32", "float64")(name, dtype)
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        checks.fail(
            name, dtype, "'float32' without 64-bit types in JAX", "it inside `with jax.enable_x64(True)`"
        )
    return dtype


def frozen(array: Any, dtype: Any) -> np.ndarray:
    """Returns a read-only copy of `array`, because several users share a memoised problem."""
    copy = np.array(array, dtype)
    copy.flags.writeable = False
    return copy
