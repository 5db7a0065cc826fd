"""The notebooks: what their first cells say, and that each shows the findings of its paper."""

import ast
import json
import re
from pathlib import Path

import pytest

from dmlcore.reproduce.papers import PAPERS

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
FORM = (
    r"# \S",
    r"\*\*Papers?\.\*\*",
    r"\*\*Claims\.\*\*",
    r"\*\*Run time\.\*\*",
    r"\*\*Deviations from the papers?\b",
)


def cells(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_first_cell_has_title_paper_claims_run_time_and_deviations(name):
    """Each at the beginning of a line, and in this order."""
    first = cells(name)[0]
    assert first["cell_type"] == "markdown"
    text = "".join(first["source"])
    found = [re.search(f"^{part}", text, re.MULTILINE) for part in FORM]
    assert all(found), [part for part, each in zip(FORM, found, strict=True) if not each]
    places = [each.start() for each in found]
    assert places == sorted(places)


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS.keys())
def test_a_notebook_begins_with_its_picture_and_a_link_to_its_page(paper):
    _, picture, link, *_ = "".join(cells(paper.notebook)[0]["source"]).split("\n\n")
    assert re.fullmatch(rf"!\[.+\]\(\.\./figures/{paper.key}/{re.escape(paper.card.picture)}\)", picture)
    assert re.fullmatch(rf"\[.+\]\(\.\./docs/papers/{paper.key}\.md\)", link)


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS.keys())
def test_the_notebook_shows_the_finding_of_each_claim(paper):
    """By calls of `PAPER.found`, whose arguments are ids, `*` a tuple of ids, or `*PAPER.findings`."""
    code = "\n".join("".join(cell["source"]) for cell in cells(paper.notebook) if cell["cell_type"] == "code")
    nodes = [*ast.walk(ast.parse(code))]
    assigned = {ast.unparse(node.targets[0]): node.value for node in nodes if isinstance(node, ast.Assign)}
    shown = []
    for call in nodes:
        for given in (
            call.args if isinstance(call, ast.Call) and ast.unparse(call.func) == "PAPER.found" else ()
        ):
            if ast.unparse(given) == "*PAPER.findings":
                shown += paper.findings
            elif isinstance(given, ast.Starred):
                shown += ast.literal_eval(assigned[ast.unparse(given.value)])
            else:
                shown.append(ast.literal_eval(given))
    assert sorted(shown) == sorted(paper.findings), "each once"
