"""What Sphinx reads, gathered in a folder: hand-written pages, executed notebooks, the API reference."""

import base64
import posixpath
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import nbformat

from dmlcore.reproduce import manifest
from dmlcore.reproduce.manifest import PaperJob
from dmlcore.reproduce.paper import Paper
from dmlcore.reproduce.site import reference, results

WIDGET = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
NOT_RUN = "This notebook has not been executed here: its cells are shown without their outputs."
OLDER = "These outputs are of an earlier version of the notebook or of the package."
MOVES = "The sliders of this output need a running notebook; `python3 paper_repro.py lab` opens one."


def notebook_page(
    template: Path, executed: Path | None, current: bool, markdown: Callable[[str], str]
) -> str:
    """Returns a notebook as the site shows it, as JSON.

    Args:
        template: without outputs.
        executed: the copy that the runner keeps; None: there is none, and the template is shown.
        current: whether that copy is of this template and of this version of the package.
        markdown: what becomes of the text of a cell, such as its links.
    """
    notebook = nbformat.read(executed or template, as_version=4)
    states = notebook.metadata.pop("widgets", {}).get(STATE, {}).get("state", {})
    # The runner's own cell tells parameters and the folder that it wrote to.
    notebook.cells = [
        cell for cell in notebook.cells if "injected-parameters" not in cell.metadata.get("tags", ())
    ]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = markdown(cell.source)
        if cell.cell_type == "code":
            cell.outputs = [each for output in cell.outputs for each in _still(output, states)]
    if executed is None or not current:
        note = f":::{{note}}\n{NOT_RUN if executed is None else OLDER}\n:::"
        notebook.cells.insert(1, nbformat.v4.new_markdown_cell(note))
    return nbformat.writes(notebook)


def _still(output: Any, states: dict[str, Any]) -> list[Any]:
    """Returns an output as a page shows it: a widget as what it showed last, and a sentence on its sliders.

    A widget without a picture, such as a bar of progress, is left out, as is the path of a saved picture.
    """
    data = output.get("data", {})
    if str(data.get("text/plain", "")).startswith("PosixPath("):
        return []
    if WIDGET not in data:
        return [output]
    shown: list[dict[str, str]] = []
    pending = [output.data[WIDGET].get("model_id")]
    while pending:
        own = states.get(pending.pop(0), {})
        state = own.get("state", {})
        pending += [child.removeprefix("IPY_MODEL_") for child in state.get("children", ())]
        if own.get("model_name") == "ImageModel":
            pictures = [each["data"] for each in own.get("buffers", ()) if each["path"] == ["value"]]
            shown += [_image(state.get("format", "png"), picture) for picture in pictures]
    if shown:
        shown.insert(0, {"text/markdown": MOVES})
    return [nbformat.v4.new_output("display_data", data=data) for data in shown]


def _image(kind: str, data: str) -> dict[str, str]:
    return {f"image/{kind}": base64.b64decode(data).decode() if kind == "svg+xml" else data}


API = "\n```{toctree}\n:hidden:\n\nAPI reference </api/index>\n```\n"  # which the repository has no page of
TOUR = Paper(key="tour", title="A tour", reference="dmlcore", notebook="00_tour.ipynb", published=False)


def jobs(papers: Mapping[str, Paper]) -> list[PaperJob]:
    """Returns the notebooks that the site shows: the tour, and each paper at quick scale."""
    return [
        PaperJob(paper, paper.parameters.model_validate({"output": ""})) for paper in (TOUR, *papers.values())
    ]


