"""Results as Markdown for the pages of papers: claims with their findings, pictures, tables of verdicts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.chapters import HEADINGS
from dmlcore.reproduce.claims import show
from dmlcore.reproduce.markdown import table
from dmlcore.reproduce.paper import Paper

NUMBERS = ("expected", "measured", "spread", "verdict")


def escaped(text: str) -> str:
    r"""Returns plain text as Markdown, in which nothing of it means anything.

    >>> escaped("s_max * 2 <= |x|")
    's\\_max \\* 2 \\<\\= \\|x\\|'
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def anchor(claim: str) -> str:
    """Returns the anchor of a claim, by which pages link to it: `[S1](#claim-s1)`.

    >>> anchor("S2-BSP")
    'claim-s2-bsp'
    """
    return f"claim-{claim.lower()}"


def verdict(result: claims.Result, part: claims.Part | None = None) -> str:
    """Returns a verdict in its colour, with its remark."""
    told, remark = (part or result).verdict, show.remark(result, part)
    return f"[{told}]{{.verdict .{told.replace(' ', '-')}}}" + (f" ({escaped(remark)})" if remark else "")


def claims_text(paper: Paper, ledgers: Iterable[claims.Ledger]) -> str:
    """Returns all claims of a paper, those of its abstract first, as measured at each scale.

    Each has its statement, what was measured, the numbers with their verdicts, and its finding.
    """
    ledgers = [*ledgers]
    standing = claims.standing(ledgers)
    again = claims.repeats(standing)
    parts = ["\n".join(f"- {escaped(line)}" for line in claims.told(standing)), _runs(paper, ledgers)]
    for source, heading in HEADINGS.items():
        if chosen := [claim for claim in paper.claims if claim.source == source]:
            parts.append(f":::{{rubric}} {heading}\n:::")
            parts += [_card(claim, ledgers, again) for claim in chosen]
    return "\n\n".join(parts) + "\n"


def _runs(paper: Paper, ledgers: Iterable[claims.Ledger]) -> str:
    rows = []
    for ledger in ledgers:
        tuned = "not recorded" if ledger.tuned_on is None else ", ".join(map(str, ledger.tuned_on))
        rows.append([str(ledger.scale), f"`{ledger.command}`", str(ledger.seeds), tuned])
    return table(["scale", "command", "seeds that judge", "seeds that rates were chosen on"], rows)


def _card(claim: claims.Claim, ledgers: Iterable[claims.Ledger], again: Mapping[str, str]) -> str:
    found = [
        (str(ledger.scale), result) for ledger in ledgers for result in ledger.claims if result.id == claim.id
    ]
    notes = [claim.metric, *([f"about {claim.data}"] if claim.data not in (claims.ANY, claims.NONE) else [])]
    if claim.id in again:
        notes.append(f"the same runs as {again[claim.id]}, counted once")
    earlier = [
        f"*At {scale} scale, run before this was changed:* {escaped(result.metric)}"
        for scale, result in found
        if result.metric != claim.metric
    ]
    parts = [
        f"({anchor(claim.id)})=\n**{escaped(claim.id)}.** {escaped(claim.statement)}.",
        f"*Measured:* {escaped('; '.join(notes))}",
        *earlier,
        table(["scale", *NUMBERS], [_row(_scale(scale, result), result) for scale, result in found]),
        _settings(found),
        f"*Finding:* {claim.finding}" if claim.finding else "",
    ]
    body = "\n\n".join(part for part in parts if part)
    return f"::::{{container}} claim\n{body}\n::::"


def _scale(scale: str, result: claims.Result) -> str:
    on = result.measured_on
    return scale if on in (None, claims.ANY, claims.NONE) else f"{scale}, on {escaped(str(on))}"


def _row(name: str, result: claims.Result, part: claims.Part | None = None) -> list[str]:
    expected = show.expectation(result.expected, result.unit)
    numbers = (expected, show.measured(result, part), show.spread_of(result, part))
    return [name, *map(escaped, numbers), verdict(result, part)]


def _settings(found: Iterable[tuple[str, claims.Result]]) -> str:
    """Returns the numbers of each part of a claim, folded: there may be dozens."""
    rows = [
        _row(f"{escaped(part.label)} ({scale})", result, part)
        for scale, result in found
        for part in result.parts
    ]
    if not rows:
        return ""
    told = table(["setting", *NUMBERS], rows)
    return f"<details><summary>Each setting</summary>\n\n{told}\n\n</details>"


def pictures_text(paper: Paper, scales: Mapping[str, Iterable[str]]) -> str:
    """Returns the figures of a paper beside ours, and all of ours with their captions.

    Args:
        paper: whose notebook made them.
        scales: names of the files that there are, by scale.
    """
    parts = []
    if paper.comparisons:
        rows = [
            [*map(escaped, (each.paper, each.ours, each.verdict, each.because))] for each in paper.comparisons
        ]
        parts.append(table(["figure of the paper", "ours", "same?", "because"], rows))
    for scale, names in scales.items():
        there = {*names}
        parts.append(f":::{{rubric}} Pictures at {scale} scale\n:::")
        parts += [
            _picture(f"/figures/{manifest.place(paper.key, scale)}/{name}", caption)
            for name, caption in paper.captions(scale).items()
            if name in there
        ]
    return "\n\n".join(parts) + "\n"


def _picture(path: str, caption: str) -> str:
    alt = " ".join(caption.split())
    return f":::{{figure}} {path}\n:alt: {alt}\n:loading: lazy\n\n{escaped(caption)}\n:::"


def verdicts_text(papers: Mapping[str, Paper], ledgers: Iterable[claims.Ledger]) -> str:
    """Returns how many claims have which verdict: a row for each paper, those of its abstract apart."""
    ledgers = [*ledgers]
    rows = []
    for key, paper in papers.items():
        standing = claims.standing(ledger for ledger in ledgers if ledger.paper == key)
        own = [result for result in standing if result.source == "abstract"]
        rows.append([f"[{escaped(paper.title)}](/papers/{key}.md)", _counts(own), _counts(standing)])
    return table(["paper", "claims of its abstract", "all claims"], rows) + "\n"


def _counts(results: Iterable[claims.Result]) -> str:
    counts: Counter[str] = Counter()
    for tally in claims.tallies(results):
        counts.update(dict(tally.counts))
    return ", ".join(f"{counts[name]} {name}" for name in show.COLORS if counts[name]) or "none"
