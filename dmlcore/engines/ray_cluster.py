"""Connections to Ray clusters: a running one, or a local one on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from dmlcore import checks

CONNECT_SECONDS = 10.0  # before an address counts as unreachable
OBJECT_STORE_BYTES = 256 * 2**20
# Of a cluster that is started here: on loopback, as Ray has it on laptops' systems only, and with patience.
LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_raylet_start_wait_time_s": "120",
}
QUIET: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}


def installed() -> Any:
    """Returns the package ray.

    Raises:
        ImportError: it is not there.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine 'ray' needs Ray: pip install 'dmlcore[ray]'") from error
    return ray


def start_local(num_cpus: int) -> Any:
    """Starts a cluster on this machine, on loopback; actors that mostly sleep share its cores."""
    for name, value in LOCAL.items():
        os.environ.setdefault(name, value)
    ray = installed()
    store = {"object_store_memory": OBJECT_STORE_BYTES, "num_cpus": num_cpus}
    ray.init(address="local", include_dashboard=False, **store, **QUIET)
    return ray


@contextlib.contextmanager
def connection(address: str | None, num_cpus: int) -> Iterator[Any]:
    """Connects to the cluster at `address`, else to the one that is connected, else to a local one.

    Args:
        address: of a running cluster; None: any.
        num_cpus: of a local one.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: nobody answers at the address within `CONNECT_SECONDS`.
    """
    ray: Any = sys.modules.get("ray")
    mine = ray is None or not ray.is_initialized()
    if mine and address is None:
        ray = start_local(num_cpus)
    elif mine:
        ray = installed()
        _reach(str(address))
        ray.init(address=address, **QUIET)
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def _reach(address: str) -> None:
    parts = urlsplit(address if "://" in address else f"//{address}")
    if address == "auto":
        return
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        checks.fail("address", address, "HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(
            f"address: nobody answers at {address!r} ({error}; gave up within {CONNECT_SECONDS:g} s)"
        ) from error
