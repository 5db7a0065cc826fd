"""Real data sets as NumPy arrays. Every file is checked against its checksum.

The package looks for a file in the folder that the environment variable `DMLCORE_DATA` names, then in the
user's cache, and otherwise downloads it once. `digits`, `straggler_steps` and `straggler_tasks` come with the
package.
"""

from .corpora import Corpus, read_bag_of_words
from .datasets import (
    Labelled,
    Ratings,
    cifar10,
    digits,
    mnist,
    movielens_small,
    obtain,
    straggler_jobs,
    straggler_steps,
    straggler_tasks,
)
