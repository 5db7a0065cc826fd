"""The README and the pages of docs/ stay true: code runs, links lead somewhere, nothing is missing."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from dmlcore.methods import aggregate, codecs, loads, policies
from dmlcore.problems import PROBLEMS
from dmlcore.reproduce import claims
from dmlcore.reproduce.papers import PAPERS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Run elsewhere: in tests/test_recipes.py, and with eight devices in tests/eight_devices.py.
ELSEWHERE = {"CONTRIBUTING.md", "docs/devices.md"}


def place(path):
    return path.relative_to(ROOT).as_posix()


def code(path):
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run(path):
    """Runs the code of a page, block after block in one namespace, which it returns."""
    names: dict = {}
    for number, block in enumerate(code(path), 1):
        exec(compile(block, f"{place(path)}, block {number}", "exec"), names)
    plt.close("all")
    return names


@pytest.mark.parametrize(
    "path", [path for path in PAGES[1:] if code(path) and place(path) not in ELSEWHERE], ids=place
)
def test_the_code_of_a_page_runs_as_written(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(path)


def test_the_example_of_the_readme_compares_and_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(PAGES[0])
    assert set(names["runs"]["method"]) == set(names["methods"])
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "timeline.png"}


def anchors(path):
    """The anchors that a code host gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=place)
def test_links_lead_somewhere(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.is_file(), target
        assert not anchor or anchor in anchors(found), target


def page(name):
    return (ROOT / "docs" / "concepts" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("policies", [name for name in policies.__all__ if name.islower()]),
        ("policies", aggregate.AGGREGATES),
        ("loads", loads.LOADS),
        ("transports", codecs.CODECS),
    ],
    ids=["policies", "aggregates", "loads", "codecs"],
)
def test_a_table_names_all_there_are(name, functions):
    missing = [function for function in functions if f"`{function}(" not in page(name)]
    assert not missing


def test_every_problem_is_named():
    assert not [name for name in PROBLEMS if f"`{name}" not in page("tasks_and_data")]


def committed(key):
    """The results of a paper as committed: a run of one's own does not count."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    if (found := in_head(key)) is None:
        pytest.skip("not a git checkout with this ledger")
    return found


def in_head(place):
    path = f"figures/{place}/claims.json"
    show = subprocess.run(["git", "show", f"HEAD:./{path}"], cwd=ROOT, capture_output=True)
    return None if show.returncode else claims.parse(show.stdout, Path(path))


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_that_was_measured_has_a_finding(key):
    for result in committed(key).claims:
        finding = PAPERS[key].findings.get(result.id, "")
        if result.measured_on is not None:
            assert 1 <= len(re.findall(r"(?<!et al)[.?!](?= |$)", finding)) <= 3, result.id


@pytest.mark.parametrize("key", PAPERS)
def test_every_paper_has_a_page_with_its_claims(key):
    text = (ROOT / "docs" / "papers" / f"{key}.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^```{(\w+)} (\w+)\n```$", text, re.MULTILINE))
    wanted = {"claims", "pictures"} | ({"summary"} if PAPERS[key].summary else set())
    assert shown == {(directive, key) for directive in wanted}


@pytest.mark.parametrize("key", [key for key, paper in PAPERS.items() if paper.summary])
def test_a_summary_answers_what_the_abstract_claims_at_the_top_of_its_notebook(key):
    paper = PAPERS[key]
    named = " ".join(answer.claim.partition(": ")[0] for answer in paper.summary.answers)
    begun = {claim.id.partition("-")[0] for claim in paper.claims if claim.source == "abstract"}
    assert begun <= {*re.findall(r"\w+", named)}
    cells = json.loads((ROOT / "notebooks" / paper.notebook).read_text(encoding="utf-8"))["cells"]
    assert ["PAPER.in_short()"] in [cell["source"] for cell in cells[:6]]


def test_every_paper_has_a_summary():
    assert all(
        paper.summary for paper in PAPERS.values() if any(c.source == "abstract" for c in paper.claims)
    )


def test_the_map_of_the_code_names_what_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for line in re.split("\n## ", text.split("## Map of the code")[1])[0].strip().splitlines():
        path = line.split()[0].rstrip(",")
        assert (ROOT / path).exists(), path
