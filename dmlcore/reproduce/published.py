"""What is published, and which of its files a run leaves as they are, because it gives the same again."""

from __future__ import annotations

import csv
import shutil
import subprocess
import tempfile
from pathlib import Path

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.agreement import same, unchanged
from dmlcore.reproduce.manifest import Folders

# Of 255 levels. Coordinates that differ by 1e-4 shift an edge of a picture 1000 pixels wide by a tenth of a
# pixel, which changes what is drawn there by 26 levels at most; a letter or a mark that moves changes more.
LEVELS = 32
# A pale area, such as a band of opacity 0.12, differs from its ground by fewer levels than that. With
# coordinates off by 1e-4, at most 0.1% of the pixels of lines, marks, bars, bands and maps change by more
# than 4 levels; where such a band becomes half as wide again, 1.5% do.
FEW_LEVELS = 4
MOST_PIXELS = 0.002  # share of the pixels that may differ by more than FEW_LEVELS


def keep_aside(place: str, folders: Folders) -> None:
    """Without git, keeps what is at a place before the first run, so that it stays what was published.

    It is copied to `runs/published/PLACE`, whole or not at all: an empty folder where nothing is published.
    """
    kept = _aside(place, folders)
    if kept.exists() or _versioned(folders):
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    folders.runs.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="published.partial-", dir=folders.runs))
    made_here = manifest.path(place, folders).exists()
    if (figures := folders.figures / place).is_dir() and not made_here:
        shutil.copytree(figures, partial, dirs_exist_ok=True)
    partial.rename(kept)


def ledger(place: str, folders: Folders) -> claims.Ledger | None:
    """Returns the published ledger at a place: that in HEAD, or without git the one that is kept aside.

    None where there is none, since nothing is published, or where it cannot be read.
    """
    path = _aside(place, folders) / "claims.json"
    try:
        if _versioned(folders):
            path = folders.figures / place / "claims.json"
            text = _git(folders.figures.parent, "show", f"HEAD:./{folders.figures.name}/{place}/claims.json")
            return None if text is None else claims.parse(text, path)
        return claims.read(path)
    except (OSError, ValueError):
        return None


def copied(place: str, folders: Folders, to: Path) -> Path:
    """Returns a folder with the published files of a place; those in HEAD are copied to the folder `to`."""
    if not _versioned(folders):
        return _aside(place, folders)
    root, below = folders.figures.parent, f"{folders.figures.name}/{place}/"
    for name in (_git(root, "ls-tree", "-r", "-z", "--name-only", "HEAD", below) or b"").decode().split("\0"):
        if name and (content := _git(root, "show", f"HEAD:./{name}")) is not None:
            path = to / name.removeprefix(below)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return to


def _aside(place: str, folders: Folders) -> Path:
    return folders.runs / "published" / place


def _versioned(folders: Folders) -> bool:
    """Returns whether HEAD has this folder: there is git, and not a repository of something else."""
    root = folders.figures.parent
    return root.is_dir() and bool(_git(root, "ls-tree", "--name-only", "HEAD", "."))


def edited(path: Path) -> bool:
    """Returns whether a file differs from the committed one; False where git does not tell."""
    return bool(_git(path.parent, "diff", "--name-only", "HEAD", "--", path.name))


def kept(made: Path, place: Path) -> set[str]:
    """Returns which files of a run, relative to the folder `made`, show what those in `place` show.

    A ledger does by `agreement.unchanged`, a picture where no pixel differs by more than LEVELS of 255 and
    at most a share MOST_PIXELS of them by more than FEW_LEVELS, a table (CSV or Parquet) where its cells
    agree by `agreement.same`, another file byte for byte. Where the ledger differs none does: numbers and
    pictures of a paper are of one run.
    """
    old, new = place / "claims.json", made / "claims.json"
    if (old.is_file() or new.is_file()) and not _alike(old, new):
        return set()
    names = [path.relative_to(made).as_posix() for path in files.tree(made)]
    return {name for name in names if _alike(place / name, made / name)}


def _alike(old: Path, new: Path) -> bool:
    if not old.is_file() or not new.is_file():
        return False
    if old.read_bytes() == new.read_bytes():
        return True
    try:
        if old.name == "claims.json":
            return not claims.earlier(old) and unchanged(claims.read(old), claims.read(new))
        compare = {".png": _pictures, ".csv": _tables, ".parquet": _frames}.get(old.suffix)
        return compare is not None and compare(old, new)
    except (OSError, ValueError, SyntaxError):  # damaged; Pillow raises SyntaxError for a broken PNG
        return False


def _pictures(old: Path, new: Path) -> bool:
    import numpy as np
    from matplotlib.image import imread

    one, other = imread(old), imread(new)
    if one.shape != other.shape:
        return False
    apart = np.abs(one - other) * 255
    pixels = apart.max(axis=-1) if apart.ndim == 3 else apart
    few = FEW_LEVELS + 0.5  # levels are whole, but for rounding
    return bool(pixels.max() <= LEVELS + 0.5 and (pixels > few).mean() <= MOST_PIXELS)


def _tables(old: Path, new: Path) -> bool:
    one, other = (list(csv.reader(path.read_text(encoding="utf-8").splitlines())) for path in (old, new))
    if [len(row) for row in one] != [len(row) for row in other]:
        return False
    return all(_cells(a, b) for rows in zip(one, other, strict=True) for a, b in zip(*rows, strict=True))


def _frames(old: Path, new: Path) -> bool:
    import numpy as np
    import pandas as pd

    one, other = pd.read_parquet(old), pd.read_parquet(new)
    if len(one) != len(other) or [*one.dtypes.items()] != [*other.dtypes.items()]:
        return False
    for name, column in one.items():
        if not pd.api.types.is_numeric_dtype(column):
            if not column.equals(other[name]):
                return False
            continue
        a, b = (frame[name].to_numpy(np.float64, na_value=np.nan) for frame in (one, other))
        # Where both are missing a number is the same, as for None in `agreement.same`.
        unequal = np.flatnonzero((a != b) & ~(np.isnan(a) & np.isnan(b)))
        if not all(same(a[i], b[i]) for i in unequal.tolist()):
            return False
    return True


def _cells(one: str, other: str) -> bool:
    try:
        return one == other or same(float(one), float(other))
    except ValueError:
        return False


def _git(folder: Path, *words: str) -> bytes | None:
    """Returns what git prints, or None where there is no git, no checkout, or no such file in it."""
    if shutil.which("git") is None:
        return None
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return None if done.returncode else done.stdout
