"""runs.parquet: the histories behind the results of full scale, in a file small enough to commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dmlcore import checks, files

if TYPE_CHECKING:
    import pandas as pd

NAME = "runs.parquet"
DIGITS = 5  # significant digits that numbers are rounded to
MOST_BYTES = 5_000_000


def table(runs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Returns all histories as one frame with the first column `experiment`, rounded to five digits.

    Args:
        runs: name of the experiment -> a frame of `dml.compare` or `dml.sweep`; their columns may differ.

    Returns:
        The frame.

    Raises:
        ValueError: there is no frame, or a frame already has this column.

    >>> import pandas as pd
    >>> table({"digits": pd.DataFrame({"method": ["BSP"], "loss": [1.2345678]})})
      experiment method    loss
    0     digits    BSP  1.2346
    """
    import pandas as pd

    if not isinstance(runs, Mapping) or not runs:
        checks.fail("runs", runs, "a mapping of experiments to frames, such as dml.compare returns")
    named = []
    for name, frame in runs.items():
        if "experiment" in frame:
            checks.fail(f"runs[{name!r}]", list(frame), "a frame without a column 'experiment'")
        named.append(frame.assign(experiment=name))
    found = pd.concat(named, ignore_index=True)
    for column in found.select_dtypes("float"):
        found[column] = [float(f"{value:.{DIGITS}g}") for value in found[column]]
    return found[["experiment", *(column for column in found if column != "experiment")]]


def write(runs: Mapping[str, pd.DataFrame], folder: str | os.PathLike[str]) -> Path:
    """Writes `table(runs)` to runs.parquet in a folder, completely or not at all, and returns its path.

    Raises:
        ValueError: as for `table`, or the file would have more than 5 MB.
    """
    path = Path(folder) / NAME
    found = table(runs)
    found.attrs = {}  # attributes may contain objects that JSON cannot represent
    with files.aside(path) as partial:
        found.to_parquet(partial, engine="pyarrow", compression="zstd", index=False)
        if (size := partial.stat().st_size) > MOST_BYTES:
            checks.reject("runs", f"{size / 1e6:.1f} MB", f"at most {MOST_BYTES / 1e6:g} MB", "fewer runs")
    return path
