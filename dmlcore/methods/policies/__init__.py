"""Policies: what the server does when a push arrives. Lower-case factories return them.

Each factory has a module of the same name. This file imports them all, so that the name stands for the
factory and not for its module.
"""

from collections.abc import Callable

from dmlcore.methods.policies.a2s import a2s
from dmlcore.methods.policies.adaptive_load import adaptive_load
from dmlcore.methods.policies.adaptive_sync import adaptive_sync
from dmlcore.methods.policies.adasync import adasync
from dmlcore.methods.policies.asp import asp
from dmlcore.methods.policies.backup import backup
from dmlcore.methods.policies.bsp import bsp
from dmlcore.methods.policies.dbw import dbw
from dmlcore.methods.policies.deadline import deadline
from dmlcore.methods.policies.delay_adaptive import delay_adaptive
from dmlcore.methods.policies.dssp import dssp
from dmlcore.methods.policies.essp import essp
from dmlcore.methods.policies.fedasync import fedasync
from dmlcore.methods.policies.fedbuff import fedbuff
from dmlcore.methods.policies.k_async import k_async
from dmlcore.methods.policies.k_batch_async import k_batch_async
from dmlcore.methods.policies.k_batch_sync import k_batch_sync
from dmlcore.methods.policies.k_sync import k_sync
from dmlcore.methods.policies.k_sync_schedule import k_sync_schedule
from dmlcore.methods.policies.mindflayer import mindflayer
from dmlcore.methods.policies.n_softsync import n_softsync
from dmlcore.methods.policies.pflug import pflug
from dmlcore.methods.policies.rennala import rennala
from dmlcore.methods.policies.ringleader import ringleader
from dmlcore.methods.policies.ringmaster import ringmaster
from dmlcore.methods.policies.ssp import ssp
from dmlcore.methods.policies.sync_switch import sync_switch
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
}

__all__ = ["ALL_POLICIES", "a2s", "adaptive_sync", "asp", "bsp", "deadline", "dssp", "essp", "ssp"]
__all__ += ["sync_switch"]
__all__ += ["k_async", "k_batch_async", "k_batch_sync", "k_sync", "k_sync_schedule", "n_softsync"]
__all__ += ["backup", "mindflayer", "rennala", "ringleader", "ringmaster"]
__all__ += ["delay_adaptive", "fedasync", "fedbuff"]
__all__ += ["adaptive_load", "adasync", "dbw", "pflug"]  # they watch their training
