"""The documentation site: whole, offline, with all links, all public names and the numbers of the ledgers."""

import argparse
import contextlib
import html
import io
import json
import re
import shutil
import types
import warnings
from collections import Counter
from pathlib import Path
from typing import get_args
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

import dmlcore as dml
from dmlcore.reproduce import claims
from dmlcore.reproduce.claims import show
from dmlcore.reproduce.command import main
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.papers import PAPERS
from dmlcore.reproduce.progress import Outcome
from dmlcore.reproduce.site import build, reference, results, source

ROOT = Path(__file__).parents[1]
LINK = re.compile(r'<(\w+)\b[^>]*?\s(?:href|src|srcset|data|poster)="([^"]*)"')
LEDGERS = sorted(ROOT.glob("figures/*/claims.json"))


@pytest.fixture(scope="module")
def pages(site):
    return {path: path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))}


def words(page):
    """The text of a page, or of a part, as a reader sees it."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def bare(text):
    """A text without blanks and marks, which tags stand between on a page."""
    return re.sub(r"[\s`*\\]", "", text)


def test_links_to_files_lead_to_pages(tmp_path):
    for path in ("docs/faults.md", "notebooks/01_ssp.ipynb", "tests/test_ssp.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(path)
    text = "[faults](faults.md#crash), [S](../notebooks/01_ssp.ipynb), [tests](../tests), `[x](y)`, [y](n.md)"
    site = "[faults](/faults.md#crash), [S](/notebooks/01_ssp.ipynb), tests, `[x](y)`, [y](n.md)"
    assert source.linked(text, "docs/loads.md", tmp_path, tmp_path / "site") == site
    assert not (tmp_path / "site").exists()
    code = source.linked("[code](tests/test_ssp.py)", "README.md", tmp_path, tmp_path / "site")
    assert code == "[code](/files/tests/test_ssp.py)"
    assert (tmp_path / "site/files/tests/test_ssp.py").read_text() == "tests/test_ssp.py"


def test_there_are_pages_for_everything(site, pages):
    names = {path.relative_to(site).as_posix() for path in pages}
    own = {name for name in names if not name.startswith("_modules/")}
    assert len(own) >= 25
    assert {f"papers/{key}.html" for key in PAPERS} <= own
    assert {f"notebooks/{path.stem}.html" for path in ROOT.glob("notebooks/*.ipynb")} <= own
    assert {f"api/{name}.html" for name in reference.PAGES} <= own
    assert {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in ROOT.glob("docs/**/*.md")
    } <= own


def test_nothing_is_fetched_from_elsewhere(site, pages):
    for path, page in pages.items():
        outside = [found for found in LINK.findall(page) if re.match(r"(?!data:)[a-z]+:|//", found[1])]
        assert {tag for tag, _ in outside} <= {"a"}, f"{path}: {outside}"
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        asked = re.findall(r"@import[^;]*|url\(([^)]*)\)", text)
        assert not [one for one in asked if not one or re.match(r"[\"']?(?!data:)([a-z]+:|//)", one)], path
    for path in site.rglob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(\bsrc\s*=|\bimport\(?|\bfetch\(|from)\s*[\"'`](https?:)?//", text), path


def test_links_lead_somewhere(site, pages):
    anchors = {path: {*re.findall(r'\s(?:id|name)="([^"]*)"', page)} for path, page in pages.items()}
    broken = []
    for path, page in pages.items():
        for link in {html.unescape(link) for _, link in LINK.findall(page)}:
            parts = urlsplit(link)
            if parts.scheme or link == "#":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in anchors and anchor not in anchors[target]):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


def test_every_public_name_has_an_entry(pages):
    api = "".join(page for path, page in pages.items() if path.parent.name == "api")
    entries = {*re.findall(r'<dt class="sig[^>]* id="dmlcore\.([^"]+)"', api)}
    modules = {name for name in dml.__all__ if isinstance(getattr(dml, name), types.ModuleType)}
    assert {*dml.__all__} - modules <= entries
    for name in modules:
        assert f'id="module-dmlcore.{name}"' in api
        for member in getattr(getattr(dml, name), "__all__", ()):
            value = getattr(getattr(dml, name), member)
            known = isinstance(value, types.ModuleType) or member in entries or f"{name}.{member}" in entries
            assert known or f"types.{member}" in entries, f"{name}.{member}"


def test_an_entry_has_types_documentation_and_source(pages):
    (page,) = [page for path, page in pages.items() if path.name == "training.html"]
    entry = page[page.index('id="dmlcore.simulate"') :].partition('id="dmlcore.replay"')[0]
    told = words(entry)
    for part in ("cluster : Cluster", "→ Trace", "[source]", inspect_first(dml.simulate), "ValueError"):
        assert part in told
    assert "../_modules/dmlcore/engines/engine.html#simulate" in entry


def inspect_first(what):
    return what.__doc__.strip().split("\n")[0]


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.parent.relative_to(ROOT).as_posix())
def test_claims_are_those_of_the_ledger(pages, path):
    ledger = claims.read(path)
    (page,) = [page for own, page in pages.items() if own.match(f"papers/{ledger.paper}.html")]
    cards = dict(re.findall(r'id="(claim-[^"]+)">(.*?)(?=id="claim-|\Z)', page, re.DOTALL))
    findings = PAPERS[ledger.paper].findings
    for result in ledger.claims:
        told = bare(words(cards[f"claim-{result.id.lower()}"]))
        whole, *settings = show.rows([result])
        row = [whole.expected, whole.measured, whole.interval, whole.verdict]
        finding = findings.get(result.id, "")
        for text in (result.id, result.statement, result.metric, result.regime, "".join(row), finding):
            assert bare(text) in told, f"{result.id}: {text}"
        for each in settings:
            row = [each.part, each.expected, each.measured, each.interval, each.verdict]
            assert bare("".join(row)) in told
    order = [
        [*cards].index(f"claim-{result.id.lower()}")
        for result in ledger.claims
        if result.source == "abstract"
    ]
    assert sorted(order) == [*range(len(order))], "those of the abstract come first"


@pytest.mark.parametrize("key", PAPERS)
def test_pictures_and_summary_are_those_of_the_paper(pages, key):
    paper = PAPERS[key]
    (page,) = [page for own, page in pages.items() if own.match(f"papers/{key}.html")]
    if paper.summary:
        assert bare(paper.summary.choice) in bare(words(page))
    there = [
        path for folder in (f"figures/{key}", f"figures/full/{key}") for path in ROOT.glob(f"{folder}/*.png")
    ]
    alts = re.findall(r'<img alt="([^"]+)"', page)
    captions = [paper.captions("full" if "full" in path.parts else "quick")[path.name] for path in there]
    assert {" ".join(caption.split()) for caption in captions} <= {html.unescape(alt) for alt in alts}
    assert len(alts) >= len(there)


def test_verdicts_of_all_papers(pages):
    (page,) = [page for path, page in pages.items() if path.as_posix().endswith("build/site/index.html")]
    told = words(page)
    (path,) = [path for path in LEDGERS if path.parent.name == "ssp"]
    counts = Counter(each.verdict for each in claims.read(path).claims if each.source == "abstract")
    assert ", ".join(f"{counts[name]} {name}" for name in get_args(claims.Verdict) if counts[name]) in told


def test_the_slides_have_one_for_each_paper(pages):
    (page,) = [page for path, page in pages.items() if path.name == "slides.html"]
    slides = re.findall(r"<section id=(?:(?!<section).)*?</section>", page, re.DOTALL)
    assert "navigation" not in page, "the deck fills the screen"
    for paper, slide in zip(PAPERS.values(), slides, strict=True):
        for tag, count in (("img", 1), ("li", 3), ("code", 1)):
            assert len(re.findall(rf"<{tag}\b", slide)) == count
        for text in (paper.card.name, paper.card.claimed, paper.card.holds, paper.card.advice):
            assert bare(text) in bare(words(slide))


def test_notebooks_that_were_not_run_say_so(pages):
    for page in (page for path, page in pages.items() if path.parent.name == "notebooks"):
        assert source.NOT_RUN in words(page)


# Parts of pages.


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ("claims spp", "paper: .*got 'spp'; try 'ssp'"),
        ("claim ssp", "part: .*got 'claim'; try 'claims'"),
        ("summary beyond", "expected one that has a summary, got 'beyond'"),
        ("picture ssp/maps.png", "picture: .*got 'maps.png'"),
    ],
)
def test_a_part_that_is_not_there_is_told_with_its_page(tmp_path, part, fault):
    (tmp_path / "figures").symlink_to(ROOT / "figures")
    (tmp_path / "README.md").write_text(f"# Title\n\n<!-- {part} -->\n<!-- end -->\n")
    with pytest.raises(ValueError, match=rf"README\.md: .*{fault}"):
        results.write(tmp_path, PAPERS)


def test_pages_are_written_and_checked(tmp_path, capsys):
    (tmp_path / "figures").symlink_to(ROOT / "figures")
    page = tmp_path / "docs/page.md"
    page.parent.mkdir()
    page.write_text(
        "Before.\n\n<!-- verdicts -->\nold\n<!-- end -->\n\n<!-- contents -->\nmine\n<!-- end -->\n"
    )
    assert main(["check"], root=tmp_path) == 1
    fault = "docs/page.md: not the results of the ledgers (`docs --pages` writes them)"
    assert fault in capsys.readouterr().err
    assert main(["docs", "--pages"], root=tmp_path) == 0
    text = page.read_text()
    assert text.startswith("Before.\n\n<!-- verdicts -->\n| paper |")
    assert "](papers/ssp.md)" in text
    assert "mine" in text
    assert "\nold\n" not in text
    assert main(["check"], root=tmp_path) == 0


# What fails, on a site of one page.


def built(root):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main(["docs", "--no-run"], root=root)
    return code, said.getvalue()


@pytest.fixture
def one_page(tmp_path, monkeypatch):
    """Returns a function that builds a site whose only page has a text: exit code and what was said."""
    shutil.copytree(ROOT / "docs/_static", tmp_path / "docs/_static")
    shutil.copy(ROOT / "docs/conf.py", tmp_path / "docs")
    (tmp_path / "figures").symlink_to(ROOT / "figures")
    monkeypatch.setattr(source, "gather", lambda root, target, papers: shutil.copytree(root / "docs", target))

    def of(text):
        (tmp_path / "docs/index.md").write_text(f"# Title\n\n{text}\n")
        return built(tmp_path)

    return of


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[x](nowhere.md)", r"docs/index\.md:3: WARNING: .*nowhere\.md"),
        ("[x](#nowhere)", r"docs/index\.md:3: WARNING: .*nowhere"),
        ("![](nowhere.png)", r"docs/index\.md:: WARNING: .*nowhere\.png"),
    ],
)
def test_a_fault_is_told_and_the_site_stays(one_page, tmp_path, text, fault):
    code, said = one_page("All is well.")
    assert code == 0, said
    before = (tmp_path / "build/site/index.html").read_bytes()
    code, said = one_page(text)
    assert code == 1
    assert re.search(fault, said.replace("\n", " ")), said
    assert len(re.findall("WARNING|ERROR", said)) == 1, said
    assert "the site was not built" in said
    assert (tmp_path / "build/site/index.html").read_bytes() == before
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["site"], "nothing half-made is left"


def test_a_public_name_without_a_page_is_refused(monkeypatch):
    monkeypatch.delitem(reference.PAGES, "recorded")
    with pytest.raises(ValueError, match="no page of the API reference has calibrate, prediction_errors"):
        reference.entries()


# Notebooks.


def test_an_executed_notebook_is_shown_without_what_needs_a_kernel(tmp_path):
    new = nbformat.v4
    picture = {"model_name": "ImageModel", "state": {"format": "svg+xml"}}
    picture["buffers"] = [{"path": ["value"], "data": "PHN2Zy8+", "encoding": "base64"}]
    box = {"model_name": "VBoxModel", "state": {"children": ["IPY_MODEL_b"]}}
    widget = new.new_output("display_data", data={source.WIDGET: {"model_id": "a"}, "text/plain": "Explorer"})
    place = {"text/plain": "PosixPath('/home/someone/picture.png')"}
    progress = new.new_output("display_data", data={source.WIDGET: {"model_id": "c"}, "text/plain": "bar"})
    executed = new.new_notebook(metadata={"widgets": {source.STATE: {"state": {"a": box, "b": picture}}}})
    executed.cells = [
        new.new_markdown_cell("# Title"),
        new.new_code_cell("output = '/somewhere'", metadata={"tags": ["injected-parameters"]}),
        new.new_code_cell("dml.explore()", outputs=[widget, new.new_output("stream", text="done")]),
        new.new_code_cell("save()", outputs=[new.new_output("execute_result", data=place), progress]),
    ]
    path = tmp_path / "x.ipynb"
    nbformat.write(executed, path)
    shown = json.loads(source.notebook_page(path, path, True, str.upper))
    assert "widgets" not in shown["metadata"]
    assert ["".join(cell["source"]) for cell in shown["cells"]] == ["# TITLE", "dml.explore()", "save()"]
    sentence, drawn, done = shown["cells"][1]["outputs"]
    assert "".join(sentence["data"]["text/markdown"]) == source.MOVES
    assert "".join(drawn["data"]["image/svg+xml"]) == "<svg/>"
    assert done["output_type"] == "stream"
    assert shown["cells"][2]["outputs"] == []
    for executed, current, note in ((None, False, source.NOT_RUN), (path, False, source.OLDER)):
        assert note in source.notebook_page(path, executed, current, str)


def test_docs_runs_what_has_no_finished_run(tmp_path, monkeypatch):
    asked = []

    def run(jobs, folders, display, parallel):
        asked.extend(job.key for job in jobs)
        return [Outcome(job.key, "failed" if job.key == "hps" else "done") for job in jobs]

    monkeypatch.setattr(build.runner, "run", run)
    monkeypatch.setattr(build.manifest, "finished", lambda job, folders: job.key == "ssp")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main(["docs"], root=tmp_path)
    assert asked == ["tour", *(key for key in PAPERS if key != "ssp")]
    assert code == 1
    assert "failed: hps; `docs --no-run`" in said.getvalue()
    assert not (tmp_path / "build").exists()


def test_the_notebooks_of_the_site_are_those_of_the_plain_command():
    jobs = source.jobs(PAPERS)
    assert {job.paper.notebook for job in jobs} == {path.name for path in ROOT.glob("notebooks/*.ipynb")}
    assert all(job.parameters.scale == "quick" for job in jobs)
    given = argparse.Namespace(papers=[], scale=None, seeds=None, pairs=[])
    from dmlcore.reproduce.command import plan

    folders = Folders.below(ROOT)
    from dmlcore.reproduce import manifest

    plain = {job.key: manifest.inputs(job, folders)["parameters"] for job in plan(given, PAPERS)}
    assert {
        job.key: manifest.inputs(job, folders)["parameters"] for job in jobs if job.key != "tour"
    } == plain


def test_docs_refuses_what_it_does_not_know(capsys):
    assert main(["docs", "--fast"], root=ROOT) == 2
    assert "--fast" in capsys.readouterr().err
