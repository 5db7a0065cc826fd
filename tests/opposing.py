"""Keeps account of the tests that compute a setting in which a claim of a paper comes out the other way."""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any


class Opposition:
    """The claims of a paper for which such a test was declared."""

    def __init__(self) -> None:
        self.tried: set[str] = set()

    def __call__(self, *claims: str) -> Callable[[Any], Any]:
        """Decorates a test that computes such a setting for these claims."""
        self.tried.update(claims)
        return lambda test: test

    def check(self, paper: ModuleType) -> None:
        """Asserts that the module's docstring and the tests both have a setting for each of its `CLAIMS`.

        The docstring names them in items: `- S1, S2-BSP: the setting.`
        """
        lines = re.findall(r"^- ((?:[A-Z][\w-]*(?:, )?)+):", paper.__doc__ or "", re.MULTILINE)
        named = [name for line in lines for name in line.split(", ")]
        assert len(named) == len({*named})
        assert {*named} == self.tried == {*paper.CLAIMS}
