"""Training problems: functions that return a `Problem`, the same object for the same arguments."""

from collections.abc import Callable

from . import shards
from .classification import cifar10_cnn, cifar10_lenet, digits_mlp, logistic_regression, mnist_lenet
from .language import language_model
from .lasso import lasso
from .linear_regression import linear_regression
from .matrix_factorization import matrix_factorization
from .modules import from_flax
from .problem import Batch, Params, Problem
from .topics import bars, lda, match_topics, top_words, topics_of

_FACTORIES = [digits_mlp, logistic_regression, linear_regression, lasso, mnist_lenet, cifar10_cnn]
_FACTORIES += [cifar10_lenet, matrix_factorization, language_model, lda]
PROBLEMS: dict[str, Callable[..., Problem]] = {factory.__name__: factory for factory in _FACTORIES}
"""Name -> factory of all problems; each works without arguments."""

__all__ = ["PROBLEMS", "Batch", "Params", "Problem", "bars", "from_flax", "match_topics", "shards"]
__all__ += ["top_words", "topics_of", *PROBLEMS]
