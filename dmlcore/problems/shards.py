"""Shards: which worker owns which training samples.

`problem.sharded(rule)` takes one of these rules, or the owner of each sample as numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dmlcore import checks, notebook
from dmlcore.calls import named
from dmlcore.checks import at_least


class Rule(NamedTuple):
    """A rule that assigns samples to workers, such as `dirichlet(8, 0.1)`.

    Args:
        name: the call that makes the rule.
        num_workers: P, the number of workers that own samples.
        owners: the problem's data -> the owner of each sample, whole numbers from 0 to P - 1, shape (N,).

    >>> import dmlcore as dml
    >>> halves = Rule("halves", 2, lambda data: np.arange(num_samples(data)) % 2)
    >>> dml.problems.digits_mlp().sharded(halves).owner[:4].tolist()
    [0, 1, 0, 1]
    """

    name: str
    num_workers: int
    owners: Callable[[Any], np.ndarray]

    __repr__ = notebook.by_name


class _Labels(list[Any]):
    """Labels of all samples, which a rule's name does not list."""

    def __repr__(self) -> str:
        return f"({len(self)} labels)"


def _column(name: str, value: Any) -> Any:
    return value if isinstance(value, str) else _Labels(checks.listed(name, value))


@named(bare=True, num_workers=at_least(1), seed=checks.check_seed)
def iid(num_workers: int, *, seed: int = 0) -> Rule:
    """IID shards: samples are shuffled, and then assigned to the workers in turn.

    Guarantees: the sizes of two shards differ by at most 1.

    Args:
        num_workers: P, the number of workers, >= 1.
        seed: of the shuffle.

    Returns:
        The rule, for `Problem.sharded`.

    Raises:
        ValueError: a number is out of range; from `sharded`: there are fewer samples than workers.

    >>> import dmlcore as dml
    >>> np.bincount(dml.problems.digits_mlp().sharded(iid(4)).owner).tolist()
    [360, 359, 359, 359]
    """

    def owners(data: Any) -> np.ndarray:
        total = num_samples(data)
        order = np.random.default_rng(seed).permutation(total)
        found = np.empty(total, np.int64)
        found[order] = np.arange(total) % num_workers
        return found

    return Rule("", num_workers, owners)


@named(bare=True, num_workers=at_least(1), alpha=checks.positive, seed=checks.check_seed, labels=_column)
def dirichlet(
    num_workers: int, alpha: float, *, seed: int = 0, labels: str | Sequence[Any] = "labels"
) -> Rule:
    """Non-IID shards: worker w owns a fraction p_w of each label, with p ~ Dirichlet(alpha, ..., alpha).

    The smaller `alpha`, the fewer workers share a label; from about 100 on, shards are practically IID. The
    sizes of shards differ, too. A shard that would be empty gets one sample of the largest shard.

    Args:
        num_workers: P, the number of workers, >= 1.
        alpha: concentration, > 0.
        seed: of the fractions, and of the order in which samples are assigned.
        labels: whole numbers, words or bools, shape (N,); or the name of their column, for data that are
            a dict.

    Returns:
        The rule, for `Problem.sharded`.

    Raises:
        ValueError: a number is out of range; from `sharded`: there is no such column, or there are fewer
            samples than workers.

    >>> import dmlcore as dml
    >>> shards = dml.problems.digits_mlp().sharded(dirichlet(4, 0.1))
    >>> shards
    Problem(digits_mlp, dirichlet(4, alpha=0.1), 1437 samples)

    Reference: Yurochkin et al. 2019, "Bayesian nonparametric federated learning of neural networks", sec. 4.
    """

    def owners(data: Any) -> np.ndarray:
        label, rng = labels_of(data, labels), np.random.default_rng(seed)
        found = np.empty(len(label), np.int64)
        for each in np.unique(label):
            rows = rng.permutation(np.flatnonzero(label == each))
            ends = np.cumsum(rng.dirichlet(np.full(num_workers, alpha)))
            found[rows] = np.minimum(
                np.searchsorted(ends, (np.arange(len(rows)) + 0.5) / len(rows)), num_workers - 1
            )
        sizes = np.bincount(found, minlength=num_workers)
        for worker in np.flatnonzero(sizes == 0):
            if sizes[largest := sizes.argmax()] > 1:
                found[np.flatnonzero(found == largest)[0]] = worker
                sizes[largest] -= 1
                sizes[worker] = 1
        return found

    return Rule("", num_workers, owners)


