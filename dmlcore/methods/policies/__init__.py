"""Policies: what the server does when a push arrives. Lower-case factories return them."""

from collections.abc import Callable
from functools import partial

from dmlcore.calls import made
from dmlcore.files import table
from dmlcore.methods.policies.each import asp, delay_adaptive, fedasync, ringmaster
from dmlcore.methods.policies.gated import bsp, dssp, essp, ssp, sync_switch
from dmlcore.methods.policies.groups import a2s, adaptive_sync
from dmlcore.methods.policies.rounds import (
    backup,
    deadline,
    fedbuff,
    k_async,
    k_batch_async,
    k_batch_sync,
    k_sync,
    k_sync_schedule,
    n_softsync,
    rennala,
    ringleader,
)
from dmlcore.methods.policies.sampling import sampled
from dmlcore.methods.policies.trials import mindflayer
from dmlcore.methods.policies.watching import adaptive_load, adasync, dbw, pflug
from dmlcore.types import Policy

__all__ = ["ALL_POLICIES", "a2s", "adaptive_load", "adaptive_sync", "adasync", "asp", "backup", "bsp", "dbw"]
__all__ += ["deadline", "delay_adaptive", "dssp", "essp", "fedasync", "fedbuff", "k_async", "k_batch_async"]
__all__ += ["k_batch_sync", "k_sync", "k_sync_schedule", "mindflayer", "n_softsync", "pflug", "rennala"]
__all__ += ["ringleader", "ringmaster", "sampled", "ssp", "sync_switch"]

MAKERS: dict[str, Callable[..., Policy]] = {
    name: globals()[name] for name in __all__ if name != "ALL_POLICIES"
}
"""Name -> factory of all policies."""
# Every policy in this table runs through all conformance tests on every engine.
ALL_POLICIES: dict[str, Callable[[], Policy]] = {
    name: partial(made, name, call, MAKERS) for name, call in table(__file__, "tested").items()
}
