"""The published results, and the rule that decides which of their files a run leaves unchanged."""

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

# Of 255 levels. Coordinates that differ by 1e-4 shift an edge in a picture 1000 pixels wide by a tenth of a
# pixel, which changes a pixel by at most 26 levels; a letter or a mark that moves changes pixels by more.
LEVELS = 32
# A pale area, such as a band of opacity 0.12, differs from its background by fewer levels than that. With
# coordinates that differ by 1e-4, at most 0.1% of the pixels of lines, marks, bars, bands and maps change by
# more than 4 levels; if such a band becomes 1.5 times as wide, 1.5% of them do.
FEW_LEVELS = 4
MOST_PIXELS = 0.002  # fraction of the pixels that may differ by more than FEW_LEVELS


def keep_aside(place: str, folders: Folders) -> None:
    """Without git, copies the results at a place before the first run, as the published ones.

    The copy is `runs/published/PLACE`, made completely or not at all; it is empty if nothing is published.
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
    """Returns the published ledger at a place: the one in HEAD, or without git the copy of `keep_aside`.

    None: nothing is published, or the ledger cannot be read.
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
    """Returns a folder with the published files of a place; files in HEAD are first copied to `to`."""
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
    """Returns whether HEAD has this folder: git is installed, and this is the package's repository."""
    root = folders.figures.parent
    return root.is_dir() and bool(_git(root, "ls-tree", "--name-only", "HEAD", "."))


def edited(path: Path) -> bool:
    """Returns whether a file differs from the committed one; False if git cannot say."""
    return bool(_git(path.parent, "diff", "--name-only", "HEAD", "--", path.name))


def kept(made: Path, place: Path) -> set[str]:
    """Returns the files of a run, relative to the folder `made`, that are equivalent to those in `place`.

    Ledgers are compared by `agreement.unchanged`. Two pictures are equivalent if no pixel differs by more
    than LEVELS of 255, and at most a fraction MOST_PIXELS of them by more than FEW_LEVELS. The cells of
    tables (CSV or Parquet) are compared by `agreement.same`, other files byte for byte. If the ledger
    differs, no file is equivalent, because the numbers and pictures of a paper must come from one run.
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
    few = FEW_LEVELS + 0.5  # levels are whole numbers up to rounding
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
        # Two missing numbers are the same, as None is in `agreement.same`.
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
    """Returns the output of git, or None if there is no git, no checkout, or no such file in it."""
    if shutil.which("git") is None:
        return None
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return None if done.returncode else done.stdout
