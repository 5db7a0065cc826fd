"""Real data as NumPy arrays, checked by checksum wherever it comes from.

Looked up in the folder that the environment variable `DMLCORE_DATA` names, then in the user's cache, then
downloaded once. `digits` needs neither: it comes with scikit-learn.
"""

from .datasets import Labelled, Ratings, cifar10, digits, mnist, movielens_small, obtain

__all__ = ["Labelled", "Ratings", "cifar10", "digits", "mnist", "movielens_small", "obtain"]
