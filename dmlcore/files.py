"""Files that are never half written, and the fingerprints that tell whether one has changed."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs


def cache() -> Path:
    """Returns the folder of the user in which datasets and compiled programs are kept."""
    return platformdirs.user_cache_path("dmlcore")


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Lends a path to write to; when the block ends well, that file takes the place of `path` in one step.

    It is `.NAME.*.partial` in the same folder, which is made if it is missing; removed if the block raises.
    Its name is nobody else's: threads, and machines that share the folder, may write the same file at a time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Writes a text file as UTF-8, whole or not at all; its folder is made if it is missing."""
    with aside(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def tree(folder: Path) -> list[Path]:
    """Returns all files below a folder, sorted; none where there is no such folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def digests(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file by its path relative to `root`."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
    }
