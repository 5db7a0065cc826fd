"""Load rules: how the total batch is divided among the workers."""

from collections.abc import Callable

from dmlcore import calls
from dmlcore.methods.loads.dynamic_batching import dynamic_batching
from dmlcore.methods.loads.equal import equal
from dmlcore.methods.loads.equal_finish_time import equal_finish_time
from dmlcore.methods.loads.lb_bsp import lb_bsp
from dmlcore.methods.loads.speed_proportional import speed_proportional
from dmlcore.types import Load

RULES = (equal, equal_finish_time, speed_proportional, dynamic_batching, lb_bsp)
LOADS: dict[str, Callable[[], Load]] = {rule.__name__: rule for rule in RULES}

__all__ = ["LOADS", "resolve"]
__all__ += ["dynamic_batching", "equal", "equal_finish_time", "lb_bsp", "speed_proportional"]


def resolve(load: Load | str | None) -> Load:
    """Returns a load rule from an object, the call or name that makes it, or None.

    Args:
        load: a load rule; or the call that makes it, or its bare name, as a string. None: `equal()`.

    Returns:
        The load rule.

    Raises:
        ValueError: the string is not such a call, or an argument in it is wrong.

    >>> resolve("dynamic_batching(caps=128)").name
    'dynamic_batching(caps=128)'
    """
    if load is None or isinstance(load, Load):
        return load or equal()
    return calls.made("load", load, LOADS)
