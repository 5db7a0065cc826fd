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

    def call(node: ast.expr) -> Any:
        function = node.func if isinstance(node, ast.Call) else node
        if not isinstance(function, ast.Name) or function.id not in makers:
            checks.fail(argument, text, allowed)
        given = node if isinstance(node, ast.Call) else ast.Call(function, [], [])
        options = {str(each.arg): value(each.value) for each in given.keywords}
        try:
            return makers[function.id](*map(value, given.args), **options)
        except TypeError as error:
            checks.fail(argument, text, f"a call with the arguments of {function.id} ({error})")

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Call | ast.Name):
            return call(node)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            checks.fail(argument, text, "a call whose arguments are literals, or such calls")

    if not isinstance(text, str):
        checks.fail(argument, text, allowed)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        checks.fail(argument, text, allowed)
    return call(tree)
