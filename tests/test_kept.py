"""runs.parquet: what a run at full scale leaves of its histories."""

import numpy as np
import pandas as pd
import pytest
import tiny_papers

from dmlcore.reproduce import paper as declarations

RUNS = {
    "digits": pd.DataFrame({"method": "BSP", "seed": 0, "time": [0.0, 1 / 3], "loss": [np.inf, 2 / 3e9]}),
    "Lasso": pd.DataFrame({"method": "SSP 3", "seed": [7], "time": [123456.7], "bits": [np.nan]}),
}


def test_numbers_come_back_within_their_digits(tmp_path):
    path = declarations.write_runs(RUNS, tmp_path)
    assert path == tmp_path / "runs.parquet"
    found = pd.read_parquet(path)
    assert list(found) == ["experiment", "method", "seed", "time", "loss", "bits"]
    assert found["experiment"].tolist() == ["digits", "digits", "Lasso"]
    assert found["time"].tolist() == [0.0, 0.33333, 123460.0]
    assert found["loss"].tolist()[:2] == [np.inf, 6.6667e-10]
    assert found["seed"].dtype == np.int64
    before = path.read_bytes()
    assert declarations.write_runs(RUNS, tmp_path).read_bytes() == before


def test_only_full_scale_keeps_its_runs(tmp_path):
    paper = tiny_papers.PAPERS["swift"]
    for scale, made in (("quick", None), ("full", tmp_path / "runs.parquet")):
        assert paper.keep(RUNS, tiny_papers.Tiny(scale=scale, output=str(tmp_path))) == made
        assert (tmp_path / "runs.parquet").exists() == (made is not None)


def test_what_is_no_comparison_or_too_large_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"runs: expected a mapping of experiments to frames.*, got \{\}"):
        declarations.write_runs({}, tmp_path)
    with pytest.raises(ValueError, match="a frame without a column 'experiment'"):
        declarations.runs_table({"a": RUNS["Lasso"].assign(experiment=1)})
    monkeypatch.setattr(declarations, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match=r"runs: expected at most 0\.0001 MB, got .* MB; try fewer"):
        declarations.write_runs(RUNS, tmp_path)
    assert not list(tmp_path.iterdir()), "nothing half written"
