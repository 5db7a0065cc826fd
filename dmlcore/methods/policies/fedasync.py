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
    """FedAsync: every push is an update, with a weight alpha s(tau) that falls with its staleness tau.

    s(tau) is 1 ("constant"), (1 + tau)^-a ("polynomial"), or 1 up to tau = b and 1 / (1 + a (tau - b))
    beyond ("hinge"). No worker waits.

    What differs from the paper: there a push is a model x_new, which a worker reached by local steps from the
    x_tau that it pulled, and the server moves from x to (1 - alpha s) x + alpha s x_new. With the difference
    d = x_tau - x_new, that is x - alpha s d + alpha s (x_tau - x). Here a push is a gradient d, and the
    optimizer receives alpha s(tau) d. So this policy makes the step x - alpha s d, and leaves out the term
    alpha s (x_tau - x), which pulls the server back towards the version that the worker had read. The two
    rules agree if tau = 0.

    Guarantees: no worker waits; the weight of a push is at most alpha. `fedasync(1)` is `asp()`, and
    `fedasync(alpha)` is `asp(weight=alpha)`.

    Args:
        alpha: weight of a push with staleness 0, in (0, 1].
        decay: the function s, "constant", "polynomial" or "hinge".
        a: how steeply s falls, > 0. Default: the paper's, 0.5 for "polynomial", 10 for "hinge".
        b: the staleness, in updates, up to which the hinge is 1, >= 0. Default: the paper's, 4.

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: a number is out of range, `decay` is not one of those listed, or it does not use the given
            `a` or `b`.

    >>> fedasync(0.6), fedasync(0.6, "hinge", a=2)
    (fedasync(alpha=0.6), fedasync(alpha=0.6, decay='hinge', a=2.0))

    Reference: Xie, Koyejo and Gupta 2019, "Asynchronous federated optimization", Algorithm 1 and the
    functions s(t - tau) of its experiments.
    """
    if decay == "constant" and a is not None:
        fail("a", a, "None (decay='constant' does not use it)")
    if decay != "hinge" and b is not None:
        fail("b", b, "None (only decay='hinge' uses it)")
    steepness = STEEPNESS[decay] if a is None else a
    s = {
        "constant": DAMPING["none"],
        "polynomial": polynomial(steepness),
        "hinge": hinge(steepness, 4.0 if b is None else b),
    }[decay]

    def factor(each: Each, push: Push, tau: int) -> float:
        return s(tau)

    return each_push(factor, alpha)
