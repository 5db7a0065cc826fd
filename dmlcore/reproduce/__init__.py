"""Reproductions of papers: claims, their ledgers, and what runs the notebooks."""
