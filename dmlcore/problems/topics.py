"""Topics: a corpus whose topics are known, and what to do with topics that were found."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from dmlcore import checks
from dmlcore.calls import memoised
from dmlcore.checks import at_least
from dmlcore.data import Corpus

from .problem import frozen


@memoised(
    num_documents=at_least(1),
    document_length=at_least(1),
    side=partial(checks.integer, low=2, high=100),
    alpha=partial(checks.real, above=0, high=1e6),
    seed=at_least(0),
)
def bars(
    num_documents: int = 400, document_length: int = 100, side: int = 5, alpha: float = 0.1, seed: int = 0
) -> Corpus:
    """Generated documents whose topics are bars: the rows and columns of a square of words.

    A topic is uniform on a row or a column of the square, whose cells are the words; a document draws shares
    of topics from a Dirichlet distribution, and for each token a topic, and a word of that.

    Args:
        num_documents: D, >= 1.
        document_length: tokens of each, >= 1.
        side: of the square, >= 2: it has side^2 words and 2 side topics.
        alpha: concentration of the shares, > 0; the smaller, the fewer topics has a document.
        seed: of the draws, >= 0.

    Returns:
        The corpus, with `topics`, (2 side, side^2): rows first, then columns.

    Raises:
        ValueError: an argument is out of range.

    >>> bars()
    Corpus(400 documents, 25 words, 40000 tokens)

    Reference: Griffiths and Steyvers 2004, PNAS 101; they have 2,000 documents and alpha = 1.
    """
    rng = np.random.default_rng(seed)
    row, column = np.divmod(np.arange(side**2), side)
    bar = np.arange(side)[:, None]
    topics = np.concatenate([row == bar, column == bar]) / side
    shares = rng.dirichlet(np.full(2 * side, alpha), num_documents).cumsum(1)
    drawn = (rng.random((num_documents, document_length, 1)) > shares[:, None, :-1]).sum(-1)
    place = rng.integers(side, size=drawn.shape)
    words = np.where(drawn < side, drawn * side + place, place * side + drawn - side)
    document = np.repeat(np.arange(num_documents), document_length)
    vocabulary = tuple(f"row {r}, column {c}" for r, c in zip(row, column, strict=True))
    tokens = frozen(document, np.int64), frozen(words.ravel(), np.int64)
    return Corpus(*tokens, num_documents, vocabulary, frozen(topics, np.float64))


def match_topics(found: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, float]:
    """Assigns a found topic to each true one such that their mean cosine is largest.

    Args:
        found: distributions over words, (F, V), F >= K.
        true: likewise, (K, V).

    Returns:
        The number of the found topic that stands for each true one, (K,), and the mean cosine.

    Raises:
        ValueError: shapes do not fit.

    >>> order, cosine = match_topics(np.eye(3)[[2, 0, 1]], np.eye(3))
    >>> order.tolist(), cosine
    ([1, 2, 0], 1.0)
    """
    # Here, not above: it takes a while to import, and nothing else of the problems needs it.
    from scipy.optimize import linear_sum_assignment

    found, true = np.asarray(found), np.asarray(true)
    if found.ndim != 2 or true.ndim != 2 or found.shape[1] != true.shape[1] or len(found) < len(true):
        checks.fail("found", found.shape, f"at least as many topics over the words as in {true.shape}")
    norms = np.linalg.norm(true, axis=1)[:, None] * np.linalg.norm(found, axis=1)
    cosine = true @ found.T / norms
    rows, order = linear_sum_assignment(cosine, maximize=True)
    return order, float(cosine[rows, order].mean())


def top_words(topics: np.ndarray, vocabulary: Sequence[str], count: int = 10) -> list[list[str]]:
    """Returns the likeliest words of each topic, the likeliest first.

    Args:
        topics: distributions over words, (K, V).
        vocabulary: the V words.
        count: words of each topic, >= 1.

    Returns:
        K lists of words.

    Raises:
        ValueError: there are more or fewer words than topics are over, or `count` is out of range.

    >>> top_words(np.array([[0.1, 0.6, 0.3]]), ["a", "b", "c"], count=2)
    [['b', 'c']]
    """
    topics = np.asarray(topics)
    if len(vocabulary) != topics.shape[1]:
        checks.fail("vocabulary", f"{len(vocabulary)} words", f"{topics.shape[1]}, as topics have")
    count = checks.integer("count", count, low=1, high=len(vocabulary), why="words")
    order = np.argsort(-topics, axis=1, kind="stable")[:, :count]
    return [[vocabulary[word] for word in words] for words in order]
