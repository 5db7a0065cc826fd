"""Real data as NumPy arrays, checked by checksum wherever it comes from.

Looked up in the folder that the environment variable `DMLCORE_DATA` names, then in the user's cache, then
downloaded once. `digits` needs neither: it comes with scikit-learn.
"""

from .corpora import Corpus, read_bag_of_words
from .datasets import Labelled, Ratings, cifar10, digits, mnist, movielens_small, obtain

__all__ = [
    "Corpus",
    "Labelled",
    "Ratings",
    "cifar10",
    "digits",
    "mnist",
    "movielens_small",
    "obtain",
    "read_bag_of_words",
]
