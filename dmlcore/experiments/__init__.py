"""Experiments: runs, comparisons of methods, tuning."""
