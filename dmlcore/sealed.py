"""Parquet files that are whole and as they were written, or refused."""

import hashlib
from pathlib import Path

import pandas as pd
import pyarrow as pa

from dmlcore import files

DIGEST_KEY = b"dmlcore.digest"


def write(path: Path, frame: pd.DataFrame, kind: bytes, metadata: bytes = b"") -> None:
    """Writes a table of numbers, without its index, in one step.

    Args:
        path: of the file; its folder is made if it is missing.
        frame: the table.
        kind: what is in it, such as b"dmlcore.trace".
        metadata: kept with it.
    """
    import pyarrow.parquet as pq  # here, as in `read`, because a program may need no file

    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({kind: metadata, DIGEST_KEY: _digest(table, metadata)})
    with files.aside(path) as partial:
        pq.write_table(table, partial, compression="zstd")


def read(path: Path, kind: bytes) -> tuple[pd.DataFrame, bytes]:
    """Returns what `write` wrote: the table and its metadata.

    Raises:
        ValueError: it is not that: another kind of file, or a bit of it has changed.
    """
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        written = table.schema.metadata or {}
        if kind not in written:
            raise ValueError(f"it has no {kind.decode().rpartition('.')[2]}")
        if written.get(DIGEST_KEY) != _digest(table, written[kind]):
            raise ValueError("its content has changed since it was written")
        return table.replace_schema_metadata(None).to_pandas(), written[kind]
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        kind_of_error = "" if type(error) is ValueError else f"{type(error).__name__}: "
        raise ValueError(kind_of_error + " ".join(str(error).split())) from error


def _digest(table: pa.Table, metadata: bytes) -> bytes:
    """Returns a hash of names, numbers and metadata: a bit that flips in a number may leave a valid table."""
    digest = hashlib.sha256(metadata)
    for name in table.column_names:
        digest.update(name.encode() + table[name].to_numpy().tobytes())
    return digest.hexdigest().encode()
