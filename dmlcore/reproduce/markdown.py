"""Tables in Markdown."""

from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table of cells that are Markdown, without a line end.

    >>> print(table(["run", "measured"], [["quick", "3x"]]))
    | run | measured |
    |---|---|
    | quick | 3x |
    """
    names = [*head]
    first, *others = (f"| {' | '.join(cells)} |" for cells in (names, *rows))
    return "\n".join([first, f"|{'---|' * len(names)}", *others])
