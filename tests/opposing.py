"""Keeps account of the tests that compute a setting in which a claim of a paper comes out the other way."""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Samples = Sequence[float]
PAGES = Path(__file__).parents[1] / "docs" / "papers"


def rule(samples: Iterable[float], expected: tuple[float | None, float | None]) -> str:
    """Returns "holds" if all samples are in the range, "fails" if none is; for runs on a few seeds."""
    low, high = expected
    bottom, top = -math.inf if low is None else low, math.inf if high is None else high
    inside = {bottom <= sample <= top for sample in samples}
    return "both" if len(inside) == 2 else "holds" if inside == {True} else "fails"


class Opposition:
    """The claims of a paper for which such a test was declared.

    They test claims about papers, no part of the package depends on them alone, and they train for long: they
    are run with `--all`.
    """

    def __init__(self) -> None:
        self.tried: set[str] = set()

    def __call__(self, *names: str) -> Callable[[Any], Any]:
        """Decorates a test that computes such a setting for these claims, and judges it by itself."""
        self.tried.update(names)
        return pytest.mark.full

    def judged(self, paper: ModuleType, *names: str) -> Callable[[Any], Any]:
        """Decorates a test that returns, by claim, samples on a setting where it holds, and on one where not.

        By the range that the paper declares all of the former must hold, and all of the latter fail; for the
        former one seed is not enough, unless the claim is a guarantee.
        """
        self.tried.update(names)
        declared = {claim.id: claim for claim in paper.PAPER.claims}

        def decorate(test: Callable[..., Mapping[str, tuple[Samples, Samples]]]) -> Callable[..., None]:
            @functools.wraps(test)
            def wrapped(*given: Any, **named: Any) -> None:
                found = test(*given, **named)
                assert {*found} == {*names}
                for name, settings in found.items():
                    claim = declared[name]
                    assert claim.always or len(settings[0]) > 1
                    outcomes = [rule(samples, claim.expected) for samples in settings]
                    assert outcomes == ["holds", "fails"], (name, claim.expected, settings)

            return pytest.mark.full(wrapped)

        return decorate

    def check(self, paper: ModuleType) -> None:
        """Asserts that the paper's page and the tests both have a setting for each of its claims.

        The page names them in items of a section: `- S1, S2-BSP: the setting.`
        """
        page = (PAGES / f"{paper.PAPER.key}.md").read_text(encoding="utf-8")
        section = page.partition("\n## What would refute the claims\n")[2].partition("\n## ")[0]
        lines = re.findall(r"^- ((?:[A-Z][\w-]*(?:,\s+)?)+):", section, re.MULTILINE)
        named = [name for line in lines for name in re.split(r",\s+", line)]
        assert len(named) == len({*named})
        assert {*named} == self.tried == {claim.id for claim in paper.PAPER.claims}
