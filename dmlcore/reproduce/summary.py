"""The summary of a paper: its claims, where they hold, why, and what to choose."""

from __future__ import annotations

from dataclasses import dataclass

from dmlcore import checks
from dmlcore.reproduce.markdown import table


@dataclass(frozen=True)
class Answer:
    """One claim in a sentence, where it holds and why: a row at the top of a notebook and of the report.

    Raises:
        ValueError: a field is empty.
    """

    claim: str
    where: str
    why: str

    def __post_init__(self) -> None:
        for name, text in vars(self).items():
            if not text:
                checks.fail(name, text, "a sentence")


@dataclass(frozen=True)
class Summary:
    """The answers of a notebook, written after the run, and the advice what to choose.

    >>> answer = Answer("Workers never wait", "always", "they do not ask")
    >>> print(Summary((answer,), "Take it.").markdown())
    | claim | where it holds | because |
    |---|---|---|
    | Workers never wait | always | they do not ask |
    <BLANKLINE>
    **What to choose.** Take it.
    """

    answers: tuple[Answer, ...]
    choice: str

    def markdown(self) -> str:
        """Returns the summary as a table and a paragraph in Markdown."""
        rows = ((each.claim, each.where, each.why) for each in self.answers)
        found = table(("claim", "where it holds", "because"), rows)
        return f"{found}\n\n**What to choose.** {self.choice}"
