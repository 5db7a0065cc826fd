"""Keeps account of the tests that compute a setting in which a claim of a paper comes out the other way."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from dmlcore.reproduce import claims

Samples = Sequence[float]


class Opposition:
    """The claims of a paper for which such a test was declared.

    They test claims about papers, no part of the package depends on them alone, and they train for long. By
    default one in five of each file is run.
    """

    def __init__(self) -> None:
        self.tried: set[str] = set()

    def __call__(self, *names: str) -> Callable[[Any], Any]:
        """Decorates a test that computes such a setting for these claims, and judges it by itself."""
        self.tried.update(names)
        return pytest.mark.opposing

    def judged(self, paper: ModuleType, *names: str) -> Callable[[Any], Any]:
        """Decorates a test that returns, by claim, samples on a setting where it holds, and on one where not.

        The verdicts on them, by the range that the paper declares, must be `reproduced` and `not reproduced`.
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
                    verdicts = [
                        claims.rule(samples, claim.expected, deterministic=claim.deterministic)
                        for samples in settings
                    ]
                    assert verdicts == ["reproduced", "not reproduced"], (name, claim.expected, settings)

            return pytest.mark.opposing(wrapped)

        return decorate

    def check(self, paper: ModuleType) -> None:
        """Asserts that the module's docstring and the tests both have a setting for each of its `CLAIMS`.

        The docstring names them in items: `- S1, S2-BSP: the setting.`
        """
        lines = re.findall(r"^- ((?:[A-Z][\w-]*(?:, )?)+):", paper.__doc__ or "", re.MULTILINE)
        named = [name for line in lines for name in line.split(", ")]
        assert len(named) == len({*named})
        assert {*named} == self.tried == {*paper.CLAIMS}
