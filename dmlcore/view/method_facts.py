"""What a method is, and what a run will be: facts for notebook displays."""

import ast
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

from dmlcore.calls import parsed
from dmlcore.engines.spec import RunSpec
from dmlcore.methods import policies
from dmlcore.types import Method, Policy

DEFAULTS = {"load": "equal()", "transport": "plain()", "local": "none, a task is one gradient"}


def maker(policy: Policy) -> Callable[..., Policy] | None:
    """Returns the function that makes a policy, if it can be found."""
    name = policy.name.partition("(")[0]
    own = getattr(policy.on_push, "__globals__", {})
    found = own.get(name) or getattr(policies, name, None)
    return found if callable(found) else None


def summary(policy: Policy) -> str | None:
    """Returns the first line of the docstring of the function that makes a policy, if it can be found."""
    found = maker(policy)
    doc = inspect.getdoc(found) if found else None  # of None, Python 3.13 has one
    return doc.splitlines()[0] if doc else None


def knobs(policy: Policy) -> dict[str, str]:
    """Returns the value and the meaning of each argument of the call that made a policy, by name.

    >>> def mine(bound, scale=2.0):
    ...     '''Drops what is too stale.
    ...
    ...     Args:
    ...         bound: updates that a gradient may
    ...             have missed.
    ...     '''
    >>> policy = Policy("mine(bound=3)", None, eval("lambda state, push: None", {"mine": mine}))
    >>> knobs(policy)
    {'bound': '3: updates that a gradient may have missed.', 'scale': '2.0'}
    """
    made = maker(policy)
    try:
        call = parsed(policy.name)
    except SyntaxError:
        return {}
    if made is None or not isinstance(call, ast.Call):
        return {}
    parameters = inspect.signature(made).parameters
    given = dict(zip(parameters, map(ast.unparse, call.args), strict=False))
    given |= {str(word.arg): ast.unparse(word.value) for word in call.keywords}
    meanings, found = _meanings(inspect.getdoc(made) or ""), {}
    for name, parameter in parameters.items():
        if name in given or parameter.default is not parameter.empty:
            value = given.get(name, repr(parameter.default))
            found[name] = f"{value}: {meanings[name]}" if name in meanings else value
    return found


def _meanings(doc: str) -> dict[str, str]:
    """Returns what the section `Args` of a docstring says of each argument."""
    section = doc.partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def of_policy(policy: Policy) -> dict[str, Any]:
    """Returns what a policy does, its knobs, what it bounds, and what it can cope with."""
    bound = policy.max_lead
    free = bound is None or math.isinf(bound)
    watches = f"loss and gradients, at least every {policy.observe_every} updates"
    return {
        "in a line": summary(policy),
        **knobs(policy),
        "bound": "none on a worker's lead"
        if free
        else f"at most {bound:g} clocks ahead of the slowest worker",
        "workers may leave": "no" if policy.on_leave is None else "yes",
        "cached copies": "a worker may compute on the copy that it has pulled before"
        if policy.keep_copy
        else None,
        "watches": watches if policy.on_observation else None,
        "timers": "the policy also acts at times of its own" if policy.on_wake else None,
    }


def of_method(method: Method) -> dict[str, Any]:
    """Returns the facts of a method's policy, and what goes with it; None takes what the run has."""
    first = method.policy.batch_size
    sized = None if first is None else f"set by the policy, {first} samples at first"

    def told(part: Any, default: str) -> str:
        return f"that of the run; by default {default}" if part is None else str(part)

    return of_policy(method.policy) | {
        "batch sizes": sized,
        "load": None if sized else told(method.load, DEFAULTS["load"]),
        "transport": told(method.transport, DEFAULTS["transport"]),
        "local steps": told(method.local, DEFAULTS["local"]),
        "aggregate": None if method.aggregate is None else str(method.aggregate),
        "compensation": None if method.compensation is None else f"lambda = {method.compensation:g}",
        "optimizer": None if method.optimizer is None else "its own",
    }


def of_spec(spec: RunSpec) -> dict[str, Any]:
    """Returns what will be run: the method, the cluster, and when it ends."""
    aggregate = None if spec.aggregate.plain else spec.aggregate
    parts = spec.load, spec.transport, None, spec.compensation or None, spec.local, aggregate
    pull, push = spec.transferred_bytes()
    tasks = f"{spec.batch_size} samples" + (f" in {spec.local.steps} local steps" if spec.local else "")
    return {
        "ends after": ending(spec),
        "cluster": str(spec.cluster),
        "task": tasks,
        "seed": spec.seed,
        **of_method(Method(spec.policy, *parts)),
        "local steps": str(spec.local or DEFAULTS["local"]),
        "parameters": f"{spec.num_parameters} numbers" if spec.parameter_bytes else None,
        "bytes of a task": f"{pull} pulled, {push} pushed" if pull or push else None,
    }


def ending(spec: RunSpec) -> str:
    """Returns when a run ends, in words."""
    ((name, count),) = ((name, count) for name, count in spec.stop._asdict().items() if math.isfinite(count))
    return f"{count:g} {name}"
