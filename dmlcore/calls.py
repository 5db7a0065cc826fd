"""Decorators of factories: they check arguments, and name results by the call that makes them."""

import ast
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from dmlcore import checks

Check = Callable[[str, Any], Any]  # name of an argument, value -> the value to use; raises ValueError
P = ParamSpec("P")
T = TypeVar("T")
KEPT = 16  # number of latest results that a cached function keeps alive
_parsing = threading.Lock()


def kept(make: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function: the same arguments give the same object again, as long as it is alive.

    The cache holds weak references, and keeps the latest `KEPT` results alive. Results without weak
    references, such as named tuples, are small and stay in the cache.

    >>> @kept
    ... def found(number):
    ...     return {number}
    >>> one = found(1)
    >>> [found(number) for number in range(2, 100)][-1], found(1) is one
    ({99}, True)
    """
    alive: WeakValueDictionary[Any, Any] = WeakValueDictionary()
    small: dict[Any, Any] = {}

    @functools.lru_cache(maxsize=KEPT)
    @functools.wraps(make)
    def call(*args: Any, **kwargs: Any) -> Any:
        key = args, tuple(kwargs.items())
        made = small[key] if key in small else alive.get(key)
        if made is None:
            made = make(*args, **kwargs)
            try:
                alive[key] = made
            except TypeError:  # it has no weak references
                small[key] = made
        return made

    found: Any = call
    return found


def checked(**by_name: Check) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function: checks its arguments before each call.

    Args:
        by_name: a `Check` for each parameter that needs one.

    >>> @checked(times=checks.at_least(0))
    ... def repeat(text, times):
    ...     return text * times
    >>> repeat("ab", "2")
    Traceback (most recent call last):
    ValueError: times: expected a whole number >= 0, got '2'
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                empty = inspect.Parameter.empty  # without annotations
                bare = [each.replace(annotation=empty) for each in signature.parameters.values()]
                usage = f"{function.__name__}{inspect.Signature(bare)}"
                raise TypeError(f"{function.__name__}(): {error}; its signature is {usage}") from None
            bound.apply_defaults()
            for name, check in by_name.items():
                bound.arguments[name] = check(name, bound.arguments[name])
            return function(*bound.args, **bound.kwargs)

        return call

    return decorate


def memoised(**by_name: Check) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a factory: checks its arguments, and returns the same object for the same arguments.

    Args:
        by_name: a `Check` for each parameter that needs one.

    >>> @memoised(factor=checks.at_least(1))
    ... def shorter(factor):
    ...     return [factor]
    >>> shorter(4) is shorter(factor=4)
    True
    """

    return lambda make: checked(**by_name)(kept(make))


def named(
    *, every: bool = False, bare: bool = False, same: bool = False, **by_name: Check
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a factory: checks its arguments, and names the result by the call that makes it.

    The factory returns a named tuple with a field `name`. The name shows the arguments of `by_name` first,
    then the others in the order of the signature.

    Args:
        every: whether the name also shows arguments that are equal to their defaults.
        bare: whether the name shows the first argument without its keyword.
        same: whether the same arguments give the same object, as with `memoised`. A result that another
            factory has named then keeps its name.
        by_name: a `Check` for each parameter that needs one.

    >>> from dmlcore.types import Transport
    >>> @named(factor=checks.at_least(1))
    ... def shorter(factor, *, push=True):
    ...     return Transport("", lambda nbytes: nbytes, lambda nbytes: nbytes // factor)
    >>> shorter(4), shorter(4, push=False)
    (shorter(factor=4), shorter(factor=4, push=False))
    """

    def decorate(make: Callable[P, T]) -> Callable[P, T]:
        parameters = inspect.signature(make).parameters
        order = {name: parameters[name].default for name in (*by_name, *parameters)}

        @functools.wraps(make)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:  # the checked arguments, all of them
            given = dict(zip(parameters, args, strict=False)) | kwargs
            shown = [
                _text(given[name]) if bare and number == 0 else f"{name}={_text(given[name])}"
                for number, (name, default) in enumerate(order.items())
                if every or given[name] != default
            ]
            made: Any = make(*args, **kwargs)
            if same and made.name:
                return made
            return made._replace(name=f"{make.__name__}({', '.join(shown)})")

        return checked(**by_name)(kept(call) if same else call)

    return decorate


def parsed(text: str) -> ast.expr:
    """Returns the syntax tree of an expression; threads may parse at the same time.

    In CPython 3.11 `ast.parse` in two threads can raise SystemError, if the garbage collector, which calls
    JAX, lets another thread run in between (https://github.com/python/cpython/issues/106905).

    Raises:
        SyntaxError, ValueError, MemoryError, RecursionError: it is not an expression, or too deep.

    >>> type(parsed(" ssp(3)")).__name__
    'Call'
    """
    with _parsing:
        return ast.parse(text.strip(), mode="eval").body


def keywords(text: Any) -> dict[str, Any]:
    """Returns the keyword arguments in a name that is a call; {} if it is not a call with literal arguments.

    >>> keywords("asp(weight=0.3)"), keywords("mine")
    ({'weight': 0.3}, {})
    """
    try:
        call = parsed(text) if isinstance(text, str) else None
        given = call.keywords if isinstance(call, ast.Call) else []
        return {str(each.arg): ast.literal_eval(each.value) for each in given}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return {}


def _text(value: Any) -> str:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return repr([*value])
    return getattr(value, "__name__", str(value)) if callable(value) else repr(value)


def made(argument: str, text: Any, makers: Mapping[str, Callable[..., Any]]) -> Any:
    """Returns the result of a call given as text, such as `"coded(push=qsgd(levels=4))"`.

    A bare name counts as a call without arguments. The text is parsed, not evaluated: it may contain only
    `makers` and literals.

    Args:
        argument: name of the argument that holds the text, for error messages.
        text: the call.
        makers: the functions that the text may call, by name.

    Raises:
        ValueError: the text is not such a call, or a maker rejects its arguments.

    >>> made("text", "pair(1, pair(2, 3))", {"pair": lambda a, b: (a, b)})
    (1, (2, 3))
    """
    expected = f"a call of one of {', '.join(makers)}"

    def call(node: ast.expr) -> Any:
        function = node.func if isinstance(node, ast.Call) else node
        if not isinstance(function, ast.Name) or function.id not in makers:
            near = checks.nearest(getattr(function, "id", ""), makers, quoted=False)
            checks.fail(argument, text, expected, near and f"{near}(...)")
        given = node if isinstance(node, ast.Call) else ast.Call(function, [], [])
        options = {str(each.arg): value(each.value) for each in given.keywords}
        try:
            return makers[function.id](*map(value, given.args), **options)
        except TypeError as error:
            checks.fail(argument, text, f"a call with the arguments that {function.id} takes ({error})")

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Call | ast.Name):
            return call(node)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            checks.fail(argument, text, "a call whose arguments are literals or further calls")

    if not isinstance(text, str):
        checks.fail(argument, text, expected)
    try:
        tree = parsed(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        checks.fail(argument, text, expected)
    return call(tree)
