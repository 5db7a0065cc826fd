"""What is trained: a model, what tasks compute, the data, and how a state of the parameters is judged."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks, notebook
from dmlcore.calls import kept
from dmlcore.problems.shards import Rule, num_samples, owners_of
from dmlcore.types import LocalSteps

Params = Any
Batch = Any


class Inner(NamedTuple):
    """What the local steps of a task are."""

    optimizer: Any  # of optax
    batch_size: int  # samples of a step
    keep_state: bool  # a worker's next task goes on with the optimizer's state


@dataclass(frozen=True, eq=False)
class Problem:
    """A training problem as pure functions on explicit data. Exactly one of `losses` and `update` is given.

    A gradient task on a batch of B samples, drawn at random, computes the gradient of
    `mean(losses(params, batch))`. A task of an additive problem is itself the update: with `optax.identity()`
    the server adds it as it is, params <- params + u. Samples are then owned, worker w of P has w, w + P,
    w + 2P, ..., and takes them in turn.

    A problem is checked before it is first trained: `dmlcore.problems.validation`.

    Problems compare and hash by identity: what is compiled for one is for that object. The factories return
    the same object for the same arguments, while something refers to it or it is one of the last they made.

    Args:
        name: what plots and traces call it.
        init: random key -> parameters, any pytree of arrays, floating where there are gradients.
        data: training samples, a pytree of NumPy or JAX arrays that share the leading axis N; a batch is
            rows of it.
        evaluate: parameters, eval_data -> metrics as scalars; `loss` is the training objective.
        eval_data: what `evaluate` looks at, any pytree of arrays.
        optimum: the least attainable `loss`. None: it is not known.
        losses: parameters, batch of B samples -> loss of each sample, shape (B,): of its own row alone, so
            that rows which fill a batch up, and rows of other tasks, change nothing. This is tried out. With
            a third argument, `losses(params, batch, keys)`, it is also given random keys, one for each
            sample, shape (B,), for dropout or augmentation: functions of (seed, worker, clock, place of the
            sample in its task), so that the first b numbers are the same however far a batch is filled up.
            An argument with a default is none of these, unless it is named `keys` or `key`. None: the problem
            is additive.
        coupled: declares that losses depend on the other rows of the batch, as with batch statistics or
            contrastive losses. A task is then computed on exactly its own rows, B its batch size, and never
            as one gradient with other tasks; each batch size that occurs is compiled.
        update: what a worker sees of the parameters, batch of B samples, random key -> additive update u, a
            tree like what it sees. The key is a function of (seed, worker, clock). None: tasks are gradients
            of `losses`.
        local: names of parameters, then a dict, that have a row for each sample. They stay with the owner of
            the sample and are charged to no link; `update` sees, and changes, the rows of its batch.
        owner: the worker that owns each sample, shape (N,), as `sharded` sets it; None: all draw from all.
        inner: the local steps of a task, as `with_steps` sets them; None: a task is one gradient.

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

    def __post_init__(self) -> None:
        if (self.losses is None) == (self.update is None):
            checks.fail("losses, update", (self.losses, self.update), "exactly one of the two")
        if not isinstance(self.local, tuple) or (self.local and not self.additive):
            checks.fail("local", self.local, "a tuple of names of parameters, where an `update` is given")
        if checks.boolean("coupled", self.coupled) and self.additive:
            checks.fail("coupled", self.coupled, "False where an `update` is given: it is of its whole batch")

    def sharded(self, owner: Rule | Sequence[int] | np.ndarray) -> Problem:
        """Returns this problem with data that workers own: every task draws from its own worker's samples.

        A task of B samples draws them at random, with replacement, as a function of (seed, worker, clock). So
        BSP minimises the mean of the workers' own mean losses, f = (1/P) sum_w f_w, which is the mean over
        samples only where shards are of equal size. While a worker is away its samples are not
        drawn. `evaluate` still looks at all data.

        Args:
            owner: a rule such as `dml.shards.dirichlet(8, 0.1)`, or for each sample the number of the worker
                that owns it, shape (N,). The cluster must have as many workers, and each owns a sample.

        Raises:
            ValueError: the owners are not that, or the problem is additive (whose workers own samples
                already) or sharded.

        >>> from dmlcore.problems import digits_mlp
        >>> from dmlcore.problems.shards import iid
        >>> digits_mlp().sharded(iid(4)) is digits_mlp().sharded(iid(4))
        True
        """
        if self.additive or self.owner is not None:
            what = "owns its samples already" if self.additive else "is sharded already"
            checks.fail(
                "problem", self, f"one with `losses` that all workers draw from: each of its workers {what}"
            )
        found = np.asarray(owners_of(owner, self.data), np.int32)
        rule = str(owner) if isinstance(owner, Rule) else f"{found.max() + 1} shards"
        return self._sharded(rule, found.tobytes())  # rules of equal owners are told apart by their names

    def __getstate__(self) -> dict[str, Any]:
        """What another process is sent: not what was made of this problem."""
        return {name: value for name, value in vars(self).items() if name not in ("_sharded", "_stepping")}

    def _changed(self, **fields: Any) -> Problem:
        """Returns this problem with other fields that need no check of its functions."""
        made = dataclasses.replace(self, **fields)
        vars(made)["checked"] = self.checked
        return made

    @functools.cached_property
    def _sharded(self) -> Callable[[str, bytes], Problem]:
        @kept
        def made(rule: str, owner: bytes) -> Problem:
            return self._changed(name=f"{self.name}, {rule}", owner=np.frombuffer(owner, np.int32))

        return made

    def with_steps(self, local: LocalSteps | None, batch_size: int) -> Problem:
        """Returns this problem with tasks of local steps, on mini-batches of `batch_size` samples."""
        if local is None:
            return self
        if self.additive:
            checks.fail("local", local, f"None: tasks of {self.name} are updates themselves")
        key = Inner(local.optimizer, batch_size, local.keep_state)
        if key == self.inner:
            return self
        return self._stepping(key)

    @functools.cached_property
    def _stepping(self) -> Callable[[Inner], Problem]:
        return kept(lambda inner: self._changed(inner=inner))

    def check_workers(self, num_workers: int) -> None:
        """Raises ValueError where the data are those of another number of workers."""
        if self.owner is not None and (shards := int(self.owner.max()) + 1) != num_workers:
            checks.fail("cluster", f"{num_workers} workers", f"{shards}, one for each shard of {self.name}")

    def check_batch(self, batch_size: int) -> None:
        """Raises ValueError where the samples of a task, with their numbers, cannot fit into memory."""
        row = 4 + sum(leaf.nbytes for leaf in jax.tree.leaves(self.data)) / self.num_samples
        checks.check_memory("batch_size", batch_size, batch_size * row)

    @property
    def additive(self) -> bool:
        """Whether a task is an update, not a gradient."""
        return self.update is not None

    @functools.cached_property
    def keyed(self) -> bool:
        """Whether `losses` take random keys."""
        try:
            given = [*inspect.signature(self.losses).parameters.values()]
        except (TypeError, ValueError):  # no function of Python, or none at all
            return False
        positional = [
            each for each in given if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
        return any(each.default is each.empty or each.name in ("keys", "key") for each in positional[2:3])

    def apart(self, params: Params) -> tuple[Params, dict[str, Any]]:
        """Returns what of the parameters travels, and the local ones."""
        if not self.local:
            return params, {}
        shared = {name: value for name, value in params.items() if name not in self.local}
        return shared, {name: params[name] for name in self.local}

    def together(self, shared: Params, local: Mapping[str, Any]) -> Params:
        """Returns the parameters whose parts these are: the inverse of `apart`."""
        return {**shared, **local} if self.local else shared

    @property
    def num_samples(self) -> int:
        """N, the number of training samples."""
        return num_samples(self.data)

    @functools.cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of what `evaluate` returns."""
        return tuple(jax.eval_shape(self.evaluate, self.shapes, self.eval_data))

    @functools.cached_property
    def shapes(self) -> Params:
        """The parameters as shapes and types; ValueError where a local one has not a row for each sample."""
        shapes = jax.eval_shape(self.init, jax.random.key(0))
        for name in self.local:
            there = shapes.get(name) if isinstance(shapes, dict) else None
            if there is None or there.shape[:1] != (self.num_samples,):
                allowed = f"names of parameters, in a dict, with a row for each of {self.num_samples} samples"
                checks.fail("local", name, allowed)
        return shapes

    @property
    def parameter_bytes(self) -> int:
        """How many bytes the parameters are, as far as they travel."""
        real = str(jax.dtypes.canonicalize_dtype(float))  # types of parameters may follow from it
        if real not in self._bytes:
            self._bytes[real] = sum(leaf.size * leaf.dtype.itemsize for leaf in self._travelling)
        return self._bytes[real]

    @functools.cached_property
    def tensor_sizes(self) -> tuple[int, ...]:
        """How many numbers each tensor of the parameters has, as far as it travels."""
        return tuple(leaf.size for leaf in self._travelling)

    @property
    def _travelling(self) -> list[jax.ShapeDtypeStruct]:
        shapes = jax.eval_shape(lambda key: self.apart(self.init(key))[0], jax.random.key(0))
        return jax.tree.leaves(shapes)

    @functools.cached_property
    def checked(self) -> set[str]:
        """Real types, such as float32, with which `check_problem` found it sound; copies keep them."""
        return set()

    @functools.cached_property
    def _bytes(self) -> dict[str, int]:
        return {}

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        return f"Problem({self.name}, {self.num_samples} samples)"


def floating(name: str, dtype: Any) -> str:
    """Returns `dtype` if it is one that problems come in and JAX can hold now: a check for `memoised`.

    >>> floating("dtype", "int8")
    Traceback (most recent call last):
    ValueError: dtype: got 'int8', allowed is one of 'float32', 'float64'
    """
    dtype = checks.one_of("float32", "float64")(name, dtype)
    if jnp.zeros(0, jax.dtypes.canonicalize_dtype(dtype)).dtype != dtype:
        checks.fail(name, dtype, "'float32', or 'float64' inside `with jax.enable_x64(True)`")
    return dtype


def frozen(array: Any, dtype: Any) -> np.ndarray:
    """Returns a copy of `array` that cannot be written to: memoised problems are shared."""
    copy = np.array(array, dtype)
    copy.flags.writeable = False
    return copy
