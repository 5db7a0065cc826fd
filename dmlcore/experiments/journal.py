"""A folder of finished runs of a comparison: the next call reads them instead of training again."""

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dmlcore import checks, sealed
from dmlcore.training.identity import of_code

HISTORY_KEY = b"dmlcore.history"
SAVE = "DMLCORE_SAVE"  # environment variable that holds the default of `save`


class Journal:
    """The histories of finished runs, one file each; a file is complete or does not exist.

    A run is identified by everything that its history depends on: the arguments of its call, the problem's
    data and functions, the optimizer's arithmetic, this package's code, and the versions of the packages that
    it uses. A policy, load rule, transport or codec that is not of this package is identified by its name
    alone: when you change it, use another name or another folder. Functions of JAX that call Python on the
    host (`jax.pure_callback`, `jax.debug.callback`), or primitives that are not JAX's, have no identity:
    runs with them raise ValueError instead of being kept.

    Args:
        folder: the folder; the first write creates it.
        about: the part of the identity that all runs share, as JSON values.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, Any]):
        self.folder = checks.folder("save", folder)
        self._about = {**about, **of_code()}

    def path(self, run: Mapping[str, Any]) -> Path:
        """Returns the path of a run's file; `run` has the JSON values that distinguish it from other runs."""
        text = json.dumps({**self._about, **run}, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.parquet"

    def load(self, run: Mapping[str, Any]) -> pd.DataFrame | None:
        """Returns the history of a run; None if it is not finished or, with a warning, is damaged."""
        path = self.path(run)
        if not path.exists():
            return None
        try:
            return sealed.read(path, HISTORY_KEY)[0]
        except ValueError as error:
            warnings.warn(f"save: {path} is damaged ({error}); its run is repeated", stacklevel=2)
            return None

    def save(self, run: Mapping[str, Any], history: pd.DataFrame) -> None:
        """Writes the history of a run."""
        sealed.write(self.path(run), history, HISTORY_KEY)


def folder_for(save: Any) -> Any:
    """Returns the folder that `save` names, else the one of the environment variable, else None."""
    return os.environ.get(SAVE) or None if save is None else save
