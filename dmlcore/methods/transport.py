"""Transports: what travels between server and workers, how many bytes it is, and what goes on meanwhile."""

from collections.abc import Callable
from typing import Any

from dmlcore import calls, checks
from dmlcore.calls import named
from dmlcore.types import Codec, Transport


def _codec(name: str, codec: Any) -> Codec | None:
    from dmlcore.methods.codecs import resolve

    return None if codec is None else resolve(codec)


@named()
def plain() -> Transport:
    """Parameters travel to the worker and gradients to the server as they are.

    >>> plain().push_bytes(4096)
    4096
    """
    return Transport("", _as_they_are, _as_they_are)


@named(push=_codec, pull=_codec)
def coded(push: Codec | str | None = None, pull: Codec | str | None = None) -> Transport:
    """Gradients, parameters or both are rounded on their way, and weigh the bytes that they then have.

    Guarantee: training sees the rounded values. Each worker's gradients and parameters are encoded with a
    memory of its own where the codec has one.

    For policies all of whose tasks pull; and where a codec has a memory, all of whose pushes come into an
    update. A memory is the worker's and ends with its process: it needs a cluster without crashes, and such a
    run on a real clock cannot be resumed.

    Args:
        push: codec of `dmlcore.methods.codecs` for gradients; None: they travel as they are.
        pull: likewise for parameters, such as `difference(affine(8))`. Rounding the parameters themselves
            can swallow small updates.

    Raises:
        ValueError: there is no such codec.

    >>> coded(push="qsgd(levels=4)")
    coded(push=qsgd(levels=4))

    Reference: Xian et al. 2024 (H-PS), whose quantisation is flexible in the number of bits.
    """
    up, down = _codec("push", push), _codec("pull", pull)
    return Transport("", _as_they_are, _as_they_are, pull=down, push=up)


@named(bare=True, transport=lambda name, transport: resolve(transport), own_steps=checks.boolean)
def pipelined(transport: Transport | str | None = None, *, own_steps: bool = False) -> Transport:
    """A worker computes its next task while its push, and the answer to it, are under way.

    One thread pushes gradient k, waits for the answer, and hands it over; another computes task k + 1
    meanwhile, on the answer to push k - 1. So a round of BSP takes max(computing, both transfers) and not
    their sum, and updates are late by one, w_{k+1} = w_k - eta G(w_{k-1}): a bound on staleness is wider by
    one clock. Tasks 0 and 1 each pull version 0. Where a policy cancels a worker's tasks, or the worker
    crashes, it begins with two tasks again. For policies all of whose tasks pull.

    Args:
        transport: what is sent. Default: `plain`.
        own_steps: the worker goes on with its own step: task k + 1 is computed on the answer to push k - 1
            plus the update that gradient k alone makes, with the server's optimizer as it is then.

    Raises:
        ValueError: an argument is wrong, or `transport` is pipelined.

    >>> pipelined(own_steps=True)
    pipelined(plain(), own_steps=True)

    Reference: Xian et al. 2024 (H-PS), of whose pipeline the abstract is known: workers train on during
    transfers. Both rules are a reconstruction; the first is Li et al. 2018, "Pipe-SGD", with a width of 2.
    """
    inner = resolve(transport)
    if inner.pipelined:
        checks.fail("transport", inner.name, "one that is not pipelined")
    return inner._replace(pipelined=True, own_steps=own_steps)


TRANSPORTS: dict[str, Callable[..., Transport]] = {"plain": plain, "coded": coded, "pipelined": pipelined}


def resolve(transport: Transport | str | None) -> Transport:
    """Returns a transport from an object, the call or name that makes it, or None (`plain`).

    >>> resolve("pipelined(coded(push=qsgd(levels=4)))").push.name
    'qsgd(levels=4)'
    """
    if transport is None or isinstance(transport, Transport):
        return transport or plain()
    from dmlcore.methods.codecs import CODECS

    text = isinstance(transport, str)
    made = calls.made("transport", transport, {**TRANSPORTS, **CODECS}) if text else transport
    if not isinstance(made, Transport):
        calling = ", ".join(TRANSPORTS)
        checks.fail(
            "transport", transport, f"a Transport, or a call of {calling} as text; codecs go in coded"
        )
    return made


def _as_they_are(nbytes: int) -> int:
    return nbytes
