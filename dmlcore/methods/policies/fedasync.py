"""FedAsync."""

from functools import partial

from dmlcore.calls import named
from dmlcore.checks import fail, not_negative, one_of, or_none, positive, real
from dmlcore.methods.policies._damping import DAMPING, hinge, polynomial
from dmlcore.methods.policies._each import Each, each_push
from dmlcore.types import Policy, Push

STEEPNESS = {"constant": 0.0, "polynomial": 0.5, "hinge": 10.0}  # the paper's a of each function s


@named(
    alpha=partial(real, above=0, high=1),
    decay=one_of(*STEEPNESS),
    a=or_none(positive),
    b=or_none(not_negative),
)
def fedasync(
    alpha: float, decay: str = "constant", *, a: float | None = None, b: float | None = None
) -> Policy:
    """FedAsync: every push is mixed in at once, with a weight alpha s(tau) that falls with its age tau.

    s(tau) is 1 ("constant"), (1 + tau)^-a ("polynomial"), or 1 up to tau = b and 1 / (1 + a (tau - b)) from
    there on ("hinge"). No worker waits.

    A push is a gradient here, and the optimizer is given alpha s(tau) of it. In the paper a push is a model
    x_new, which a worker reached by local steps from the x_tau that it pulled, and the server goes from x to
    (1 - alpha s) x + alpha s x_new. In terms of the difference d = x_tau - x_new, "pulled - reached", that is
    x - alpha s d + alpha s (x_tau - x). This policy makes the first step, x - alpha s d, and leaves out the
    other, which draws the server back to what the worker had pulled. Where tau = 0 there is no difference.

    Guarantees: no worker waits; a push weighs at most alpha. `fedasync(1)` is `asp()`, and `fedasync(alpha)`
    is `asp(weight=alpha)`.

    Args:
        alpha: weight of a push that is not stale, in (0, 1].
        decay: the function s, "constant", "polynomial" or "hinge".
        a: how steeply s falls, > 0. Default: the paper's, 0.5 for "polynomial", 10 for "hinge".
        b: the age up to which the hinge does not fall, updates, >= 0. Default: the paper's, 4.

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: a number is out of range, there is no such function s, or it has no such parameter.

    >>> fedasync(0.6), fedasync(0.6, "hinge", a=2)
    (fedasync(alpha=0.6), fedasync(alpha=0.6, decay='hinge', a=2.0))

    Reference: Xie, Koyejo and Gupta 2019, "Asynchronous federated optimization", Algorithm 1 and the
    functions s(t - tau) of its experiments.
    """
    if decay == "constant" and a is not None:
        fail("a", a, "None where s is constant")
    if decay != "hinge" and b is not None:
        fail("b", b, "None where s is no hinge")
    steepness = STEEPNESS[decay] if a is None else a
    s = {
        "constant": DAMPING["none"],
        "polynomial": polynomial(steepness),
        "hinge": hinge(steepness, 4.0 if b is None else b),
    }[decay]

    def factor(each: Each, push: Push, tau: int) -> float:
        return s(tau)

    return each_push(factor, alpha)
