"""Directives of the pages: `{claims} KEY`, `{summary} KEY`, `{pictures} KEY` and `{verdicts}`."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from dmlcore import checks, files
from dmlcore.reproduce import manifest, report
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import SCALES, Paper
from dmlcore.reproduce.papers import PAPERS
from dmlcore.reproduce.site import texts


class _Results(SphinxDirective):
    """A directive whose content is Markdown made from the committed results."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        try:
            text = self.text()
        except ValueError as error:
            raise self.error(str(error)) from None
        for path in report.ledger_paths(self.folders.figures):
            self.env.note_dependency(str(path))
        return self.parse_text_to_nodes(text)

    def text(self) -> str:
        raise NotImplementedError

    @property
    def folders(self) -> Folders:
        return Folders.below(Path(self.config.dmlcore_root))

    @property
    def paper(self) -> Paper:
        return checks.choice("paper", self.arguments[0], PAPERS)


class Claims(_Results):
    """The claims of a paper, with their findings."""

    def text(self) -> str:
        paper = self.paper
        found, _ = report.ledgers(self.folders, PAPERS)
        return "".join(texts.claims_text(paper, ledger) for ledger in found if ledger.paper == paper.key)


class Summary(_Results):
    """The paper in short: its claims, where they hold, why, and what to choose."""

    def text(self) -> str:
        paper = self.paper
        if paper.summary is None:
            checks.fail("paper", paper.key, "one that has a summary")
        return paper.summary.markdown()


class Pictures(_Results):
    """The figures of a paper's notebook, of each scale that was run."""

    def text(self) -> str:
        paper, scales = self.paper, {}
        for scale in SCALES:
            folder = self.folders.figures / manifest.place(paper.key, scale)
            names = [path.relative_to(folder).as_posix() for path in files.tree(folder)]
            if names:
                scales[scale] = names
        return texts.pictures_text(paper, scales)


class Verdicts(_Results):
    """One row for each paper: how many of its claims have which verdict."""

    required_arguments = 0

    def text(self) -> str:
        return texts.verdicts_text(PAPERS, report.ledgers(self.folders, PAPERS)[0])


DIRECTIVES = {"claims": Claims, "summary": Summary, "pictures": Pictures, "verdicts": Verdicts}
