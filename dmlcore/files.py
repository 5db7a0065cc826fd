"""Files that are written completely or not at all, and their fingerprints."""

import hashlib
import os
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs


def cache() -> Path:
    """Returns the user's cache folder, for datasets and compiled programs."""
    return platformdirs.user_cache_path("dmlcore")


def table(module: str, name: str) -> dict[str, Any]:
    """Returns the content of the file `name`.toml beside a module, whose `__file__` is given."""
    return tomllib.loads(Path(module).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def on_path(variable: str, folder: Path) -> str:
    """Returns the folders that an environment variable lists, after `folder`."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Gives a temporary path to write to; when the block ends, that file replaces `path` in one step.

    The temporary file is `.NAME.*.partial` in the same folder, which is created if it is missing. It is
    removed if the block raises. Its name is unique, so threads, and machines that share the folder, may write
    the same `path` at the same time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def lock(path: Path) -> int:
    """Locks a file or folder and returns its handle: the lock lasts as long as the handle is open.

    Raises:
        BlockingIOError: another handle has locked it.
        OSError: it cannot be opened, or its file system does not support locks.
    """
    import fcntl  # there is none on Windows, where nothing is locked

    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def write(path: Path, text: str) -> None:
    """Writes a text file as UTF-8, completely or not at all; its folder is created if it is missing."""
    with aside(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def tree(folder: Path) -> list[Path]:
    """Returns all files below a folder, sorted; an empty list if the folder does not exist."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def digests(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file by its path relative to `root`."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
    }
