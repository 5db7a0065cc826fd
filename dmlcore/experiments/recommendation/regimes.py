"""Where each method is the best: the frame that `Recommendation.over` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dmlcore import notebook

TOLD = ["method", "seconds", "uncertain", "others", "tuned"]  # of each cell, besides its place on the axes


class Regimes(pd.DataFrame):
    """A row for each cell, with the columns that `Recommendation.over` names.

    A notebook shows it as a table with the best method of every cell. What is taken out of it is a plain
    DataFrame.

    >>> frame = Regimes({"workers": [4, 8], "method": ["BSP", "ASP"], "seconds": [2.0, 1.0],
    ...                  "uncertain": False, "others": "", "tuned": True})
    >>> "workers = 8" in frame._repr_html_(), type(frame[["method"]]).__name__
    (True, 'DataFrame')
    """

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        return notebook.html(self) if {*TOLD} <= {*self} else pd.DataFrame(self).to_html()
