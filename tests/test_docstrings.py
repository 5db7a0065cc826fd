"""Docstrings of public names: a first line, Args with units and shapes, Returns, Raises and an example."""

import doctest
import inspect
import re

import numpy as np
import pytest

import dmlcore as dml

SECTION = re.compile(r"^(Args|Returns|Raises):\n((?: .*\n|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\S[^:]*):(.*\n(?: {8}.*\n)*)", re.MULTILINE)
# Such as (W,), (T + 1, D) or "of that shape".
SHAPE = re.compile(r"shape \(|that shape|\([A-Z\d][\w +*-]*,[\w ,+*-]*\)")
UNIT = re.compile("second|sample|update|clock|byte|version|round|loss|number of|unit|" + SHAPE.pattern, re.I)
# A parameter whose name says that it is a time, a size or a rate -> the unit that its entry names.
UNITS = {
    r"bandwidth|bytes": "byte",
    r"samples_per_second|speed": r"samples/s|unit",
    r"batch_size": "sample|unit",
    r"patience": "second|push|unit",
    r"seconds|latency|overhead|(^|_)time$|^at$|^origin$": "second|unit",
}
ARRAY = re.compile(r"ndarray|ArrayLike|\bArray\b")
NO_CHECKS = {"Raises"}, "arithmetic or a search, which raises nothing of its own"
# Name -> what its docstring need not have, and why.
EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "metrics.Walk.regret": NO_CHECKS,
    "metrics.Walk.distance": NO_CHECKS,
    "claims.known": ({"Raises"}, "it returns None instead"),
}


def members(module):
    """Yields the public functions and classes of a module: those of `__all__`, or else its own."""
    home = "dmlcore" if hasattr(module, "__all__") else module.__name__
    for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
        found = getattr(module, name)
        if callable(found) and getattr(found, "__module__", "").startswith(home):
            yield f"{module.__name__.rpartition('.')[2]}.{name}", found


def methods(name, cls):
    """Yields the public methods and properties that a class defines."""
    for own, found in vars(cls).items():
        if not own.startswith("_") and own not in getattr(cls, "__dataclass_fields__", ()):
            if isinstance(found, property) or inspect.isfunction(found):
                yield f"{name}.{own}", found
            elif isinstance(found, classmethod | staticmethod):
                yield f"{name}.{own}", getattr(cls, own)


def public():
    """Returns what the package, its public modules and their classes have to offer; each object once."""
    facade = {name: getattr(dml, name) for name in dml.__all__}
    found = {name: each for name, each in facade.items() if callable(each)}
    for module in filter(inspect.ismodule, facade.values()):
        known = {*map(id, found.values())}
        found |= {name: each for name, each in members(module) if id(each) not in known}
    for name, each in [*found.items()]:
        if inspect.isclass(each):
            found |= dict(methods(name, each))
    return found


PUBLIC = public()


def parameters_of(what):
    """Returns the parameters that a caller gives: all but `self`."""
    parameters = dict(inspect.signature(what).parameters)
    if not inspect.isclass(what):
        parameters.pop("self", None)
    return parameters


def examples(text):
    """Returns the source of the examples in a docstring."""
    return "".join(example.source for example in doctest.DocTestParser().get_examples(text or ""))


def lacking(what, shown=""):
    """Yields what the docstring of a function, class or property lacks; `shown`: examples elsewhere."""
    text = inspect.cleandoc(what.__doc__ or "") + "\n"
    first, sections = text.split("\n\n")[0].strip(), dict(SECTION.findall(text))
    if "\n" in first or not first.endswith("."):
        yield "a first line"
    if isinstance(what, property):
        return
    told = {}
    for names, entry in ENTRY.findall(sections.get("Args", "")):
        told |= {name.strip("*"): " ".join(entry.split()) for name in names.split(", ")}
    parameters = parameters_of(what)
    for name in parameters.keys() ^ told.keys():
        yield f"Args: {name}" if name in parameters else f"an argument {name}"
    for name in parameters.keys() & told.keys():
        if parameters[name].default is None and not re.search("Default|None|as for", told[name]):
            yield f"the default of {name}"
        yield from without_unit(name, str(parameters[name].annotation), told[name])
    is_class = inspect.isclass(what)
    returned = inspect.formatannotation(inspect.signature(what).return_annotation).strip("'")
    if not is_class and returned != "None":
        if "Returns" not in sections:
            yield "Returns"
        elif (ARRAY.search(returned) or returned == "float") and not UNIT.search(sections["Returns"]):
            yield "the unit or shape of Returns"
    checks_arguments = hasattr(what, "__post_init__") if is_class else bool(parameters)
    if checks_arguments and "Raises" not in sections:
        yield "Raises"
    if (is_class or parameters) and not examples(text) and f".{what.__name__}(" not in shown:
        yield "an example"


def without_unit(name, annotation, entry):
    """Yields what the entry of a parameter lacks: the shape of an array, the unit of a time, size or rate."""
    if "Callable" in annotation:
        return
    if ARRAY.search(annotation) and not SHAPE.search(entry):
        yield f"the shape of {name}"
    unit = next((unit for pattern, unit in UNITS.items() if re.search(pattern, name)), "")
    if re.search("int|float", annotation) and not re.search(unit, entry):
        yield f"the unit of {name}"


def told_of_all(rates: np.ndarray, seconds: float, seed: int | None = None, **options) -> float:
    """Returns a mean rate.

    Args:
        rates: numbers > 0, shape (W,), which a line
            that follows explains: with a colon.
        seconds: length of the run in seconds.
        seed: seed of all draws. Default: 0.
        **options: not used.

    Returns:
        The rate in updates/s.

    Raises:
        ValueError: the rate is not a number.

    >>> told_of_all(np.ones(2), 1.0)
    1.0
    """
    return float(rates.mean() / seconds)


@pytest.mark.parametrize(
    ("removed", "lacks"),
    [
        ("Returns a mean rate.", "a first line"),
        ("rates: numbers", "Args: rates"),
        (", shape (W,)", "the shape of rates"),
        (" in seconds", "the unit of seconds"),
        ("**options: not used.", "Args: options"),
        (" Default: 0.", "the default of seed"),
        ("Returns:", "Returns"),
        (" in updates/s", "the unit or shape of Returns"),
        ("Raises:", "Raises"),
        (">>> told_of_all(np.ones(2), 1.0)", "an example"),
    ],
)
def test_what_is_lacking_is_found(monkeypatch, removed, lacks):
    assert [*lacking(told_of_all)] == []
    monkeypatch.setattr(told_of_all, "__doc__", told_of_all.__doc__.replace(removed, ""))
    assert lacks in lacking(told_of_all)


def shown_with(name):
    """Returns the examples of the class of a method, and of its other methods."""
    cls = PUBLIC.get(name.rpartition(".")[0])
    own = [cls, *dict(methods("", cls)).values()] if inspect.isclass(cls) else []
    return "".join(examples(inspect.getdoc(each)) for each in own)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name):
    allowed, _ = EXCEPTIONS.get(name, (set(), ""))
    assert {*lacking(PUBLIC[name], shown_with(name))} == allowed


def test_exceptions_are_public_names():
    assert EXCEPTIONS.keys() <= PUBLIC.keys()
