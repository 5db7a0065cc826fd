"""Directives of the pages: `{claims} KEY`, `{summary} KEY`, `{pictures} KEY` and `{verdicts}`."""

from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from dmlcore.reproduce import report
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.site import results


class OfPaper(SphinxDirective):
    """A part of the committed results of a paper, by the name of the directive."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        folders = Folders.below(Path(self.config.dmlcore_root))
        try:
            text = results.text(self.name, "".join(self.arguments), folders)
        except ValueError as error:
            raise self.error(str(error)) from None
        for path in report.ledger_paths(folders.figures):
            self.env.note_dependency(str(path))
        return self.parse_text_to_nodes(text)


class OfAll(OfPaper):
    """A part of the committed results of all papers."""

    required_arguments = 0


DIRECTIVES = {"claims": OfPaper, "summary": OfPaper, "pictures": OfPaper, "verdicts": OfAll}