def gather(root: Path, target: Path, papers: Mapping[str, Paper]) -> None:
    """Fills a new folder with all that Sphinx reads.

    Args:
        root: of the repository.
        target: the folder, which does not exist yet.
        papers: the registry.
    """
    shutil.copytree(root / "docs", target)

    def markdown(text: str, page: str) -> str:
        return _navigated(linked(text, page, root, target))

    for page in sorted(target.rglob("*.md")):
        _write(
            page, markdown(page.read_text(encoding="utf-8"), f"docs/{page.relative_to(target).as_posix()}")
        )
    with (target / "index.md").open("a", encoding="utf-8") as home:
        home.write(API)
    contributing = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _write(target / "contributing.md", markdown(contributing, "CONTRIBUTING.md"))
    shutil.copytree(root / "figures", target / "figures", ignore=_all_but_pictures)
    folders = manifest.Folders.below(root)
    for job in jobs(papers):
        name = job.paper.notebook
        executed = folders.runs / job.place / name
        text = notebook_page(
            folders.notebooks / name,
            executed if executed.is_file() else None,
            manifest.finished(job, folders),
            partial(markdown, page=f"notebooks/{name}"),
        )
        _write(target / "notebooks" / name, text)
    for name, text in reference.pages().items():
        _write(target / "api" / f"{name}.rst", text)


def _navigated(text: str) -> str:
    """Returns a page whose lists of pages are in the navigation of the site as well.

    >>> print(_navigated("<!-- contents -->\\n**Methods**\\n\\n- [SSP](/ssp.md)\\n<!-- end -->"))
    **Methods**
    <BLANKLINE>
    - [SSP](/ssp.md)
    <BLANKLINE>
    ```{toctree}
    :hidden:
    :caption: Methods
    <BLANKLINE>
    SSP </ssp.md>
    ```
    """

    def told(match: re.Match[str]) -> str:
        if match[1] != results.FOR_HANDS:
            return match[0]
        caption = re.match(r"\*\*(.*)\*\*", match[3])
        options = ":hidden:\n" + (f":caption: {caption[1]}\n" if caption else "")
        found = re.findall(r"^- \[(.*)\]\((\S+)\)$", match[3], re.MULTILINE)
        entries = "\n".join(f"{title} <{page}>" for title, page in found)
        return f"{match[3]}\n```{{toctree}}\n{options}\n{entries}\n```"

    return results.PART.sub(told, text)


def _all_but_pictures(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (name.endswith(".png") or (Path(folder) / name).is_dir())]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# Code is passed over: what stands in it is no link.
_CODE_OR_LINK = re.compile(
    r"(?P<fence>`+)[\s\S]*?(?<!`)(?P=fence)(?!`)|\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)"
)
HOME = {"README.md": "/index.md", "CONTRIBUTING.md": "/contributing.md", "notebooks": "/notebooks.md"}


def linked(text: str, page: str, root: Path, target: Path) -> str:
    """Returns a page of Markdown with its links to files of the repository as links to pages of the site.

    Files that are no page are copied below `files/` of the site. A link to a folder becomes its text.

    Args:
        text: of the page.
        page: its path in the repository.
        root: of the repository.
        target: the folder that Sphinx reads.
    """

    def replaced(match: re.Match[str]) -> str:
        link = match["target"]
        if link is None or re.match(r"[a-z]+:|#|/", link):
            return match[0]
        name, hash_, anchor = link.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), name))
        if (root / path).is_dir() and path not in HOME:
            return match["text"]
        if not (root / path).exists():
            return match[0]  # Sphinx says that it is broken
        # The README is the home page of the repository: its headings are not those of the site's.
        site = HOME.get(path) or _place(path, root, target)
        return f"[{match['text']}]({site}{'' if path == 'README.md' else hash_ + anchor})"

    return re.sub(r'^<a id="(.+)"></a>$', r"(\1)=", _CODE_OR_LINK.sub(replaced, text), flags=re.M)


def _place(path: str, root: Path, target: Path) -> str:
    first, _, rest = path.partition("/")
    if first == "docs":
        return f"/{rest}"
    if first == "notebooks" or (first == "figures" and path.endswith(".png")):
        return f"/{path}"
    (target / "files" / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / path, target / "files" / path)
    return f"/files/{path}"
