"""The registry of reproduced papers. It must import quickly, because every command line reads it."""

from dmlcore.reproduce.paper import Paper, Parameters
from dmlcore.reproduce.papers import (
    adaptive_k_load,
    adaptive_sync,
    beyond,
    compare,
    dbs_sgd,
    hps,
    real_stragglers,
    ssp,
)

PAPERS: dict[str, Paper] = {
    each.PAPER.key: each.PAPER
    for each in (ssp, adaptive_sync, adaptive_k_load, hps, dbs_sgd, compare, beyond, real_stragglers)
}

__all__ = ["PAPERS", "Paper", "Parameters"]
