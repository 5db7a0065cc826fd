"""Checkpoints of a run: written whole or not at all, by orbax, and read without unpickling."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.training.optimizer import is_key, plain

PATIENCE = 60.0  # seconds, for another run to let go of a folder


class Checkpoints:
    """The newest states of one run, in a folder.

    Args:
        folder: where; made when first written to.
        run: what identifies the run, as JSON values: a checkpoint of another one is refused.
    """

    def __init__(self, folder: str | os.PathLike[str], run: Any):
        if not isinstance(folder, str | os.PathLike):
            checks.fail("checkpoint", folder, "a folder")
        self.folder = Path(folder).absolute()
        # As it will be read again: tuples are lists there.
        self._run = json.loads(json.dumps(run))
        if self.folder.exists() and not self.folder.is_dir():
            checks.fail("checkpoint", str(folder), "a folder, or a name that is free")
        import orbax.checkpoint as ocp  # takes half a second

        self._orbax = ocp
        options = ocp.CheckpointManagerOptions(max_to_keep=2, create=True, enable_async_checkpointing=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._handle = _held(self.folder)
        try:
            empty = not any(self.folder.iterdir())
            self._manager = ocp.CheckpointManager(self.folder, options=options)
            if not empty and self._manager.latest_step() is None:
                checks.fail("checkpoint", str(folder), "a folder that is empty, or has a run's checkpoints")
        except BaseException:
            os.close(self._handle)
            raise
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is time for the next: saving takes a tenth of the time at most."""
        return time.monotonic() >= self._next

    def save(self, step: int, state: Any, more: Any = None) -> None:
        """Writes a state, a pytree of arrays, and further JSON values."""
        begun = time.monotonic()
        leaves = {f"{n:04d}": leaf for n, leaf in enumerate(plain_leaves(state))}
        args = self._orbax.args
        parts = args.Composite(
            state=args.StandardSave(leaves), run=args.JsonSave({"run": self._run, "more": more})
        )
        self._manager.save(step, args=parts, force=True)
        self._manager.wait_until_finished()
        ended = time.monotonic()
        self._next = ended + 10 * (ended - begun)

    def load(self, like: Any) -> tuple[int, Any, Any] | None:
        """Returns step, state (structured like `like`) and JSON values of the newest checkpoint, or None.

        Raises:
            ValueError: the folder has another run's.
        """
        step = self._manager.latest_step()
        if step is None:
            return None
        args = self._orbax.args
        found = self._manager.restore(step, args=args.Composite(run=args.JsonRestore()))["run"]
        if found["run"] != self._run:
            differs = _first_difference(found["run"], self._run)
            checks.fail("checkpoint", f"{self.folder}, of another run ({differs})", "that of the same call")
        target = {f"{n:04d}": np.empty_like(leaf) for n, leaf in enumerate(plain_leaves(like))}
        parts = args.Composite(state=args.StandardRestore(target))
        read = self._manager.restore(step, args=parts)["state"]
        return step, with_leaves(like, [read[name] for name in sorted(read)]), found["more"]

    def close(self) -> None:
        """Lets go of the folder."""
        self._manager.close()
        os.close(self._handle)


def _held(folder: Path) -> int:
    """Returns a handle of a folder that no other run has, as long as it is open and its process lives.

    The processes of a program that was killed end a little later, and may write meanwhile: they are waited
    for.
    """
    handle, deadline = os.open(folder, os.O_RDONLY), time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(handle)
                checks.fail("checkpoint", str(folder), "a folder that no other run is using")
            time.sleep(0.05)
        except OSError:  # a file system without locks
            return handle
        else:
            return handle


def plain_leaves(tree: Any) -> list[np.ndarray]:
    """Returns the leaves of a pytree as NumPy arrays, random keys as their data."""
    leaves = jax.tree.leaves(tree)
    return [plain(leaf) for leaf in leaves]


def with_leaves(like: Any, leaves: Sequence[np.ndarray]) -> Any:
    """Returns a pytree like `like` with the leaves that `plain_leaves` made of another one."""

    def typed(kind: Any, leaf: Any) -> Any:
        impl = jax.random.key_impl(kind) if is_key(kind) else None
        return leaf if impl is None else jax.random.wrap_key_data(jnp.asarray(leaf), impl=impl)

    kinds, tree = jax.tree.flatten(like)
    return jax.tree.unflatten(tree, [typed(*pair) for pair in zip(kinds, leaves, strict=True)])


def journal_arrays(journal: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Returns a server's journal as columns of JSON values."""
    width = max((len(entry) for entry in journal), default=1)
    return {str(n): [entry[n] if n < len(entry) else None for entry in journal] for n in range(width)}


def journal_entries(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    """Returns the journal that `journal_arrays` made columns of.

    >>> journal = [("leave", 1, 0.5), ("resume", 2.0)]
    >>> journal_entries(journal_arrays(journal)) == journal
    True
    """
    rows = zip(*(columns[str(n)] for n in range(len(columns))), strict=True)
    return [tuple(value for value in row if value is not None) for row in rows]


def _short(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:20]}..."


def _first_difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for name in wanted | found:
            if found.get(name) != wanted.get(name):
                return f"{name}: {_short(found.get(name))} there, {_short(wanted.get(name))} here"
    return "it differs"
