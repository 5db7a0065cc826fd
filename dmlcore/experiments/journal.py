"""Finished runs of a comparison, kept in a folder: the next call reads them instead of making them again."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
import optax
import pandas as pd

from dmlcore import checks, files
from dmlcore.engines.spec import RunSpec
from dmlcore.problems.problem import Problem
from dmlcore.training.batches import INIT, run_key
from dmlcore.training.kinds import contribution_of
from dmlcore.training.optimizer import fingerprint, hoist

SAVE = "DMLCORE_SAVE"  # environment variable: the default of `save`

_digests: WeakKeyDictionary[Problem, str] = WeakKeyDictionary()


class Journal:
    """Histories of finished runs, one file each, whole or not there at all.

    A run is known by all that its history depends on: the arguments of its call, the problem's data, the
    optimizer's arithmetic, this package's code and the versions of those that it uses. A policy, load rule or
    metric of one's own is known by its name alone: give another version of it another name, or folder.

    Args:
        folder: where; made when first written to.
        about: what all runs have in common, as JSON values.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, Any]):
        if not isinstance(folder, str | os.PathLike):
            checks.fail("save", folder, "a folder")
        self.folder = Path(folder).absolute()
        if self.folder.exists() and not self.folder.is_dir():
            checks.fail("save", str(folder), "a folder, or a name that is free")
        self._about = {**about, "code": code(), "x64": bool(jax.config.read("jax_enable_x64"))}

    def path(self, run: Mapping[str, Any]) -> Path:
        """Returns the file of a run, which these JSON values tell from the others."""
        text = json.dumps({**self._about, **run}, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.parquet"

    def load(self, run: Mapping[str, Any]) -> pd.DataFrame | None:
        """Returns the history of a run that is finished; None, with a warning, where its file is damaged."""
        path = self.path(run)
        if not path.exists():
            return None
        try:
            return pd.read_parquet(path, engine="pyarrow", page_checksum_verification=True)
        except (OSError, ValueError) as error:  # of pyarrow, too: its errors are these
            reason = str(error).strip().rpartition(": ")[2]
            warnings.warn(f"save: {path} is damaged ({reason}); its run is made again", stacklevel=2)
            return None

    def save(self, run: Mapping[str, Any], history: pd.DataFrame) -> None:
        """Keeps the history of a run."""
        with files.aside(self.path(run)) as partial:
            history.to_parquet(partial, engine="pyarrow", write_page_checksum=True)


def described(spec: RunSpec, problem: Problem, optimizer: optax.GradientTransformation) -> dict[str, Any]:
    """Returns what tells a run of a comparison from the others, as JSON values."""
    params = problem.init(run_key(0, INIT))
    update = hoist(optimizer.update, params, optimizer.init(params), params)
    stop = {name: str(value) for name, value in spec.stop._asdict().items()}
    steps = contribution_of(problem).fingerprint()  # of local steps: their optimizer
    links, workers = spec.links(), range(min(spec.cluster.num_workers, 64))
    # Laws of one's own have a name, and some times that they lead to.
    times = [
        (links.compute_seconds(w, 0, 1), links.pull_seconds(w, 0), links.push_seconds(w, 0)) for w in workers
    ]
    own = {"stop": stop, "optimizer": fingerprint(*update), "steps": steps, "times": times}
    return spec.metadata("") | own


def digest(problem: Problem) -> str:
    """Returns a hash of a problem's name, its data and the shapes of its parameters."""
    if problem not in _digests:
        content = hashlib.sha256(repr((problem.name, problem.shapes, problem.metrics)).encode())
        for leaf in jax.tree.leaves((problem.data, problem.eval_data)):
            array = np.asarray(leaf)
            content.update(f"{array.dtype} {array.shape}".encode())
            content.update(np.ascontiguousarray(array).data)
        _digests[problem] = content.hexdigest()
    return _digests[problem]


@functools.cache
def code() -> str:
    """Returns a hash of this package's code."""
    root = Path(files.__file__).parent
    found = files.digests(sorted(root.rglob("*.py")), root)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
