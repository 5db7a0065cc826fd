"""Small papers for the tests of the runner and the command line, with notebooks that take a second each.

`python tiny_papers.py ROOT ARGUMENTS...` is the command line with these papers in the folder ROOT.
"""

import signal
import sys
from pathlib import Path

from pydantic import Field

from dmlcore.reproduce import claims
from dmlcore.reproduce.command import main
from dmlcore.reproduce.papers import Paper, Parameters


class Tiny(Parameters):
    seeds: int = Field(8, ge=1)
    staleness: int = Field(2, ge=0)


def tiny(key: str, *declared: claims.Claim) -> Paper:
    return Paper(
        key=key,
        title=f"{key} & co",
        reference="Nobody 2026",
        notebook=f"{key}.ipynb",
        parameters=Tiny,
        claims=declared,
        figures={"curve.svg": "A curve."},
        quick_seconds=2,
    )


CLAIM = claims.Claim(
    id="swift-1",
    paper="swift",
    statement="It is <b>fast</b>",
    source="ours",
    data="any",
    metric="speed",
    expected=(1, None),
    regime="toys",
    unit="x",
)
PAPERS = {
    paper.key: paper
    for paper in (
        tiny("swift", CLAIM),
        tiny("plain"),
        tiny("broken"),
        tiny("slow"),
        tiny("left"),
        tiny("right"),
        tiny("long"),
    )
}

CELLS = {
    "swift": """
from tiny_papers import PAPERS, Tiny
parameters = Tiny(scale=scale, seeds=seeds, staleness=staleness, output=output)
PAPERS["swift"].conclude({"swift-1": [1.5 + seed for seed in range(seeds)]}, parameters, data="toys")""",
    "plain": "Path(output, 'kernel.txt').write_text(sys.executable)",
    "broken": "raise ValueError('out of luck')",
    # Halfway through it waits to be killed, unless this is the second time.
    "slow": """
if not (root / "again").exists():
    (root / "halfway.partial").write_text(str(os.getpid()))
    os.replace(root / "halfway.partial", root / "halfway")
    time.sleep(60)""",
}
# Three comparisons, of which it notes each run that is made; in the last it waits to be killed.
CELLS["long"] = """
import dmlcore as dml, optax, pandas as pd
from dmlcore.experiments import comparison
made = comparison.histories
def noted(traces, *given):
    with open(root / "made.txt", "a") as file:
        print(len(traces[0].updates), traces[0].metadata["seed"], file=file)
    return made(traces, *given)
comparison.histories = noted
problem, cluster, frames = dml.problems.digits_mlp(4), dml.Cluster.uniform(2), []
for updates in (4, 5, 6):
    if updates == 6 and scale == "full" and not (root / "again").exists():
        (root / "halfway.partial").write_text(str(os.getpid()))
        os.replace(root / "halfway.partial", root / "halfway")
        time.sleep(60)
    given = {"seeds": range(seeds), "updates": updates}
    frames.append(dml.compare({"ASP": dml.asp()}, problem, cluster, optax.sgd(0.1), **given))
pd.concat(frames).to_csv(Path(output, "frame.csv"))"""
# Each waits for the other: they only end side by side.
MEET = """
(root / "{mine}").touch()
while not (root / "{other}").exists():
    time.sleep(0.05)"""
CELLS["left"] = MEET.format(mine="left", other="right")
CELLS["right"] = MEET.format(mine="right", other="left")

FIRST = """
import os, sys, time
from pathlib import Path
root = Path(output).parents[2]
Path(output, "curve.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg"><!-- {staleness} --></svg>')"""


def write_notebooks(
    root: Path, parameters: str = 'scale = "quick"\nseeds = 8\nstaleness = 2\noutput = ""'
) -> None:
    import nbformat  # slow, and only needed here
    from nbformat import v4

    (root / "notebooks").mkdir()
    spec = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    for key, source in CELLS.items():
        tagged = v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
        cells = [v4.new_markdown_cell(f"# {key}"), tagged, v4.new_code_cell(FIRST), v4.new_code_cell(source)]
        nbformat.write(v4.new_notebook(cells=cells, metadata=spec), root / "notebooks" / f"{key}.ipynb")


if __name__ == "__main__":
    # Where a shell has put the tests in the background, Ctrl-C is ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[2:], root=Path(sys.argv[1]), papers=PAPERS))
