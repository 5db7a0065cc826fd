"""Checks of arguments: a ValueError names the wrong argument, what was expected and what was given."""

import difflib
import math
import operator
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
MAX_SEED = 2**32 - 1
MAX_INT = 2**63 - 1  # the largest integer of NumPy
MAX_COUNT = 2**31 - 1  # clocks, updates, and samples of a task: a trace stores 32 bits
MAX_WORKERS = 2**20
HUGE = 1e300  # more would overflow where it is multiplied
SHOWN = 300  # characters of a value in a message


def message(name: str, found: str, expected: str, hint: str = "") -> str:
    """Returns the one form that messages about wrong arguments and inputs have.

    >>> message("rates", "2", "3 rates (one for each worker)", "a single rate")
    'rates: expected 3 rates (one for each worker), got 2; try a single rate'
    """
    return f"{name}: expected {expected}, got {found}" + (f"; try {hint}" if hint else "")


def fail(name: str, given: Any, expected: str, hint: str = "") -> NoReturn:
    """Raises ValueError for an argument with a wrong value.

    >>> fail("staleness", -1, "a whole number >= 0")
    Traceback (most recent call last):
    ValueError: staleness: expected a whole number >= 0, got -1
    """
    raise ValueError(message(name, shown(given), expected, hint))


def reject(name: str, found: str, expected: str, hint: str = "") -> NoReturn:
    """Raises ValueError for an argument whose fault is said in words.

    >>> reject("rates", "3 rates", "one for each of 2 workers")
    Traceback (most recent call last):
    ValueError: rates: expected one for each of 2 workers, got 3 rates
    """
    raise ValueError(message(name, found, expected, hint))


def shown(given: Any) -> str:
    """Returns the `repr` of a value as one line, cut after `SHOWN` characters; 2.5 for NumPy's 2.5, too."""
    try:
        plain: Any = given.item() if isinstance(given, Real) and hasattr(given, "item") else given
        text = " ".join(repr(plain).splitlines())
    except ValueError:  # Python refuses to print integers with thousands of digits
        text = f"{type(given).__name__} that is too long to be shown"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _not_numeric(value: Any) -> bool:
    """Whether a value is text, a bool or an array with axes.

    `float` or `operator.index` may accept such values, also those of NumPy and JAX.
    """
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    text = isinstance(value, bool | str | bytes | bytearray) or kind in ("b", "S", "U")
    return text or getattr(value, "ndim", 0) != 0


def integer(name: str, value: Any, *, low: int, high: int | None = None, why: str = "") -> int:
    """Returns `value` as an int if it is a whole number in [low, high]; `high` is at most 2**63 - 1.

    >>> integer("k", 3, low=1, high=8)
    3
    >>> integer("k", 9, low=1, high=8, why="the number of workers")
    Traceback (most recent call last):
    ValueError: k: expected a whole number from 1 to 8 (the number of workers), got 9
    """
    try:
        number = None if _not_numeric(value) else int(operator.index(value))
    except TypeError:
        number = None
    most = MAX_INT if high is None else high
    if number is not None and low <= number <= most:
        return number
    bound = f">= {low}" if high is None and (number is None or number < low) else f"from {low} to {most}"
    fail(name, value, f"a whole number {bound}" + (f" ({why})" if why else ""))


