"""Results as Markdown for the pages of papers: claims with their findings, pictures, tables of verdicts."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.chapters import HEADINGS
from dmlcore.reproduce.claims import show
from dmlcore.reproduce.claims.ledger import commands as commands_of
from dmlcore.reproduce.markdown import table
from dmlcore.reproduce.paper import FULL, Paper

NUMBERS = ("expected", "measured", "interval", "verdict")


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


def picture_anchor(key: str, name: str) -> str:
    """Returns the anchor of the first picture of a paper with a file name.

    >>> picture_anchor("ssp", "map_digits.png")
    'picture-ssp-map-digits'
    """
    return f"picture-{key}-{name.partition('.')[0]}".replace("_", "-")


def verdict(result: claims.Result, part: claims.Part | None = None) -> str:
    """Returns an outcome or a verdict in its colour, with the numbers of settings."""
    told, counts = (part.outcome, "") if part else (result.verdict, claims.counted(result))
    return f"[{told}]{{.verdict .{told.replace(' ', '-')}}}" + (f" ({escaped(counts)})" if counts else "")


def claims_text(paper: Paper, ledger: claims.Ledger) -> str:
    """Returns all claims of a paper, those of its abstract first.

    Each has its statement, its regime, what was measured, the numbers with their outcomes, and its finding.
    """
    again = claims.repeats(ledger.claims)
    results = {result.id: result for result in ledger.claims}
    parts = ["\n".join(f"- {escaped(line)}" for line in claims.told(ledger.claims)), _runs(ledger)]
    for source, heading in HEADINGS.items():
        chosen = [claim for claim in paper.claims if claim.source == source and claim.id in results]
        if chosen:
            parts.append(f":::{{rubric}} {heading}\n:::")
            parts += [_card(claim, results[claim.id], ledger, again.get(claim.id, "")) for claim in chosen]
    return "\n\n".join(parts) + "\n"


def _runs(ledger: claims.Ledger) -> str:
    rows = []
    for made in ledger.runs:
        tuned = "not recorded" if made.tuned_on is None else ", ".join(map(str, made.tuned_on))
        machine = made.hardware.get("cpu", "not recorded")
        rows.append([f"`{made.command}`", str(made.seeds), tuned, escaped(str(machine))])
    return table(["command", "seeds that judge", "seeds that rates were chosen on", "processor"], rows)


def _card(claim: claims.Claim, result: claims.Result, ledger: claims.Ledger, repeats: str) -> str:
    notes = [claim.metric, *([f"on {on}"] if (on := result.measured_on) else [])]
    if repeats:
        notes.append(f"the same runs as {repeats}, counted once")
    seen = f" ([picture](#{picture_anchor(claim.paper, claim.picture)}))" if claim.picture else ""
    commands = ", ".join(f"`{command}`" for command in commands_of(ledger, result))
    parts = [
        f"({anchor(claim.id)})=\n**{escaped(claim.id)}.** {escaped(claim.statement)}.",
        f"> {escaped(claim.quote)}{seen}" if claim.quote else "",
        f"*Measured:* {escaped('; '.join(notes))}. *Where it must hold:* {escaped(claim.regime)}."
        + (f" *Command:* {commands}" if commands else ""),
        table(NUMBERS, [_row(result)]),
        _settings(result),
        f"*Finding:* {claim.finding}" if claim.finding else "",
    ]
    body = "\n\n".join(part for part in parts if part)
    return f"::::{{container}} claim\n{body}\n::::"


def _row(result: claims.Result, part: claims.Part | None = None) -> list[str]:
    expected = show.expectation(result.expected, result.unit)
    numbers = (expected, show.measured(result, part), show.known(result, part))
    return [*map(escaped, numbers), verdict(result, part)]


def _settings(result: claims.Result) -> str:
    """Returns the numbers of each setting of a claim, folded: there may be dozens."""
    rows = [[escaped(part.label), *_row(result, part)] for part in result.parts]
    if len(rows) < 2:
        return ""
    return f"<details><summary>Each setting</summary>\n\n{table(['setting', *NUMBERS], rows)}\n\n</details>"


def pictures_text(paper: Paper, scales: Mapping[str, Iterable[str]]) -> str:
    """Returns the results of a paper beside ours, and all of our pictures with their captions.

    Args:
        paper: whose notebook made them.
        scales: names of the files that there are, by scale.
    """
    anchors = {claim.id: anchor(claim.id) for claim in paper.claims}
    there = {*itertools.chain(*scales.values())}
    anchors |= {name: picture_anchor(paper.key, name) for name in there & {*paper.captions(FULL)}}

    def linked(ours: str) -> str:
        words = ours.split(", ")
        return ", ".join(f"[{escaped(w)}](#{anchors[w]})" if w in anchors else escaped(w) for w in words)

    parts = []
    if paper.comparisons:
        rows = [
            [escaped(each.paper), linked(each.ours), escaped(each.verdict), escaped(each.because)]
            for each in paper.comparisons
        ]
        parts.append(table(["result of the paper", "ours", "same?", "because"], rows))
    shown: set[str] = set()
    for scale, names in scales.items():
        there = {*names}
        parts.append(f":::{{rubric}} Pictures at {scale} scale\n:::")
        parts += [
            ("" if name in shown else f"({picture_anchor(paper.key, name)})=\n")
            + _picture(f"/figures/{manifest.place(paper.key, scale)}/{name}", caption)
            for name, caption in paper.captions(scale).items()
            if name in there
        ]
        shown |= there
    return "\n\n".join(parts) + "\n"


def _picture(path: str, caption: str) -> str:
    alt = " ".join(caption.split())
    return f":::{{figure}} {path}\n:alt: {alt}\n:loading: lazy\n\n{escaped(caption)}\n:::"


def verdicts_text(papers: Mapping[str, Paper], ledgers: Iterable[claims.Ledger]) -> str:
    """Returns how many claims have which verdict: a row for each paper, those of its abstract apart."""
    rows = []
    for ledger in ledgers:
        if paper := papers.get(ledger.paper):
            own = [result for result in ledger.claims if result.source == "abstract"]
            link = f"[{escaped(paper.title)}](/papers/{paper.key}.md)"
            rows.append([link, _counts(own), _counts(ledger.claims)])
    return table(["paper", "claims of its abstract", "all claims"], rows) + "\n"


def _counts(results: Iterable[claims.Result]) -> str:
    counts: Counter[str] = Counter()
    for tally in claims.tallies(results):
        counts.update(dict(tally.counts))
    return ", ".join(f"{counts[name]} {name}" for name in show.COLORS if counts[name]) or "none"
