"""Folders of sockets: those of killed runs are removed by the next, and no others."""

import tempfile

from dmlcore.reproduce.kernel import LocalKernel


def test_folders_of_killed_runs_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living = LocalKernel()
    (tmp_path / "dml-killed").mkdir()
    (tmp_path / "dml-killed" / "owner").touch()  # its lock ended with its program
    (tmp_path / "dml-foreign").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "owner").touch()
    (tmp_path / "dml-link").symlink_to(tmp_path / "precious")
    later = LocalKernel()
    kept = {"dml-foreign", "dml-link", "precious"}
    assert {path.name for path in tmp_path.iterdir()} - {living._folder.name.rpartition("/")[2]} > kept
    assert not (tmp_path / "dml-killed").exists()
    assert (tmp_path / "precious" / "owner").exists()
    for kernel in (living, later):
        assert (tmp_path / kernel._folder.name / "owner").exists()
        kernel._folder.cleanup()
        kernel._release()
