"""Multipliers as they were seen, and the mean of what lies beyond a cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlcore.cluster.jitter import quantile_function


@dataclass(frozen=True, eq=False)
class Empirical:
    """Quantile function of multipliers that were seen, with mean 1, linear between `values` at equal steps.

    >>> import numpy as np
    >>> Empirical(np.array([0.5, 1.5]))(np.array([0.0, 0.5, 0.9]))
    array([0.5, 1. , 1.5])
    """

    values: np.ndarray

    @classmethod
    def of(cls, km: Any) -> Empirical:
        """Returns the quantiles of a distribution function from `scipy.stats.ecdf`."""
        grid = (np.arange(2000) + 0.5) / 2000
        rank = np.searchsorted(km.probabilities, grid)
        values = km.quantiles[np.minimum(rank, len(km.quantiles) - 1)]
        return cls(values / values.mean())

    @property
    def __name__(self) -> str:
        return "empirical"

    def __call__(self, uniforms: np.ndarray) -> np.ndarray:
        count = len(self.values)
        return np.interp(uniforms, (np.arange(count) + 0.5) / count, self.values)


def mean_beyond(jitter: Any, z: np.ndarray) -> np.ndarray:
    """Returns the mean of the multipliers above each z."""
    quantile = quantile_function(jitter)
    if quantile is None:
        return np.maximum(z, 1.0)
    grid = (np.arange(10_000) + 0.5) / 10_000
    values = quantile(grid)
    tail = np.cumsum(values[::-1])[::-1] / np.arange(len(values), 0, -1)
    first = np.minimum(np.searchsorted(values, z), len(values) - 1)
    return np.maximum(tail[first], z)
