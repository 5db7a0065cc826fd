"""Docstrings of public names have a first line, Args, Returns, Raises and an example."""

import doctest
import inspect
import re

import pytest

import dmlcore as dml

PUBLIC = {name: getattr(dml, name) for name in dml.__all__ if callable(getattr(dml, name))}
SECTION = re.compile(r"^(Args|Returns|Raises):\n((?: .*\n|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\S[^:]*):(.*\n(?: {8}.*\n)*)", re.MULTILINE)


def lacking(what):
    """Yields what the docstring of a function or class lacks."""
    text = inspect.cleandoc(what.__doc__ or "") + "\n"
    first, sections = text.split("\n\n")[0].strip(), dict(SECTION.findall(text))
    if "\n" in first or not first.endswith("."):
        yield "a first line"
    entries = ENTRY.findall(sections.get("Args", ""))
    told = {name.strip("*"): entry for names, entry in entries for name in names.split(", ")}
    parameters = inspect.signature(what).parameters
    for name in parameters.keys() ^ told.keys():
        yield f"Args: {name}" if name in parameters else f"an argument {name}"
    for name in parameters.keys() & told.keys():
        if parameters[name].default is None and not re.search("Default|None|as for", told[name]):
            yield f"the default of {name}"
    is_class = inspect.isclass(what)
    if not is_class and inspect.signature(what).return_annotation is not None and "Returns" not in sections:
        yield "Returns"
    checks_arguments = hasattr(what, "__post_init__") if is_class else bool(parameters)
    if checks_arguments and "Raises" not in sections:
        yield "Raises"
    if not doctest.DocTestParser().get_examples(text):
        yield "an example"


def told_of_all(rate: float, seed: int | None = None, **options) -> float:
    """Returns a rate.

    Args:
        rate: a number > 0, which a line
            that follows explains: with a colon.
        seed: of all draws. Default: 0.
        **options: not used.

    Returns:
        The rate.

    Raises:
        ValueError: the rate is not a number.

    >>> told_of_all(1.0)
    1.0
    """
    return rate


@pytest.mark.parametrize(
    ("removed", "lacks"),
    [
        ("Returns a rate.", "a first line"),
        ("rate: a", "Args: rate"),
        ("**options: not used.", "Args: options"),
        (" Default: 0.", "the default of seed"),
        ("Returns:", "Returns"),
        ("Raises:", "Raises"),
        (">>> told_of_all(1.0)", "an example"),
    ],
)
def test_what_is_lacking_is_found(monkeypatch, removed, lacks):
    assert [*lacking(told_of_all)] == []
    monkeypatch.setattr(told_of_all, "__doc__", told_of_all.__doc__.replace(removed, ""))
    assert lacks in lacking(told_of_all)


@pytest.mark.parametrize("public", PUBLIC)
def test_public_names_are_documented(public):
    assert [*lacking(PUBLIC[public])] == []
