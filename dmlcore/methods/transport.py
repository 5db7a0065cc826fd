"""Transports: what is sent between server and workers, its bytes, and what workers do during a transfer."""

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
    """Sends parameters to the workers and gradients to the server without any rounding.

    Returns:
        The transport: a pull and a push each have as many bytes as the parameters.

    >>> plain().push_bytes(4096)
    4096
    """
    return Transport("", _as_they_are, _as_they_are)


@named(push=_codec, pull=_codec)
def coded(push: Codec | str | None = None, pull: Codec | str | None = None) -> Transport:
    """Rounds gradients, parameters or both for the transfer, which then takes fewer bytes.

    Guarantees: training uses the rounded values. If a codec has a memory, every worker has its own memory for
    its gradients, and one for its parameters.

    The policy must make every task pull. If a codec has a memory, the policy must also apply every push that
    arrives, and a run on a real clock cannot be resumed. What a task has changed in a memory is undone if the
    task is cancelled or lost. A `Crash` says whether its worker keeps its memory; a hang keeps it. If a
    memory is lost, or the server restarts from a checkpoint, sender and receiver begin as at the start of the
    run: residuals are 0, the copies of `difference` are those given to `init`, and the factor of `power_sgd`
    is the first one.

    Args:
        push: codec for gradients, see `dmlcore.methods.codecs`. Default: None, no rounding.
        pull: codec for parameters, such as `difference(affine(8))`. Default: None, no rounding. A codec that
            rounds the parameters themselves, and not their differences, can lose small updates.

    Returns:
        The transport.

    Raises:
        ValueError: `push` or `pull` is not a codec, nor a call that makes one.

    >>> coded(push="qsgd(levels=4)")
    coded(push=qsgd(levels=4))

    Reference: Xian et al. 2024 (H-PS), whose quantisation is flexible in the number of bits.
    """
    codecs: Any = {"pull": pull, "push": push}  # `named` has made codecs of texts
    return Transport("", _as_they_are, _as_they_are, **codecs)


@named(bare=True, transport=lambda name, transport: resolve(transport), own_steps=checks.boolean)
def pipelined(transport: Transport | str | None = None, *, own_steps: bool = False) -> Transport:
    """Pipelining: a worker computes its next task during the transfers of its push and of the answer.

    One thread of the worker pushes gradient k and receives the answer. During that time another thread
    computes task k + 1, on the parameters from the answer to push k - 1. So a round of BSP takes
    max(computing, both transfers) and not their sum, and gradients are late by one update,
    w_{k+1} = w_k - eta G(w_{k-1}): a bound on staleness grows by one clock. Tasks 0 and 1 both pull version
    0. After a policy has cancelled a worker's tasks, or the worker has crashed, it begins with two tasks
    again. The policy must make every task pull.

    Args:
        transport: what is sent. Default: `plain()`.
        own_steps: True: the worker adds its own step. Task k + 1 is computed on the answer to push k - 1 plus
            the update that gradient k alone makes, with the current state of the server's optimizer.

    Returns:
        The transport.

    Raises:
        ValueError: an argument is wrong, or `transport` is already pipelined.

    >>> pipelined(own_steps=True)
    pipelined(plain(), own_steps=True)

    Reference: Xian et al. 2024 (H-PS). Only its abstract is available to us: it says that workers continue to
    train during transfers. Both rules are our reconstruction; the rule without own steps is Li et al. 2018,
    "Pipe-SGD", with a width of 2.
    """
    inner = resolve(transport)
    if inner.pipelined:
        checks.reject("transport", inner.name, "one that is not pipelined")
    return inner._replace(pipelined=True, own_steps=own_steps)


TRANSPORTS: dict[str, Callable[..., Transport]] = {"plain": plain, "coded": coded, "pipelined": pipelined}


def resolve(transport: Transport | str | None) -> Transport:
    """Returns a transport, given as an object, as a text such as "affine(4)" or "plain", or as None.

    Args:
        transport: a transport; or the call that makes it, or its bare name, as a string. None: `plain()`.

    Returns:
        The transport.

    Raises:
        ValueError: the string is not such a call, or an argument in it is wrong.

    >>> resolve("pipelined(coded(push=qsgd(levels=4)))").push.name
    'qsgd(levels=4)'
    """
    if transport is None or isinstance(transport, Transport):
        return transport or plain()
    from dmlcore.methods.codecs import CODECS

    text = isinstance(transport, str)
    made = calls.made("transport", transport, {**TRANSPORTS, **CODECS}) if text else transport
    if not isinstance(made, Transport):
        expected = f"a Transport, or a call as text of one of {', '.join(TRANSPORTS)}"
        checks.fail("transport", transport, expected, "coded(push=...)" if isinstance(made, Codec) else "")
    return made


def _as_they_are(nbytes: int) -> int:
    return nbytes
