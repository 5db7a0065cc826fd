"""Notebooks as the site shows them: the copies that were executed, without what needs a kernel."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat

WIDGET = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
NOT_RUN = "This notebook has not been executed here: its cells are shown without their outputs."
OLDER = "These outputs are of an earlier version of the notebook or of the package."
MOVES = "The sliders of this output need a running notebook; `python3 paper_repro.py lab` opens one."


def page(template: Path, executed: Path | None, current: bool, markdown: Callable[[str], str]) -> str:
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
