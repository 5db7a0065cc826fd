"""Finished runs of a comparison, kept in a folder: the next call reads them instead of making them again."""

from __future__ import annotations

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
        self.folder = checks.folder("save", folder)
        self._about = {**about, **of_code()}

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


def folder_for(save: Any) -> Any:
    """Returns the folder that an argument `save` names, or else the environment; None where neither does."""
    return os.environ.get(SAVE) or None if save is None else save