@named(bare=True, num_workers=at_least(1), labels_each=at_least(1), seed=checks.check_seed, labels=_column)
def by_label(
    num_workers: int, labels_each: int, *, seed: int = 0, labels: str | Sequence[Any] = "labels"
) -> Rule:
    """Non-IID shards: each worker owns samples of `labels_each` labels only.

    Labels are assigned to the workers in turn, in a random order. The workers of a label share its samples
    equally. One label per worker is the pathological split of federated learning.

    Args:
        num_workers: P, the number of workers, >= 1.
        labels_each: number of labels per worker, from 1 to the number of labels; P x labels_each must be at
            least the number of labels.
        seed: of the order.
        labels: whole numbers, words or bools, shape (N,); or the name of their column, for data that are
            a dict.

    Returns:
        The rule, for `Problem.sharded`.

    Raises:
        ValueError: a number is out of range; from `sharded`: there is no such column, some label would
            have no owner, or a label has fewer samples than owners.

    >>> import dmlcore as dml
    >>> problem = dml.problems.digits_mlp()
    >>> owner, labels = problem.sharded(by_label(5, 2)).owner, problem.data["labels"]
    >>> [len(np.unique(labels[owner == worker])) for worker in range(5)]
    [2, 2, 2, 2, 2]

    Reference: McMahan et al. 2017, "Communication-efficient learning of deep networks", section 3.
    """

    def owners(data: Any) -> np.ndarray:
        label, rng = labels_of(data, labels), np.random.default_rng(seed)
        kinds = rng.permutation(np.unique(label))
        least = -(-len(kinds) // num_workers)
        checks.integer(
            "labels_each",
            labels_each,
            low=least,
            high=len(kinds),
            why=f"{len(kinds)} labels, {num_workers} workers",
        )
        found = np.empty(len(label), np.int64)
        for turn, each in enumerate(kinds):
            slots = range(turn, num_workers * labels_each, len(kinds))
            mine = np.array([slot // labels_each for slot in slots])
            rows = rng.permutation(np.flatnonzero(label == each))
            if len(rows) < len(mine):
                expected = f"fewer labels (label {each} has {len(rows)} samples for {len(mine)} workers)"
                checks.fail("labels_each", labels_each, expected)
            found[rows] = mine[np.arange(len(rows)) % len(mine)]
        return found

    return Rule("", num_workers, owners)


def num_samples(data: Any) -> int:
    """Returns N, the number of samples.

    Args:
        data: a pytree of arrays with the same first axis N.

    Returns:
        N.

    Raises:
        IndexError: `data` has no array, or its first array has no axis.

    >>> num_samples({"x": np.zeros((5, 2)), "y": np.zeros(5)})
    5
    """
    return int(jax.tree.leaves(data)[0].shape[0])


def labels_of(data: Any, labels: Any) -> np.ndarray:
    """Returns the label of each sample.

    Args:
        data: a pytree of arrays with the same first axis N.
        labels: whole numbers, words or bools, shape (N,); or the name of their column, for data that are
            a dict.

    Returns:
        The labels, an array of shape (N,) that NumPy can sort.

    Raises:
        ValueError: there is no such column, or the labels are of another kind or shape.

    >>> labels_of({"x": np.zeros((3, 2)), "label": np.array([1, 0, 1])}, "label").tolist()
    [1, 0, 1]
    """
    total, found = num_samples(data), labels
    if isinstance(labels, str):
        columns = sorted(data) if isinstance(data, dict) else []
        if labels not in columns:
            column = f"the name of a column of the data ({', '.join(columns)}), or " if columns else ""
            expected = f"{column}{total} labels"
            checks.fail("labels", labels, expected, checks.nearest(labels, columns))
        found = data[labels]
    found = np.asarray(found)
    if found.dtype.kind in "OT" and all(isinstance(each, str) for each in found.flat):
        found = found.astype(str)
    if found.shape != (total,) or found.dtype.kind not in "iubU":
        given = f"values of type {found.dtype} and shape {found.shape}"
        checks.reject("labels", given, f"whole numbers or words of shape ({total},)")
    return found


def owners_of(given: Any, data: Any) -> np.ndarray:
    """Returns the owner of each sample, from a rule or from numbers.

    Args:
        given: a rule, or the worker that owns each sample, whole numbers from 0, shape (N,).
        data: a pytree of arrays with the same first axis N.

    Returns:
        The worker that owns each sample, int32, shape (N,).

    Raises:
        ValueError: the owners are not whole numbers >= 0 of this shape, or a worker owns no sample.

    >>> owners_of([0, 1, 1], {"x": np.zeros((3, 2))}).tolist()
    [0, 1, 1]
    """
    total = num_samples(data)
    found, workers = (given.owners(data), given.num_workers) if isinstance(given, Rule) else (given, 0)
    try:
        owner = np.asarray(found)
    except ValueError:
        owner = np.empty(0, object)
    if owner.shape != (total,) or not np.issubdtype(owner.dtype, np.integer):
        shape = f"{owner.dtype} numbers of shape {owner.shape}"
        wrong = shape if owner.dtype.kind in "biufc" else checks.shown(given)
        checks.reject("owner", wrong, f"a rule of dml.shards, or whole numbers of shape ({total},)")
    if owner.min() < 0:
        checks.fail("owner", int(owner.min()), "numbers of workers, >= 0")
    sizes = np.bincount(owner, minlength=workers) if owner.max() < total else np.zeros(1)
    if not sizes.all():
        without = int(sizes.argmin())
        wrong = str(given) if isinstance(given, Rule) else f"none for worker {without}"
        checks.reject("owner", wrong, f"at least one of {total} samples for every worker")
    return owner.astype(np.int32)
