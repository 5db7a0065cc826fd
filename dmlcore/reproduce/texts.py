"""The texts of a paper, and what it says on one card: parts of the TOML file that declares it."""

from string import Template
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from dmlcore import checks
from dmlcore.reproduce.claims.model import Strict
from dmlcore.reproduce.markdown import table


def _written(text: Any, info: ValidationInfo) -> Any:
    """Returns a text on one line, with the phrases of its file in place of their names; else the value."""
    if not isinstance(text, str):
        return text
    phrases = info.context or {}
    try:
        return " ".join(Template(text).substitute(phrases).split())
    except (KeyError, ValueError):
        checks.fail(
            "text", text, f"$ only before the name of a phrase: {', '.join(phrases) or 'there is none'}"
        )


Text = Annotated[str, Field(min_length=1), AfterValidator(_written)]
Fields = dict[str, Annotated[Any, AfterValidator(_written)]]  # of a claim, which checks them


class Answer(Strict):
    """One claim in a sentence, where it holds and why: a row at the top of a notebook and of the report.

    Raises:
        ValueError: a field is missing or empty.
    """

    claim: Text
    where: Text
    why: Text


class Summary(Strict):
    """The answers of a notebook, written after the run, and the advice what to choose.

    >>> answer = Answer(claim="Workers never wait", where="always", why="they do not ask")
    >>> print(Summary(answers=[answer], choice="Take it.").markdown())
    | claim | where it holds | because |
    |---|---|---|
    | Workers never wait | always | they do not ask |
    <BLANKLINE>
    **What to choose.** Take it.
    """

    choice: Text
    answers: tuple[Answer, ...]

    def markdown(self) -> str:
        """Returns the summary as a table and a paragraph in Markdown."""
        rows = ((each.claim, each.where, each.why) for each in self.answers)
        found = table(("claim", "where it holds", "because"), rows)
        return f"{found}\n\n**What to choose.** {self.choice}"


class Comparison(Strict):
    """One result of a paper compared with ours: whether they say the same, and the difference if not.

    >>> Comparison(paper="Figure 1", ours="breakdown.png", verdict="differs", because="no jitter").verdict
    'differs'
    """

    paper: Text  # what the paper's theorem, figure or table says
    ours: Text  # our picture, or the ids of the claims that measure it
    verdict: Literal["same", "differs", "not made"]
    because: Text | Literal[""] = ""  # why ours differs, or was not made

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if self.verdict != "same" and not self.because:
            checks.fail("because", self.because, f"a reason (for the verdict {self.verdict!r})")
        return self


class Card(Strict):
    """A paper on one card: a row in the table of verdicts, and a slide."""

    name: Text  # short, with authors and year
    picture: Text  # file name of the figure that says most
    claimed: Text
    holds: Text
    advice: Text  # a sentence
