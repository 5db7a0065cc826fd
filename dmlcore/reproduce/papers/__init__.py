"""The registry of reproduced papers. It must import quickly, because every command line reads it."""

from importlib import import_module

from dmlcore.reproduce.paper import Paper, Parameters

KEYS = "ssp", "adaptive_sync", "adaptive_k_load", "hps", "dbs_sgd", "compare", "beyond", "real_stragglers"
PAPERS: dict[str, Paper] = {key: import_module(f"{__name__}.{key}").PAPER for key in KEYS}

__all__ = ["PAPERS", "Paper", "Parameters"]
