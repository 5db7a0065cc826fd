"""Policies: the server's rule when a push arrives. Lower-case factories return them."""

from __future__ import annotations

from collections.abc import Callable

from dmlcore.methods.policies.adaptive_k import adasync, pflug
from dmlcore.methods.policies.asynchronous import asp
from dmlcore.methods.policies.by_gain import adaptive_load, dbw
from dmlcore.methods.policies.clocks import bsp, essp, ssp
from dmlcore.methods.policies.dynamic_ssp import dssp
from dmlcore.methods.policies.epoch_groups import a2s
from dmlcore.methods.policies.k_schedule import k_sync_schedule
from dmlcore.methods.policies.switching import sync_switch
from dmlcore.methods.policies.three_states import adaptive_sync
from dmlcore.methods.policies.wait_for_k import k_async, k_batch_async, k_batch_sync, k_sync, n_softsync
from dmlcore.types import Policy

# One table: every policy here inherits every conformance test on every engine.
ALL_POLICIES: dict[str, Callable[[], Policy]] = {
    "bsp": bsp,
    "asp": asp,
    "asp_coupled": lambda: asp(scaling="samples", damping="inverse"),
    "ssp": lambda: ssp(staleness=3),
    "ssp_unbounded": lambda: ssp(staleness=float("inf")),
    "essp": lambda: essp(staleness=2),
    "dssp": lambda: dssp(lower=1, upper=4),
    "k_sync": lambda: k_sync(2),
    "k_batch_sync": lambda: k_batch_sync(3),
    "k_async": lambda: k_async(2),
    "k_batch_async": lambda: k_batch_async(3),
    "n_softsync": lambda: n_softsync(2, damping="reciprocal"),
    "k_sync_schedule": lambda: k_sync_schedule([(0, 2), (0.05, 3)]),
    "pflug": lambda: pflug(3, burn_in=5, threshold=2),
    "adasync": lambda: adasync(1, batch_async=True),
    "adaptive_load": lambda: adaptive_load(0.1, [32]),
    "adaptive_sync": lambda: adaptive_sync(4, behind=4),
    "a2s": lambda: a2s(epoch=2),
    "sync_switch": lambda: sync_switch(10),
}

__all__ = [
    "ALL_POLICIES",
    "a2s",
    "adaptive_load",
    "adaptive_sync",
    "adasync",
    "asp",
    "bsp",
    "dbw",
    "dssp",
    "essp",
    "k_async",
    "k_batch_async",
    "k_batch_sync",
    "k_sync",
    "k_sync_schedule",
    "n_softsync",
    "pflug",
    "ssp",
    "sync_switch",
]
