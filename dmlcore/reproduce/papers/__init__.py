"""The papers that are reproduced: one line each. Light to import, since every command line reads it."""

from dmlcore.reproduce.paper import Paper, Parameters
from dmlcore.reproduce.papers.adaptive_k_load import PAPER as ADAPTIVE_K_LOAD
from dmlcore.reproduce.papers.adaptive_sync import PAPER as ADAPTIVE_SYNC
from dmlcore.reproduce.papers.compare import PAPER as COMPARE
from dmlcore.reproduce.papers.dbs_sgd import PAPER as DBS_SGD
from dmlcore.reproduce.papers.hps import PAPER as HPS
from dmlcore.reproduce.papers.ssp import PAPER as SSP

PAPERS: dict[str, Paper] = {
    paper.key: paper for paper in (SSP, ADAPTIVE_SYNC, ADAPTIVE_K_LOAD, HPS, DBS_SGD, COMPARE)
}

__all__ = ["PAPERS", "Paper", "Parameters"]
