"""Transports: what travels between server and workers, and how many bytes it is."""

from __future__ import annotations

from dmlcore import checks
from dmlcore.types import Transport


def plain() -> Transport:
    """Parameters travel to the worker and gradients to the server as they are.

    Returns:
        The transport.

    Example:
        >>> plain().push_bytes(4096)
        4096
    """
    return Transport("plain()", lambda nbytes: nbytes, lambda nbytes: nbytes)


TRANSPORTS = {"plain": plain}


def resolve(transport: Transport | str | None) -> Transport:
    """Returns a transport from an object, a registered name or None (`plain`)."""
    if transport is None:
        return plain()
    if isinstance(transport, Transport):
        return transport
    return checks.choice("transport", transport, TRANSPORTS)()
