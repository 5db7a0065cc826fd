"""Readers of the file formats: from bytes or a path to arrays. They raise ValueError for other content."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from dmlcore.checks import message, reject

CIFAR_RECORD = 1 + 3 * 32 * 32  # bytes: the label, then the red, green and blue planes of 32 x 32 pixels


def parse_idx(content: bytes, name: str = "IDX data") -> np.ndarray:
    """Reads the IDX format of unsigned bytes: two zero bytes, type 8, number of axes, axes, then the values.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    array([7, 8, 9], dtype=uint8)

    Reference: http://yann.lecun.com/exdb/mnist (the format's description).
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        found = content[:4].hex() or "an empty file"
        reject(name, found, "a file that starts with 000008 (IDX of unsigned bytes)")
    header = 4 + 4 * content[3]
    if len(content) < header:
        reject(name, f"{len(content)} (the file is cut short)", f"a header of {header} bytes")
    shape = tuple(np.frombuffer(content, ">u4", content[3], 4).tolist())
    if len(content) != header + math.prod(shape):
        reject(name, f"{len(content)}", f"{header + math.prod(shape)} bytes (for the shape {shape})")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def decompressed(path: Path) -> bytes:
    """Returns the content of a file that is compressed with gzip."""
    try:
        return gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(message(str(path), f"a damaged one ({error})", "a complete gzip file")) from error


def read_idx(path: Path) -> np.ndarray:
    """Reads an IDX file that is compressed with gzip."""
    return parse_idx(decompressed(path), str(path))


def parse_cifar(content: bytes, name: str = "CIFAR-10 data") -> tuple[np.ndarray, np.ndarray]:
    """Reads records of the binary version of CIFAR-10: images (N, 32, 32, 3), labels (N,) in 0..9, uint8.

    >>> images, labels = parse_cifar(bytes([3] + [255] * 1024 + [0] * 2048))
    >>> images.shape, images[0, 0, 0], labels
    ((1, 32, 32, 3), array([255,   0,   0], dtype=uint8), array([3], dtype=uint8))

    Reference: https://www.cs.toronto.edu/~kriz/cifar.html, binary version.
    """
    if not content or len(content) % CIFAR_RECORD:
        reject(name, f"{len(content)}", f"a multiple of {CIFAR_RECORD} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, CIFAR_RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        reject(f"{name}, record {labels.argmax()}", f"{labels.max()}", "a label from 0 to 9")
    # The copy makes the pixels of a row adjacent in memory, in the order in which the models read them.
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), labels.copy()


def read_ratings(path: Path) -> pd.DataFrame:
    """Reads userId, movieId (int64) and rating (float64, 0.5 to 5 stars) of a MovieLens CSV file."""
    columns = {"userId": "int64", "movieId": "int64", "rating": "float64"}
    try:
        table = pd.read_csv(path, usecols=list(columns), dtype=columns)[list(columns)]
    except ValueError as error:
        expected = f"the columns {', '.join(columns)} of numbers"
        raise ValueError(message(str(path), f"another table ({error})", expected)) from error
    wrong = ~table["rating"].between(0.5, 5.0)
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        reject(f"{path}, row {row}", f"{table['rating'][row]}", "a rating from 0.5 to 5")
    return table
