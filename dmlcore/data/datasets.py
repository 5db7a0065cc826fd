"""The data sets: each is a function without arguments that returns arrays.

The functions that read downloaded files raise ValueError if a file is damaged, and ConnectionError if a file
is missing and the download fails.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from dmlcore import checks
from dmlcore.files import table

from .fetch import DataFiles, fetch
from .formats import parse_cifar, read_idx, read_ratings

SOURCES = {name: DataFiles(**entry) for name, entry in table(__file__, "files").items()}


class Labelled(NamedTuple):
    """Samples with one class label each, split into training and test; the first axis of an array is N."""

    train_inputs: np.ndarray
    train_labels: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray


class Ratings(NamedTuple):
    """N ratings of items by users: three arrays (N,); users and items count from 0 without gaps."""

    user: np.ndarray
    item: np.ndarray
    rating: np.ndarray


def obtain(name: str) -> None:
    """Downloads the files of a data set if they are missing, and checks them.

    Args:
        name: the function of this module that reads the data set, such as "mnist".

    Raises:
        ValueError: there is no such data set, or a file is damaged.
        ConnectionError: a file is missing and the download fails.

    >>> obtain("mnits")
    Traceback (most recent call last):
    ValueError: data set: expected one of 'mnist', ..., got 'mnits'; try 'mnist'
    """
    fetch(checks.choice("data set", name, SOURCES))


def digits() -> Labelled:
    """Returns the handwritten digits of 8 x 8 pixels that scikit-learn has, in a fixed, stratified split.

    Returns:
        Inputs (N, 64), float64 in 0..1; labels (N,), int64 in 0..9.

    >>> [part.shape for part in digits()]
    [(1437, 64), (1437,), (360, 64), (360,)]

    Reference: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998, CC BY 4.0.
    """
    # scikit-learn's copy, split by its `train_test_split(..., test_size=360, random_state=0)`; importing
    # scikit-learn takes as long as a short run.
    with np.load(Path(__file__).with_name("digits.npz")) as kept:
        inputs, labels = kept["pixels"] / 16, kept["labels"].astype(np.int64)
    return Labelled(inputs[:1437], labels[:1437], inputs[1437:], labels[1437:])


def mnist() -> Labelled:
    """Returns MNIST: handwritten digits, 60,000 for training and 10,000 for test.

    Returns:
        Inputs (N, 28, 28), uint8 in 0..255; labels (N,), uint8 in 0..9.

    >>> mnist().train_inputs.shape  # doctest: +SKIP
    (60000, 28, 28)

    Reference: LeCun, Bottou, Bengio and Haffner, Proceedings of the IEEE 86(11), 1998.
    """
    return Labelled(*(read_idx(path) for path in fetch(SOURCES["mnist"]).values()))


def cifar10() -> Labelled:
    """Returns CIFAR-10: colour photographs of ten classes, 50,000 for training and 10,000 for test.

    Returns:
        Inputs (N, 32, 32, 3), uint8 in 0..255; labels (N,), uint8 in 0..9.

    >>> cifar10().test_inputs.shape  # doctest: +SKIP
    (10000, 32, 32, 3)

    Reference: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    parts = [parse_cifar(path.read_bytes(), str(path)) for path in fetch(SOURCES["cifar10"]).values()]
    images, labels = zip(*parts, strict=True)
    return Labelled(np.concatenate(images[:-1]), np.concatenate(labels[:-1]), images[-1], labels[-1])


def movielens_small() -> Ratings:
    """Returns MovieLens ml-latest-small: 100,836 ratings of 9,724 films by 610 people, for research only.

    Users and films count from 0 in the order of their original numbers.

    Returns:
        Users and items (N,), int64; ratings (N,), float64 in 0.5, 1, ..., 5.

    >>> movielens_small().rating.mean().round(2)  # doctest: +SKIP
    3.5

    Reference: Harper and Konstan, The MovieLens Datasets, ACM TiiS 5(4), 2015.
    """
    table = read_ratings(fetch(SOURCES["movielens_small"])["ratings.csv"])
    _, user = np.unique(table["userId"], return_inverse=True)
    _, item = np.unique(table["movieId"], return_inverse=True)
    return Ratings(user, item, table["rating"].to_numpy())


def straggler_jobs() -> dict[str, pd.DataFrame]:
    """Returns the operations of two recorded training jobs of large language models with stragglers, by name.

    In "AR", of 4 data-parallel ranks and 4 pipeline stages, a worker was slowed down on purpose; in "SE", of
    32 ranks and 2 stages, sequences differ in length. A row is an operation of one of 44 or 43 steps, with
    `dp_rank`, `stage`, `step`, `optype`, `seq_id`, and `start_ts` and `duration` in seconds, and others.

    >>> {name: len(frame) for name, frame in straggler_jobs().items()}  # doctest: +SKIP
    {'AR': 117216, 'SE': 107328}

    Reference: Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis, OSDI 2025;
    ByteDance-Seed/StragglerAnalysis, Copyright 2025 Bytedance Ltd., Apache License 2.0.
    """
    return {path.stem: pd.read_parquet(path) for path in fetch(SOURCES["straggler_jobs"]).values()}


def straggler_steps() -> dict[str, pd.DataFrame]:
    """Returns four steps of each job of `straggler_jobs`: every eleventh, with all rows unchanged.

    >>> {name: frame["step"].unique().tolist() for name, frame in straggler_steps().items()}
    {'AR': [16, 415, 809, 1204], 'SE': [16, 407, 436, 825]}

    Reference: see `straggler_jobs`.
    """
    return _kept("straggler_steps.parquet")


def straggler_tasks() -> dict[str, pd.DataFrame]:
    """Returns the tasks of all ranks and steps of `straggler_jobs`, by job: logs that `read_tasks` reads.

    `dmlcore.reading.pipeline.Pipeline.tasks` made them, and they were rounded to microseconds. A task is what
    a rank's pipeline computes in a step, as if it never waited for another rank.

    >>> {name: len(tasks) for name, tasks in straggler_tasks().items()}
    {'AR': 176, 'SE': 1376}

    Reference: see `straggler_jobs`.
    """
    return _kept("straggler_tasks.parquet")


def _kept(name: str) -> dict[str, pd.DataFrame]:
    """Returns the rows of each job in a file that comes with the package."""
    rows = pd.read_parquet(Path(__file__).with_name(name))
    jobs = rows.groupby("job", observed=True)
    return {str(job): own.drop(columns="job").reset_index(drop=True) for job, own in jobs}
