"""Checkpoints of a run: one file each, written completely or not at all, and read without unpickling."""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks, files
from dmlcore.training.optimizer import is_key, plain

PATIENCE = 60.0  # seconds to wait for another run to release a folder
SUFFIX = ".checkpoint"


class Checkpoints:
    """The two newest states of one run, in a folder.

    A file has a line with the hash of the rest, a line of JSON, and the bytes of the arrays.

    Args:
        folder: the folder; created if it is missing.
        run: the identity of the run, as JSON values. A checkpoint of another run raises ValueError.
    """

    def __init__(self, folder: str | os.PathLike[str], run: Mapping[str, Any]):
        self.folder = checks.folder("checkpoint", folder)
        # In the form in which it is read again: JSON turns tuples into lists.
        self._run = json.loads(json.dumps(run))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._handle = _held(self.folder)
        for partial in self.folder.glob(f".*{SUFFIX}.*.partial"):  # left by a run that was killed
            partial.unlink()
        if any(self.folder.iterdir()) and not self._steps():
            self.close()
            expected = "an empty folder, or one with a run's checkpoints, written by this version"
            checks.fail("checkpoint", str(folder), expected)
        self._newest: int | None = None  # the newest step that this run has written or read
        self._next = 0.0

    def due(self) -> bool:
        """Returns whether to save now; saving takes at most a tenth of the time."""
        return time.monotonic() >= self._next

    def save(self, step: int, state: Any, more: Any = None) -> None:
        """Saves the state at a step, a pytree of arrays, and further values that JSON can represent."""
        begun = time.monotonic()
        leaves = plain_leaves(state)
        known = json.dumps({"run": self._about(leaves), "more": more})
        content = b"".join([known.encode(), b"\n", *(leaf.tobytes() for leaf in leaves)])
        with files.aside(self._path(step)) as partial:
            partial.write_bytes(_digest(content) + b"\n" + content)
        for other in {*self._steps()} - {step, self._newest}:
            self._path(other).unlink()
        self._newest = step
        ended = time.monotonic()
        self._next = ended + 10 * (ended - begun)

    def load(self, like: Any) -> tuple[int, Any, Any] | None:
        """Returns step, state (structured like `like`) and JSON values of the newest checkpoint, or None.

        If the newest one is damaged, it warns and returns the previous one.

        Raises:
            ValueError: the folder has checkpoints of another run, or only damaged ones.
        """
        damaged: list[str] = []
        for step in self._steps():
            digest, _, content = self._path(step).read_bytes().partition(b"\n")
            if digest != _digest(content):
                damaged.append(f"step {step}")
                continue
            if damaged:
                told = f"damaged checkpoints ({', '.join(damaged)}); the run goes on from step {step}"
                warnings.warn(f"checkpoint: {self.folder} has {told}", stacklevel=2)
            self._newest = step
            return step, *self._opened(content, like)
        if damaged:
            found = f"{self.folder}, whose checkpoints are damaged ({', '.join(damaged)})"
            checks.reject("checkpoint", found, "undamaged checkpoints", "another folder to start again")
        return None

    def _opened(self, content: bytes, like: Any) -> tuple[Any, Any]:
        text, _, rest = content.partition(b"\n")
        known, leaves = json.loads(text), plain_leaves(like)
        if known["run"] != (wanted := self._about(leaves)):
            differs = _first_difference(known["run"], wanted)
            found = f"{self.folder}, of another run ({differs})"
            checks.reject("checkpoint", found, "the folder of a run with the same arguments")
        parts = np.split(np.frombuffer(rest, np.uint8), np.cumsum([leaf.nbytes for leaf in leaves])[:-1])
        pairs = zip(parts, leaves, strict=True)
        read = [part.copy().view(leaf.dtype).reshape(leaf.shape) for part, leaf in pairs]
        return with_leaves(like, read), known["more"]

    def close(self) -> None:
        """Releases the folder."""
        os.close(self._handle)

    def _about(self, leaves: Sequence[np.ndarray]) -> dict[str, Any]:
        """Returns what must be equal to continue a run: its identity, and its state's types and shapes."""
        return {**self._run, "state": [[str(leaf.dtype), list(leaf.shape)] for leaf in leaves]}

    def _path(self, step: int) -> Path:
        return self.folder / f"{step}{SUFFIX}"

    def _steps(self) -> list[int]:
        """Returns the saved steps, the newest first."""
        names = [path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}")]
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _held(folder: Path) -> int:
    """Locks a folder and returns the handle; the lock lasts as long as the handle is open.

    It waits for the processes of a killed program, which end a little later and may still write.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return files.lock(folder)
        except BlockingIOError:
            if time.monotonic() > deadline:
                checks.fail("checkpoint", str(folder), "a folder that no other run is using")
            time.sleep(0.05)
        except OSError:  # the file system does not support locks
            return os.open(folder, os.O_RDONLY)


def plain_leaves(tree: Any) -> list[np.ndarray]:
    """Returns the leaves of a pytree as NumPy arrays; random keys become their key data."""
    return [plain(leaf) for leaf in jax.tree.leaves(tree)]


def with_leaves(like: Any, leaves: Sequence[np.ndarray]) -> Any:
    """Returns a pytree like `like` with leaves that `plain_leaves` returned: the inverse of it."""

    def typed(kind: Any, leaf: Any) -> Any:
        impl = jax.random.key_impl(kind) if is_key(kind) else None
        return leaf if impl is None else jax.random.wrap_key_data(jnp.asarray(leaf), impl=impl)

    kinds, tree = jax.tree.flatten(like)
    return jax.tree.unflatten(tree, [typed(*pair) for pair in zip(kinds, leaves, strict=True)])


def _short(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:20]}..."


def _first_difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    name = next(name for name in {**wanted, **found} if found.get(name) != wanted.get(name))
    if name.endswith("_sha256"):
        return f"another {name.removesuffix('_sha256')}"
    return f"{name}: {_short(found.get(name))} there, {_short(wanted.get(name))} here"
