"""Methods with knobs: what a study may change of a method, and how it makes the method of a trial."""

import functools
import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optax

from dmlcore import checks
from dmlcore.types import Method, Policy

RATE = "learning_rate"  # the parameter of `make` that receives the server's learning rate
EXPECTED = "a Policy, a Method, a function of the learning rate that returns one, or a dml.space"
Optimizer = Callable[[float], optax.GradientTransformation]
Check = Callable[[Method], Any]  # raises ValueError if problem or cluster do not support a method


class Space(NamedTuple):
    """A method with knobs, as `dml.space` makes it.

    Args:
        make: knobs as keyword arguments -> method. A parameter `learning_rate` receives the server's rate.
        knobs: knob -> the values to try, the most promising first.
        rate: learning rate around which the search begins. None: over all magnitudes.
        optimizer: learning rate -> optimizer of the server. None: that of the study.

    >>> Space(dict, {"k": (4, 2)}).settings()
    [(0,), (1,)]
    """

    make: Callable[..., Policy | Method]
    knobs: Mapping[str, tuple[Any, ...]]
    rate: float | None = None
    optimizer: Optimizer | None = None

    def settings(self) -> list[tuple[int, ...]]:
        """Lists all combinations of the knobs' values, those of early values first.

        Returns:
            The place of each knob's value, one tuple for each combination.
        """
        return sorted(np.ndindex(*map(len, self.knobs.values())), key=sum)

    def __repr__(self) -> str:
        knobs = "".join(f", {name}={[*values]}" for name, values in self.knobs.items())
        return f"space({getattr(self.make, '__name__', self.make)}{knobs})"


def space(make: Callable[..., Policy | Method], /, **knobs: Any) -> Space:
    """Returns a method with settings to search, for `dml.study` and `dml.recommend`.

    The values of a knob are tried in their order, the most promising first. If a number at the end of its
    values is the best one, the search goes on beyond it, as far as `make` and the cluster allow.

    Args:
        make: a function that returns a `Policy` or a `Method`, such as `dml.ssp`. Its parameter
            `learning_rate`, if it has one, receives the server's learning rate, which is searched in any
            case, unless `make` returns an optimizer of its own that does not depend on it.
        **knobs: parameter of `make` -> values to try, such as `staleness=[1, 4, 16]`. A policy, load,
            transport, number or rate of local steps, or aggregate: whatever `make` makes of it.

    Returns:
        The space.

    Raises:
        ValueError: `make` is no function or lacks a parameter, or a knob is unknown to it or has no values.

    >>> import dmlcore as dml
    >>> space(dml.ssp, staleness=[1, 4, 16])
    space(ssp, staleness=[1, 4, 16])
    >>> space(dml.ssp, slack=[1])
    Traceback (most recent call last):
    ValueError: knobs: expected one of 'staleness', 'weight', got 'slack'
    """
    if isinstance(make, Policy | Method) or not callable(make):
        checks.fail("make", make, "a function that returns a Policy or a Method, such as dml.ssp")
    known = inspect.signature(make).parameters
    values = {}
    for name, given in knobs.items():
        if not any(each.kind is each.VAR_KEYWORD for each in known.values()):
            checks.choice("knobs", name, known)
        different = {(type(value), repr(value)): value for value in checks.listed(name, given)}
        values[name] = tuple(different.values())  # they need not be hashable
        if not different:
            checks.fail(name, given, "at least one value")
    for name, each in known.items():
        needed = each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        if needed and name not in (*values, RATE):
            checks.reject(name, "none", f"values (it is a parameter of {getattr(make, '__name__', make)})")
    return Space(make, values)


class Trial(NamedTuple):
    """A method with one of its settings and a learning rate.

    Args:
        method: its name.
        setting: the place of each knob's value.
        rate: learning rate of the server; None: it has none.
    """

    method: str
    setting: tuple[int, ...] = ()
    rate: float | None = None


