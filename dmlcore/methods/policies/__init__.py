"""Policies: what the server does when a push arrives. Lower-case factories return them."""

from collections.abc import Callable

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

# Every policy in this table runs through all conformance tests on every engine.
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
    "deadline": lambda: deadline(0.04),
    "k_sync_schedule": lambda: k_sync_schedule([(0, 2), (0.05, 3)]),
    "pflug": lambda: pflug(3, burn_in=5, threshold=2),
    "adasync": lambda: adasync(1, batch_async=True),
    "adaptive_load": lambda: adaptive_load(0.1, [32]),
    "adaptive_load_gradients": lambda: adaptive_load(0.1, [16, 32], estimate_from="gradients"),
    "dbw": lambda: dbw(0.1),
    "adaptive_sync": lambda: adaptive_sync(4, behind=4),
    "a2s": lambda: a2s(epoch=2),
    "sync_switch": lambda: sync_switch(10),
    "backup": lambda: backup(1, timeout=0.05),
    "rennala": lambda: rennala(3),
    "ringmaster": lambda: ringmaster(3),
    "ringmaster_stop": lambda: ringmaster(3, stop=True),
    "ringleader": ringleader,
    "mindflayer": lambda: mindflayer(0.5, trials=2),
    "delay_adaptive": lambda: delay_adaptive(concurrency=2),
    "fedbuff": lambda: fedbuff(3),
    "fedasync": lambda: fedasync(0.6, "hinge", a=2, b=1),
    "sampled": lambda: sampled(2),
    "sampled_async": lambda: sampled(2, fedbuff(2)),
}

__all__ = ["ALL_POLICIES", "a2s", "adaptive_load", "adaptive_sync", "adasync", "asp", "backup", "bsp", "dbw"]
__all__ += ["deadline", "delay_adaptive", "dssp", "essp", "fedasync", "fedbuff", "k_async", "k_batch_async"]
__all__ += ["k_batch_sync", "k_sync", "k_sync_schedule", "mindflayer", "n_softsync", "pflug", "rennala"]
__all__ += ["ringleader", "ringmaster", "sampled", "ssp", "sync_switch"]
