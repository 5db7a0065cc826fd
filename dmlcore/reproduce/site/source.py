"""What Sphinx reads, gathered in a folder: hand-written pages, executed notebooks, the API reference."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from dmlcore.reproduce import manifest
from dmlcore.reproduce.manifest import PaperJob
from dmlcore.reproduce.paper import Paper
from dmlcore.reproduce.site import links, notebooks, reference

TOUR = Paper(
    key="tour", title="A tour", reference="", notebook="00_tour.ipynb", quick_seconds=60, published=False
)


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
    markdown = partial(_linked, root=root, target=target)
    for page in sorted(target.rglob("*.md")):
        _write(
            page, markdown(page.read_text(encoding="utf-8"), f"docs/{page.relative_to(target).as_posix()}")
        )
    contributing = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _write(target / "contributing.md", markdown(contributing, "CONTRIBUTING.md"))
    shutil.copytree(root / "figures", target / "figures", ignore=_all_but_pictures)
    folders = manifest.Folders.below(root)
    for job in jobs(papers):
        name = job.paper.notebook
        executed = folders.runs / job.place / name
        text = notebooks.page(
            folders.notebooks / name,
            executed if executed.is_file() else None,
            manifest.finished(job, folders),
            partial(markdown, page=f"notebooks/{name}"),
        )
        _write(target / "notebooks" / name, text)
    for name, text in reference.pages().items():
        _write(target / "api" / f"{name}.rst", text)


def _linked(text: str, page: str, root: Path, target: Path) -> str:
    def kind(path: str) -> str:
        return "file" if (root / path).is_file() else "folder" if (root / path).is_dir() else ""

    def wanted(path: str) -> None:
        (target / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, target / "files" / path)

    return links.rewritten(text, page, kind, wanted)


def _all_but_pictures(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (name.endswith(".png") or (Path(folder) / name).is_dir())]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
