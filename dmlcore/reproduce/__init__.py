"""Reproductions of papers: claims, their ledgers, and the runner of the notebooks."""