class Candidate:
    """A method of a study: makes the methods of trials, and knows which trials are next to one.

    Its `settings` are those that problem and cluster support; `why` has the errors of the others.

    Args:
        name: of the method.
        space: what is searched.
        optimizer: learning rate -> optimizer of the server, unless the space or its method brings one.
        check: raises ValueError if problem or cluster do not support a method.
    """

    def __init__(self, name: str, space: Space, optimizer: Optimizer | None, check: Check):
        self.name, self.space, self._check = name, space, check
        self._optimizer, self.start = space.optimizer or optimizer, space.rate or 1.0
        self._told_rate = RATE in inspect.signature(space.make).parameters and RATE not in space.knobs
        self.values = {knob: [*values] for knob, values in space.knobs.items()}  # grows at its ends
        self._known = functools.cache(self._make)  # the same at all rates, so that runs share timelines
        brought = {self._made(each, self.start).optimizer is not None for each in space.settings()}
        if len(brought) > 1:
            checks.fail(f"methods[{name!r}]", space, "an optimizer of its own in all settings or in none")
        if self._told_rate and self._optimizer is None:
            checks.fail(f"methods[{name!r}]", space, "no learning rate (the problem is additive)")
        self.rated = self._optimizer is not None and (self._told_rate or brought == {False})
        why = {setting: self._refusal(setting) for setting in space.settings()}
        self.settings = [setting for setting, error in why.items() if error is None]
        self.why = [error for error in why.values() if error is not None]

    def knobs(self, setting: Sequence[int]) -> dict[str, Any]:
        """Returns the values of the knobs in a setting."""
        return {knob: self.values[knob][place] for knob, place in zip(self.values, setting, strict=True)}

    def _made(self, setting: tuple[int, ...], rate: float | None) -> Method:
        return self._known(setting, **({RATE: rate} if self._told_rate else {}))

    def _make(self, setting: tuple[int, ...], **told: float | None) -> Method:
        argument = f"methods[{self.name!r}]"
        try:
            with checks.within(argument):
                made = self.space.make(**self.knobs(setting), **told)
        except TypeError as error:
            given = f"{checks.shown(self.space.make)}, which raised TypeError: {error}"
            raise ValueError(checks.message(argument, given, EXPECTED)) from error
        if not isinstance(made, Policy | Method):
            checks.fail(argument, made, f"{EXPECTED} that returns one of them")
        return made if isinstance(made, Method) else Method(made)

    def method(self, trial: Trial) -> Method:
        """Returns the method of a trial, with an optimizer."""
        made = self._made(trial.setting, trial.rate)
        if made.optimizer is not None:
            return made
        own = self._optimizer(trial.rate) if self._optimizer and trial.rate else optax.identity()
        return made._replace(optimizer=own)

    def trial(self, knobs: Mapping[str, Any], rate: float | None) -> Trial:
        """Returns the trial with these knobs, as JSON values.

        Raises:
            ValueError: it cannot be made here.
        """
        if {*knobs} != {*self.values} or (rate is not None) != self.rated:
            raise ValueError(f"{self.name} has other knobs")
        for knob, told in knobs.items():
            if told not in map(as_json, self.values[knob]):
                self.values[knob].append(told)  # a search had gone on beyond the end
        setting = tuple([*map(as_json, own)].index(knobs[knob]) for knob, own in self.values.items())
        if error := self._refusal(setting):
            raise ValueError(str(error))
        return Trial(self.name, setting, rate)

    def _refusal(self, setting: tuple[int, ...]) -> Exception | None:
        try:
            self._check(self.method(Trial(self.name, setting, self.start)))
        except Exception as error:  # a function may fail in any way at a value that the caller did not give
            return error
        return None

    def told(self, trial: Trial) -> str:
        """Returns the setting of a trial as text."""
        found = self.knobs(trial.setting).items()
        return ", ".join(f"{k} = {v:.3g}" if isinstance(v, float) else f"{k} = {v}" for k, v in found)

    def beside(self, trial: Trial) -> Iterator[Trial]:
        """Yields the trials that differ in one knob, whose value is the next smaller or larger one.

        Numbers go on beyond the ends of their values, by the same factor as between the last two.
        """
        for number, knob in enumerate(self.values):
            for place in self._next(knob, trial.setting[number]):
                other = (*trial.setting[:number], place, *trial.setting[number + 1 :])
                if self._refusal(other) is None:
                    yield trial._replace(setting=other)

    def _next(self, knob: str, place: int) -> list[int]:
        values = self.values[knob]
        grows = all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in values)
        order = sorted(range(len(values)), key=values.__getitem__) if grows else [*range(len(values))]
        at = order.index(place)
        near = order[max(at - 1, 0) : at] + order[at + 1 : at + 2]
        if grows and len(near) == 1:  # at an end
            end, inner = values[place], values[near[0]]
            beyond = end * end / inner if inner > 0 < end else end
            beyond = type(end)(round(beyond) if isinstance(end, numbers.Integral) else beyond)
            if beyond not in values:
                near.append(len(values))
                values.append(beyond)
        return near


def as_json(value: Any) -> Any:
    """Returns the value of a knob as a JSON value: numbers as they are, and others as text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, int | float | None) else str(value)


Candidates = Mapping[str, Candidate]  # by name


def possible(
    spaces: Mapping[str, Space], optimizer: Optimizer | None, check: Check, left_out: list[str] | None = None
) -> Candidates:
    """Returns the methods of a study that problem and cluster support.

    Args:
        spaces: by name.
        optimizer: learning rate -> optimizer of the methods that bring none. None: there is no rate.
        check: raises ValueError if problem or cluster do not support a method.
        left_out: receives a note on each method of which no setting is supported. None: all must be.
    """
    found = {name: Candidate(name, each, optimizer, check) for name, each in spaces.items()}
    for name, each in found.items():
        if each.why and left_out is None:
            with checks.within(f"methods[{name!r}]"):
                raise each.why[0]
        elif not each.settings and left_out is not None:
            left_out.append(f"{name} is left out ({each.why[-1]})")
    return {name: each for name, each in found.items() if each.settings}


def as_space(name: Any, given: Any) -> Space:
    """Returns a method of the argument `methods` as a space; one that is no space has no knobs.

    Raises:
        ValueError: it is none of these, for example `dml.ssp` without the call.
    """
    if not isinstance(name, str):
        checks.fail("methods", name, "a string as the name of each method")
    if isinstance(given, Space):
        return given
    if isinstance(given, Policy | Method):
        return Space(lambda: given, {})
    own = getattr(given, "__module__", "").startswith("dmlcore.methods.")  # its first parameter may be a knob
    if not callable(given) or (own and RATE not in inspect.signature(given).parameters):
        checks.fail(f"methods[{name!r}]", given, EXPECTED, checks.calling(given))
    return Space(lambda learning_rate: given(learning_rate), {})
