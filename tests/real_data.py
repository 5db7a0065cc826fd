"""Marks of tests that read real data sets: they are skipped where the files are not on this machine."""

import pytest

from dmlcore.data import datasets, fetch


def needs(name):
    """Returns the mark of a test that reads one data set of `datasets.SOURCES`."""
    reason = f"{name}: neither DMLCORE_DATA nor the cache has its files"
    return pytest.mark.skipif(fetch.find(datasets.SOURCES[name]) is None, reason=reason)
