"""Topics: a generated corpus with known topics, and functions that compare and describe found topics."""

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

    The cells of the square are the words, and a topic is uniform on one row or one column. For each document
    the proportions of topics are drawn from a Dirichlet distribution; for each token a topic is drawn from
    the proportions, and a word from the topic.

    Args:
        num_documents: number of documents, >= 1.
        document_length: tokens per document, >= 1.
        side: side of the square, >= 2; there are side^2 words and 2 side topics.
        alpha: concentration of the proportions, > 0; the smaller, the fewer topics a document has.
        seed: of the draws, >= 0.

    Returns:
        The corpus, with `topics`, shape (2 side, side^2): first the rows, then the columns.

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
    """Assigns a different found topic to each true topic so that the mean cosine is largest.

    Args:
        found: F found distributions over V words, shape (F, V), F >= K.
        true: K true distributions over V words, shape (K, V).

    Returns:
        The index of the found topic for each true topic, shape (K,), and the mean cosine of the pairs.

    Raises:
        ValueError: the shapes do not fit.

    >>> order, cosine = match_topics(np.eye(3)[[2, 0, 1]], np.eye(3))
    >>> order.tolist(), cosine
    ([1, 2, 0], 1.0)
    """
    # Imported here because it is slow to import and no other part of the problems needs it.
    from scipy.optimize import linear_sum_assignment

    found, true = np.asarray(found), np.asarray(true)
    if found.ndim != 2 or true.ndim != 2 or found.shape[1] != true.shape[1] or len(found) < len(true):
        checks.fail(
            "found, shape", found.shape, f"at least as many topics, over the same words, as {true.shape}"
        )
    norms = np.linalg.norm(true, axis=1)[:, None] * np.linalg.norm(found, axis=1)
    cosine = true @ found.T / norms
    rows, order = linear_sum_assignment(cosine, maximize=True)
    return order, float(cosine[rows, order].mean())


def top_words(topics: np.ndarray, vocabulary: Sequence[str], count: int = 10) -> list[list[str]]:
    """Returns the most probable words of each topic, in descending order.

    Args:
        topics: K distributions over V words, shape (K, V).
        vocabulary: the V words.
        count: number of words per topic, >= 1.

    Returns:
        K lists of words.

    Raises:
        ValueError: `vocabulary` does not have V words, or `count` is out of range.

    >>> top_words(np.array([[0.1, 0.6, 0.3]]), ["a", "b", "c"], count=2)
    [['b', 'c']]
    """
    topics = np.asarray(topics)
    if len(vocabulary) != topics.shape[1]:
        checks.reject("vocabulary", f"{len(vocabulary)}", f"{topics.shape[1]} words, as topics have")
    count = checks.integer("count", count, low=1, high=len(vocabulary), why="the number of words")
    order = np.argsort(-topics, axis=1, kind="stable")[:, :count]
    return [[vocabulary[word] for word in words] for words in order]
