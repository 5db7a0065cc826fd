"""Experiments: runs, comparisons and studies of methods."""