def real(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    above: float = -math.inf,
    high: float = math.inf,
    below: float = math.inf,
) -> float:
    """Returns `value` as a float if low <= value <= high and above < value < below; NaN is rejected.

    >>> real("speed", float("nan"), above=0)
    Traceback (most recent call last):
    ValueError: speed: expected a number > 0, got nan
    >>> real("speed", 0, above=0, high=HUGE)
    Traceback (most recent call last):
    ValueError: speed: expected a number > 0, got 0
    """
    try:
        number = math.nan if _not_numeric(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    between = (number > above or above == -math.inf) and (number < below or below == math.inf)
    if low <= number <= high and between:
        return number
    most = math.inf if abs(number) > HUGE else HUGE  # that limit is told where it is exceeded
    limits = ((">=", low), (">", above), ("<=", high), ("<", below))
    bounds = " and ".join(f"{sign} {limit:g}" for sign, limit in limits if abs(limit) < most)
    fail(name, value, f"a number {bounds}".rstrip())


positive = partial(real, above=0, high=HUGE)
"""Returns a value as a float if it is a finite number > 0."""

not_negative = partial(real, low=0, high=HUGE)
"""Returns a value as a float if it is a finite number >= 0."""

check_seed = partial(integer, low=0, high=MAX_SEED, why="32 bits")
"""Returns a seed, checked; a larger one would wrap around in JAX's keys."""

check_num_workers = partial(integer, low=1, high=MAX_WORKERS)
"""Returns a number of workers, checked."""


def choice(name: str, value: Any, table: Mapping[str, T]) -> T:
    """Returns `table[value]`, if `value` is one of the names in the table.

    >>> choice("engine", "simulat", {"simulate": 1})
    Traceback (most recent call last):
    ValueError: engine: expected one of 'simulate', got 'simulat'; try 'simulate'
    """
    if not isinstance(value, str) or value not in table:
        fail(name, value, "one of " + ", ".join(map(repr, table)), nearest(value, table))
    return table[value]


def nearest(given: Any, words: Iterable[str], quoted: bool = True) -> str:
    """Returns the word that is most similar to the wrong one; "" if none is similar.

    >>> nearest("speedup", ["ssp", "speed_up"], quoted=False)
    'speed_up'
    >>> nearest("ASP", ["bsp"]), nearest("ASP", ["bsp", "asp"])
    ('', "'asp'")
    """
    words = list(words)
    near = [word for word in words if word.lower() == str(given).lower()]
    near = near or difflib.get_close_matches(str(given), words, n=1)
    return (repr(near[0]) if quoted else near[0]) if near else ""


def calling(value: Any) -> str:
    """Returns the hint for a function in place of what it returns, and "" for other values.

    >>> calling(dict)
    'calling it: dict(...)'
    """
    name = getattr(value, "__name__", "")
    hint = "calling it" + (f": {name}(...)" if name.isidentifier() else "")
    return hint if callable(value) else ""


def check_optax(name: str, value: Any) -> Any:
    """Returns `value` if it is an optax optimizer."""
    if not (hasattr(value, "init") and hasattr(value, "update")):
        fail(name, value, "an optax optimizer, such as optax.sgd(0.1)")
    return value


EXAMPLES = {  # of kinds that users make
    "Policy": "dml.ssp(3)",
    "Cluster": "dml.Cluster.uniform(8)",
    "Problem": "dml.problems.digits_mlp()",
    "Trace": "run.trace",
    "LocalSteps": "dml.local_steps(8, optax.sgd(0.1))",
}


def check_kind(name: str, value: Any, kind: type) -> Any:
    """Returns `value` if it is an instance of `kind`.

    >>> check_kind("policy", "bsp", dict)
    Traceback (most recent call last):
    ValueError: policy: expected a dict, got 'bsp'
    """
    if not isinstance(value, kind):
        hint = calling(value)
        example = "" if hint else EXAMPLES.get(kind.__name__, "")
        fail(name, value, f"a {kind.__name__}{example and f', such as {example}'}", hint)
    return value


def function(name: str, value: Any) -> Any:
    """Returns `value` if it is callable."""
    return value if callable(value) else fail(name, value, "a function")


def path(name: str, value: Any, expected: str = "a path, as text or a pathlib.Path") -> str:
    """Returns the path of a file or folder as text.

    >>> path("save", "")
    Traceback (most recent call last):
    ValueError: save: expected a path, as text or a pathlib.Path, got ''
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    sound = isinstance(text, str) and text and "\0" not in text  # "" would mean the current folder
    return text if sound else fail(name, value, expected)


def array(name: str, value: Any, *, nan: bool = False) -> Any:
    """Returns `value` as an array of floats with one axis; NaN is allowed only if `nan` is true.

    >>> array("rates", [0.1, "0.2"])
    Traceback (most recent call last):
    ValueError: rates: expected an array of numbers with 1 axis, without NaN, got [0.1, '0.2']
    """
    import numpy as np  # imported late, so that the command line starts fast

    expected = "an array of numbers with 1 axis" + ", without NaN" * (not nan)
    try:
        numbers = np.asarray(value)
        sound = numbers.dtype.kind in "iuf" and numbers.ndim == 1
        numbers = numbers.astype(float) if sound else numbers
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound or (not nan and np.isnan(numbers).any()):
        fail(name, value, expected)
    return numbers


def folder(name: str, value: Any) -> Path:
    """Returns the absolute path of a folder that exists or can be created.

    >>> folder("checkpoint", "")
    Traceback (most recent call last):
    ValueError: checkpoint: expected a folder, got ''
    """
    found = Path(path(name, value, "a folder")).absolute()
    if not next(each for each in (found, *found.parents) if each.exists()).is_dir():
        fail(name, os.fspath(value), "a folder, or a path where nothing exists yet")
    return found


def existing_file(name: str, value: str | os.PathLike[str], expected: str = "a file that exists") -> Path:
    """Returns the path of a file that exists.

    >>> existing_file("text", "none.txt")
    Traceback (most recent call last):
    FileNotFoundError: text: expected a file that exists, got 'none.txt'
    """
    found = Path(value)
    if not os.path.isfile(found):  # a name that is too long is none
        raise FileNotFoundError(message(name, repr(os.fspath(value)), expected))
    return found


def for_each(name: str, value: Any, num_workers: int) -> tuple[Any, ...]:
    """Returns a tuple with one value per worker; `value` is one for all workers, or one per worker.

    >>> for_each("latency", 0.5, 3)
    (0.5, 0.5, 0.5)
    """
    values = (value,) * num_workers if _single(value) else tuple(value)
    if len(values) != num_workers:
        reject(name, f"{len(values)} values", f"one number, or one for each of {num_workers} workers")
    return values


def _single(value: Any) -> bool:
    """Whether a value is not a collection: a number, an array without axes, or text."""
    return isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0


def listed(name: str, values: Any) -> list[Any]:
    """Returns `values` as a list, if it is a collection and not text."""
    return fail(name, values, "several values, such as a list or a range") if _single(values) else [*values]


def several(name: str, values: Any, check: Callable[[str, Any], T]) -> list[T]:
    """Returns `values` as a list of checked values; there must be at least one, and all must differ.

    >>> several("seeds", [0, [1]], check_seed)
    Traceback (most recent call last):
    ValueError: seeds: expected a whole number from 0 to 4294967295 (32 bits), got [1]
    """
    given = listed(name, values)
    checked = [check(name, value) for value in given]
    if not checked or len({*checked}) < len(checked):
        fail(name, given, "at least one value, all different")
    return checked


@contextmanager
def within(where: str, shared: Container[str] = ()) -> Iterator[None]:
    """Prefixes the message of a wrong argument with `where`, unless the argument is one of `shared`.

    >>> with within("methods['B']"):
    ...     integer("k", 9, low=1, high=8)
    Traceback (most recent call last):
    ValueError: methods['B'], k: expected a whole number from 1 to 8, got 9
    """
    try:
        yield
    except ValueError as error:
        if all(name in shared for name in str(error).partition(":")[0].split(", ")):
            raise
        raise ValueError(f"{where}, {error}") from error


def check_memory(name: str, given: Any, nbytes: float) -> None:
    """Raises ValueError if an argument needs more memory than this machine has.

    Args:
        name: name of the argument.
        given: its value.
        nbytes: memory that it needs, bytes.

    >>> check_memory("batch_size", 2**31, 1e17)
    Traceback (most recent call last):
    ValueError: batch_size: expected a size that fits into memory (this needs 93,132,257 GiB), got 2147483648
    """
    names = "SC_PAGE_SIZE", "SC_PHYS_PAGES"
    known = all(each in getattr(os, "sysconf_names", ()) for each in names)  # not on Windows
    if known and nbytes > math.prod(map(os.sysconf, names)):
        fail(name, given, f"a size that fits into memory (this needs {nbytes / 2**30:,.0f} GiB)")


@contextmanager
def noting(who: str) -> Iterator[None]:
    """Adds a note to the exceptions of a user's function, which names the function and its input.

    >>> try:
    ...     with noting("losses of 'mine'"):
    ...         {}["weights"]
    ... except KeyError as error:
    ...     error.__notes__
    ["raised by losses of 'mine'"]
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {who}")
        raise


def at_least(low: int, *, infinite: bool = False) -> Callable[[str, Any], Any]:
    """Returns a check for `calls.named`: a whole number >= `low`, or `math.inf` if `infinite`."""

    def check(name: str, value: Any) -> Any:
        if infinite and _single(value) and value == math.inf:
            return value
        return integer(name, value, low=low, why="or math.inf" if infinite else "")

    return check


def or_none(check: Callable[[str, Any], T]) -> Callable[[str, Any], T | None]:
    """Returns a check for `calls.named` that also allows None."""
    return lambda name, value: None if value is None else check(name, value)


def one_or_each(check: Callable[[str, Any], T]) -> Callable[[str, Any], T | tuple[T, ...]]:
    """Returns a check for `calls.named`: one value, or several, which become a tuple.

    >>> one_or_each(at_least(0))("trials", [3, -1])
    Traceback (most recent call last):
    ValueError: trials[1]: expected a whole number >= 0, got -1
    """

    def checked(name: str, value: Any) -> T | tuple[T, ...]:
        if _single(value):
            return check(name, value)
        return tuple(check(f"{name}[{index}]", each) for index, each in enumerate(value))

    return checked


def one_of(*allowed: str) -> Callable[[str, Any], str]:
    """Returns a check for `calls.named`: one of the given names."""
    return partial(choice, table={each: each for each in allowed})


def boolean(name: str, value: Any) -> bool:
    """Returns `value` if it is True or False."""
    return value if isinstance(value, bool) else fail(name, value, "True or False")
