"""Finds the files of a data set in the user's folder or the cache, or downloads them, and checks them."""

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dmlcore import files
from dmlcore.checks import reject

SILENCE_SECONDS = 20.0  # timeout: a download fails if the address sends nothing for this long


class DataFiles(NamedTuple):
    """The files of one data set, their checksums and their addresses."""

    folder: str  # below `DMLCORE_DATA`, below the cache and inside an archive
    sha256: Mapping[str, str]  # file name -> checksum, as 64 hexadecimal digits
    # Tried in this order. An address that ends in "/" or "-" is put before the files' names, any other is an
    # archive (.zip or .tar.gz) that contains `folder`. An archive needs no checksum: its files have one.
    urls: Sequence[str]


def fetch(source: DataFiles) -> dict[str, Path]:
    """Returns file name -> path for each file of a data set; downloads the files if they are missing."""
    if (paths := find(source)) is None:
        download(source, files.cache())
        paths = _paths(source, files.cache())
    else:
        check(paths, source.sha256)
    return paths


def find(source: DataFiles) -> dict[str, Path] | None:
    """Returns file name -> path, unchecked, in the first folder that has all files, or None."""
    own = os.environ.get("DMLCORE_DATA", "")
    for place in [Path(own).expanduser()] * bool(own) + [files.cache()]:
        paths = _paths(source, place)
        if all(path.is_file() for path in paths.values()):
            return paths
    return None


def _paths(source: DataFiles, place: Path) -> dict[str, Path]:
    return {name: place / source.folder / name for name in source.sha256}


def check(paths: Mapping[str, Path], sha256: Mapping[str, str]) -> None:
    """Raises ValueError for the first of `paths` with a checksum that differs from `sha256`."""
    for name, path in paths.items():
        with path.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != sha256[name]:
            hint = "deleting this damaged or different file and running again, which downloads it"
            reject(str(path), found, f"a file with the sha256 {sha256[name]}", hint)


def download(source: DataFiles, cache: Path) -> None:
    """Downloads the files of `source` to a folder below `cache`: all of them, checked, or none."""
    reasons = []
    for url in source.urls:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            # On the same file system as the destination, so that the last step is a rename.
            with tempfile.TemporaryDirectory(dir=cache, prefix=f"{source.folder}.part") as aside:
                paths = _get(url, source, Path(aside))
                check(paths, source.sha256)
                (cache / source.folder).mkdir(exist_ok=True)
                for name, path in paths.items():
                    path.replace(cache / source.folder / name)
            return
        except (OSError, ValueError, EOFError, tarfile.TarError) as error:
            reasons.append(f"  {url}: {error}")
    raise ConnectionError(
        f"{source.folder}: cannot be downloaded from any of its addresses.\n"
        + "\n".join(reasons)
        + f"\nWithout a network, put {', '.join(source.sha256)} into a folder named {source.folder}, and "
        "set the environment variable DMLCORE_DATA to the folder that contains it."
    )


def _get(url: str, source: DataFiles, aside: Path) -> dict[str, Path]:
    """Downloads the files from one address into `aside`; returns file name -> path."""
    import pooch  # imported here because it takes a tenth of a second

    pooch.get_logger().info("Downloading %s from %s", source.folder, url)
    get = pooch.HTTPDownloader(timeout=SILENCE_SECONDS)
    if url.endswith(("/", "-")):
        paths = {name: aside / name for name in source.sha256}
        for name, path in paths.items():
            get(url + name, str(path), None)
        return paths
    archive = aside / url.rpartition("/")[2]
    get(url, str(archive), None)
    # pooch.Untar has no filter on Python 3.11, so an archive (it has no checksum) could write anywhere.
    shutil.unpack_archive(archive, aside, filter=None if url.endswith(".zip") else "data")
    return {name: aside / source.folder / name for name in source.sha256}
