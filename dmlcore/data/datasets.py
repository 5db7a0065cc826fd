"""The data sets: each is a function without arguments that returns arrays.

The functions that read downloaded files raise ValueError if a file is damaged, and ConnectionError if a file
is missing and the download fails.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from dmlcore import checks

from .fetch import DataFiles, fetch
from .formats import parse_cifar, read_idx, read_ratings

MNIST = DataFiles(
    folder="mnist",
    sha256={
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    urls=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
)
CIFAR10 = DataFiles(
    folder="cifar-10-batches-bin",
    sha256={
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)
MOVIELENS_SMALL = DataFiles(
    folder="ml-latest-small",
    sha256={"ratings.csv": "aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646"},
    urls=("https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",),
)
STRAGGLER_JOBS = DataFiles(
    folder="straggler_jobs",
    sha256={
        "AR.parquet": "1806e53f3ce6b1857f945d34b07ff2b257b3cea1fe216466e006e040def9cc20",
        "SE.parquet": "f7da01edebb2227e51d0fb0c28d8b141f61743e5ac1633e0a3b227d48edf1e50",
    },
    urls=(
        "https://raw.githubusercontent.com/ByteDance-Seed/StragglerAnalysis/"
        "cc8af9f22291d9dec14d3460d530dd8e5c782a68/data/trace-",
    ),
)
SOURCES = {
    "mnist": MNIST,
    "cifar10": CIFAR10,
    "movielens_small": MOVIELENS_SMALL,
    "straggler_jobs": STRAGGLER_JOBS,
}


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
    return Labelled(*(read_idx(path) for path in fetch(MNIST).values()))


def cifar10() -> Labelled:
    """Returns CIFAR-10: colour photographs of ten classes, 50,000 for training and 10,000 for test.

    Returns:
        Inputs (N, 32, 32, 3), uint8 in 0..255; labels (N,), uint8 in 0..9.

    >>> cifar10().test_inputs.shape  # doctest: +SKIP
    (10000, 32, 32, 3)

    Reference: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    parts = [parse_cifar(path.read_bytes(), str(path)) for path in fetch(CIFAR10).values()]
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
    table = read_ratings(fetch(MOVIELENS_SMALL)["ratings.csv"])
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
    return {path.stem: pd.read_parquet(path) for path in fetch(STRAGGLER_JOBS).values()}


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
