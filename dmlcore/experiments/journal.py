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

import jax
import optax
import pandas as pd

from dmlcore import checks, files, sealed
from dmlcore.engines.spec import RunSpec
from dmlcore.problems.problem import Problem
from dmlcore.training.aggregation import digest, traced
from dmlcore.training.identity import of_training
from dmlcore.training.kinds import contribution_of

HISTORY_KEY = b"dmlcore.history"
SAVE = "DMLCORE_SAVE"  # environment variable: the default of `save`


class Journal:
    """Histories of finished runs, one file each, whole or not there at all.

    A run is known by all that its history depends on: the arguments of its call, the problem's data and
    functions, the optimizer's arithmetic, this package's code and the versions of those that it uses. A
    policy, load rule, transport or codec of one's own is known by its name alone: give another version of it
    another name, or folder.

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
            return sealed.read(path, HISTORY_KEY)[0]
        except ValueError as error:
            warnings.warn(f"save: {path} is damaged ({error}); its run is made again", stacklevel=2)
            return None

    def save(self, run: Mapping[str, Any], history: pd.DataFrame) -> None:
        """Keeps the history of a run."""
        sealed.write(self.path(run), history, HISTORY_KEY)


def described(spec: RunSpec, problem: Problem, optimizer: optax.GradientTransformation) -> dict[str, Any]:
    """Returns what tells a run of a comparison from the others, as JSON values."""
    stop = {name: str(value) for name, value in spec.stop._asdict().items()}
    steps = contribution_of(problem).fingerprint()  # of local steps: their optimizer
    links, workers = spec.links(), range(min(spec.cluster.num_workers, 64))
    # Laws of one's own have a name, and some times that they lead to.
    times = [
        (links.compute_seconds(w, 0, 1), links.pull_seconds(w, 0), links.push_seconds(w, 0)) for w in workers
    ]
    aggregate = digest(*traced(spec.aggregate, problem.shapes, places=2))
    own = {"stop": stop, "steps": steps, "times": times, "aggregate": aggregate}
    return spec.metadata("") | own | of_training(problem, optimizer)


@functools.cache
def code() -> str:
    """Returns a hash of this package's code."""
    root = Path(files.__file__).parent
    found = files.digests(sorted(root.rglob("*.py")), root)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
