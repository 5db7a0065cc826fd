"""How long `read_tasks` takes to read and check a log, over what pandas takes to read the file.

python benchmarks/reading.py --rows 256000
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import dmlcore as dml

WORKERS = 64


def log(rows: int) -> pd.DataFrame:
    """Tasks of hosts, with dates and milliseconds."""
    took = np.random.default_rng(0).gamma(4, 0.05, (WORKERS, rows // WORKERS))
    start = pd.Timestamp("2024-05-01", tz="UTC") + pd.to_timedelta((took.cumsum(axis=1) - took).ravel(), "s")
    host = np.repeat([f"node{worker}" for worker in range(WORKERS)], rows // WORKERS)
    return pd.DataFrame({"host": host, "start": start, "duration_ms": 1e3 * took.ravel(), "batch_size": 32})


def seconds(function, path: Path) -> float:
    """The least of three times."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        function(path)
        times.append(time.perf_counter() - begin)
    return min(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=256_000)
    frame = log(parser.parse_args().rows)
    with tempfile.TemporaryDirectory() as folder:
        for name, write, read in (
            ("log.csv", lambda path: frame.to_csv(path, index=False), pd.read_csv),
            ("log.csv.gz", lambda path: frame.to_csv(path, index=False), pd.read_csv),
            ("log.parquet", frame.to_parquet, pd.read_parquet),
        ):
            path = Path(folder) / name
            write(path)
            pandas, ours = seconds(read, path), seconds(dml.read_tasks, path)
            print(f"{name}: {len(frame)} rows, pandas {pandas:.2f} s, read and checked {ours:.2f} s")
