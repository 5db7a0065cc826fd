"""The README and the pages of docs/ stay true: code runs, links lead somewhere, nothing is missing."""

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from dmlcore.methods import aggregate, codecs, loads, policies, transport
from dmlcore.problems import PROBLEMS
from dmlcore.reproduce import claims
from dmlcore.reproduce.papers import PAPERS
from dmlcore.reproduce.site import results

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Run elsewhere: by test_recipes.py and test_modules.py, and with eight devices by eight_devices.py.
ELSEWHERE = {"CONTRIBUTING.md", "docs/devices.md", "docs/your_model.md"}


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


@pytest.mark.full  # what they show has tests, and the README's own code runs below
@pytest.mark.parametrize(
    "path",
    [path for path in PAGES[1:] if code(path) and place(path) not in ELSEWHERE],
    ids=place,
)
def test_the_code_of_a_page_runs_as_written(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(path)


def test_the_example_of_the_readme_compares_and_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(PAGES[0])
    assert {*names["study"].table.index} == {*names["methods"]}
    assert {path.name for path in tmp_path.iterdir()} == {"study.png", "timeline.png"}


def test_the_readme_is_short():
    """Words outside of code and of what the ledgers say, which grows with every paper."""
    ours = re.sub(r"^<!-- \w+ -->.*?^<!-- end -->", "", README, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```$|^    .*?$", "", ours, flags=re.DOTALL | re.MULTILINE)
    assert sum(bool(re.search(r"\w", word)) for word in prose.split()) <= 800


def anchors(path):
    """The anchors that a code host gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    own = re.findall(r'^<a id="(.+)"></a>$', text, re.MULTILINE)
    return {*own, *(re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles)}


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


NAMES = {
    "policies": ("policies", [name for name in policies.__all__ if name.islower()]),
    "aggregates": ("policies", aggregate.AGGREGATES),
    "loads": ("loads", loads.LOADS),
    "transports": ("transports", transport.TRANSPORTS),
    "codecs": ("transports", codecs.CODECS),
}


@pytest.mark.parametrize("kind", NAMES)
def test_the_tables_of_methods_name_all_there_are(kind):
    name, functions = NAMES[kind]
    rows = [line for line in page(name).splitlines() if line.startswith("|")]
    assert not [each for each in functions if not any(f"`{each}(" in row for row in rows)]
    (table,) = re.findall(r"^\| part \|.*?\n\n", README, re.DOTALL | re.MULTILINE)
    assert not [each for each in functions if f"`{each}`" not in table]


def test_every_problem_is_named():
    assert not [name for name in PROBLEMS if f"`{name}" not in page("tasks_and_data")]


def test_the_results_of_the_pages_are_those_of_the_ledgers():
    """`python3 paper_repro.py docs --pages` writes them."""
    assert not [place(path) for path, _ in results.old(ROOT, PAPERS)]


@pytest.mark.parametrize("path", PAGES, ids=place)
def test_a_code_host_shows_a_page_whole(path):
    """No page has syntax that only the builder of the site reads."""
    text = re.sub(r"^```\w*\n.*?^```$|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    assert not re.findall(r"^(?:```|:::+)\{.*$|^\(.*\)=$|\]\{.*?\}|\{\w+\}`", text, re.MULTILINE)


@pytest.mark.parametrize("key", PAPERS)
def test_a_page_shows_every_picture_of_each_scale_once(key):
    text = (ROOT / "docs/papers" / f"{key}.md").read_text(encoding="utf-8")
    shown = re.findall(r"^!\[.*\]\(../../figures/(\S+)\)$", text, re.MULTILINE)
    there = [path for folder in (key, f"full/{key}") for path in ROOT.glob(f"figures/{folder}/*.png")]
    assert sorted(shown) == sorted(path.relative_to(ROOT / "figures").as_posix() for path in there)


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_that_was_measured_has_a_finding(key):
    for result in claims.known(ROOT / "figures" / key).claims:
        finding = PAPERS[key].findings.get(result.id, "")
        if result.verdict != "not run":
            assert 1 <= len(re.findall(r"(?<!et al)[.?!](?= |$)", finding)) <= 3, result.id


@pytest.mark.parametrize("key", PAPERS)
def test_every_paper_has_a_page_with_its_claims(key):
    text = (ROOT / "docs" / "papers" / f"{key}.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^<!-- (claims|pictures|summary) (\w+) -->$", text, re.MULTILINE))
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
