"""Calls as text: what a trace says of a codec or a transport is the call that makes it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from dmlcore import checks

Makers = Mapping[str, Callable[..., Any]]


def made(argument: str, text: Any, makers: Makers) -> Any:
    """Returns what a call makes. It is read, never run: only `makers` and literals may stand in it.

    Args:
        argument: what the caller calls the text.
        text: such as `"coded(push=qsgd(levels=4))"`; without arguments the bare name will do.
        makers: functions by name.

    Raises:
        ValueError: it is no such call, or a maker refuses its arguments.

    Example:
        >>> made("text", "pair(1, pair(2, 3))", {"pair": lambda a, b: (a, b)})
        (1, (2, 3))
    """
    allowed = f"a call of {', '.join(makers)}"
    if not isinstance(text, str):
        checks.fail(argument, text, allowed)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        checks.fail(argument, text, allowed)
    return _call(argument, text, tree, makers)


def _call(argument: str, whole: str, node: ast.expr, makers: Makers) -> Any:
    function = node.func if isinstance(node, ast.Call) else node
    if not isinstance(function, ast.Name) or function.id not in makers:
        checks.fail(argument, whole, f"a call of {', '.join(makers)}")
    values, options = [], {}
    if isinstance(node, ast.Call):
        values = [_value(argument, whole, each, makers) for each in node.args]
        options = {str(each.arg): _value(argument, whole, each.value, makers) for each in node.keywords}
    try:
        return makers[function.id](*values, **options)
    except TypeError as error:
        checks.fail(argument, whole, f"a call with the arguments of {function.id} ({error})")


def _value(argument: str, whole: str, node: ast.expr, makers: Makers) -> Any:
    if isinstance(node, ast.Call | ast.Name):
        return _call(argument, whole, node, makers)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        checks.fail(argument, whole, "a call whose arguments are literals, or such calls")
