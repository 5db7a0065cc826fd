"""Topics of a corpus: latent Dirichlet allocation by Gibbs sampling, and a corpus of known topics."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.calls import memoised
from dmlcore.checks import at_least, real
from dmlcore.data import Corpus

from .problem import Batch, Params, Problem, frozen


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


@memoised(
    num_documents=checks.at_least(1),
    document_length=checks.at_least(1),
    seed=checks.at_least(0),
    num_topics=partial(checks.integer, low=2, high=2**15 - 1),
    alpha=partial(real, above=0, high=1e6),
    beta=partial(real, above=0, high=1e6),
)
def lda(
    corpus: Corpus | None = None,
    num_topics: int = 10,
    alpha: float = 0.1,
    beta: float = 0.1,
    num_documents: int = 400,
    document_length: int = 100,
    seed: int = 0,
) -> Problem:
    """Latent Dirichlet allocation by collapsed Gibbs sampling; tasks are additive updates of counts.

    A sample is a document, and a task is one sweep over the tokens of its documents. Each token in turn is
    removed from its topic and draws a new topic, k with a probability proportional to

        (n_wk + beta) / (n_k + V beta) * (n_dk + alpha).

    Here n_wk is the number of other tokens of the word w in topic k, n_dk that of the document d in topic k,
    and n_k that of all words in topic k. The counts are those that the task has pulled, plus its own changes.
    Workers share the counts n_wk and n_k and send their changes. The topic of each token stays with the
    worker that owns the document, and n_dk follows from it.

    Guarantees: in every version, and in every copy that a worker reads, n_wk are the counts of the tokens'
    topics, under every policy, fault and engine. So they sum to the number of tokens, and none is negative.
    The optimizer must be `optax.identity()`.

    Args:
        corpus: documents, such as `read_bag_of_words` of `dmlcore.data` returns. Default: None, generated
            documents of `bars`.
        num_topics: K, 2 to 32767.
        alpha: parameter of the Dirichlet prior of a document's topics, > 0.
        beta: parameter of the Dirichlet prior of a topic's words, > 0.
        num_documents: number of generated documents, >= 1; only without `corpus`.
        document_length: tokens per generated document, >= 1; only without `corpus`.
        seed: of the generated documents, >= 0; only without `corpus`.

    Returns:
        The problem, for D documents of at most L tokens. Batches are dicts of `length` (B,) and `words`
        (B, L), where shorter documents are padded. Parameters are the counts `word_topic` (V, K), their sums
        `total` (K,), and the `topic` of each token (D, L). Metrics: `loss`, the negative log likelihood of
        the training documents in nats per token, under the estimates of `topics_of` and of each document's
        topics; and `perplexity`, exp(loss).

    Raises:
        ValueError: an argument is out of range, or the corpus has no tokens.

    >>> lda()
    Problem(lda, 400 samples)

    Reference: Griffiths and Steyvers 2004, "Finding scientific topics", PNAS 101, equations 5 to 7; Blei, Ng
    and Jordan 2003, JMLR 3, section 7.1, for the perplexity; Ho et al., NIPS 2013, section 5.
    """
    if corpus is None:
        return lda(bars(num_documents, document_length, seed=seed), num_topics, alpha, beta)
    if not isinstance(corpus, Corpus):
        checks.fail("corpus", corpus, "a Corpus of dmlcore.data, or None")
    if (given := (num_documents, document_length, seed)) != (400, 100, 0):
        checks.fail("num_documents, document_length, seed", given, "the defaults (corpus= is given)")
    if not len(corpus.word):
        checks.fail("corpus", corpus, "a corpus with at least one token")
    lengths = np.bincount(corpus.document, minlength=corpus.num_documents)
    num_words, longest = len(corpus.vocabulary), int(lengths.max())
    there = np.arange(longest) < lengths[:, None]
    words = np.zeros(there.shape, np.int32)
    words[there] = corpus.word
    data = {"length": frozen(lengths, np.int32), "words": frozen(words, np.int32)}
    # The smallest type that fits: engines on real clocks send the topic of every token with the parameters.
    number = jnp.int8 if num_topics <= 127 else jnp.int16
    each = np.arange(num_topics)

    def init(key: jax.Array) -> Params:
        topic = jax.random.randint(key, (corpus.num_documents, longest), 0, num_topics, jnp.int32)
        topic = jnp.where(there, topic, 0)
        counts = jnp.zeros((num_words, num_topics), jnp.int32).at[words, topic].add(there)
        return {"word_topic": counts, "total": counts.sum(0), "topic": topic.astype(number)}

    def update(view: Params, batch: Batch, key: jax.Array) -> Params:
        length, words, topic = batch["length"], batch["words"], view["topic"].astype(jnp.int32)
        number_of, there = jnp.arange(len(words))[:, None], jnp.arange(longest) < length[:, None]
        document_topic = jnp.zeros((len(words), num_topics), jnp.int32).at[number_of, topic].add(there)
        uniform = jax.random.uniform(key, words.shape)

        def sweep(d: Any, state: Any) -> Any:
            def draw(i: Any, state: Any) -> Any:
                word_topic, total, in_document, topic = state
                word, left = words[d, i], each == topic[i]
                of_word = word_topic[word] - left
                total, in_document = total - left, in_document - left
                likely = (of_word + beta) / (total + num_words * beta) * (in_document + alpha)
                up_to = jnp.cumsum(likely)
                # The first topic whose cumulative sum exceeds the draw; with rounding there may be none.
                new = jnp.minimum((up_to <= uniform[d, i] * up_to[-1]).sum(), num_topics - 1)
                joined = each == new
                word_topic = word_topic.at[word].set(of_word + joined)
                return word_topic, total + joined, in_document + joined, topic.at[i].set(new)

            word_topic, total, topic = state
            of_document = word_topic, total, document_topic[d], topic[d]
            word_topic, total, _, row = jax.lax.fori_loop(0, length[d], draw, of_document)
            return word_topic, total, topic.at[d].set(row)

        after = jax.lax.fori_loop(0, len(words), sweep, (view["word_topic"], view["total"], topic))
        new = {"word_topic": after[0], "total": after[1], "topic": after[2].astype(number)}
        return jax.tree.map(jnp.subtract, new, view)

    def evaluate(params: Params, eval_data: Batch) -> dict[str, jax.Array]:
        topics = topics_of(params, beta)

        def log_likelihood(document: Any) -> jax.Array:
            words, length, topic = document
            there = jnp.arange(longest) < length
            shares = jnp.zeros(num_topics).at[topic].add(there) + alpha
            return (jnp.log(shares / shares.sum() @ topics[:, words]) * there).sum()

        documents = eval_data["words"], eval_data["length"], params["topic"].astype(jnp.int32)
        loss = -jax.lax.map(log_likelihood, documents, batch_size=64).sum() / len(corpus.word)
        return {"loss": loss, "perplexity": jnp.exp(loss)}

    return Problem("lda", init, data, evaluate, data, update=update, local=("topic",))


def topics_of(params: Params, beta: float = 0.1) -> jax.Array:
    """Estimates the topics from the counts of `lda`: (n_wk + beta) / (n_k + V beta).

    Args:
        params: parameters of `lda`, of which it uses the counts `word_topic` (V, K).
        beta: prior of a topic's words, > 0, as for `lda`.

    Returns:
        The K distributions over the V words, shape (K, V).

    Raises:
        KeyError: `params` has no `word_topic`.

    >>> topics_of({"word_topic": np.array([[3, 0], [0, 1]])}, beta=1.0).tolist()
    [[0.800000011920929, 0.20000000298023224], [0.3333333432674408, 0.6666666865348816]]

    Reference: Griffiths and Steyvers 2004, equation 6.
    """
    counts = jnp.asarray(params["word_topic"]).T + beta
    return counts / counts.sum(1, keepdims=True)
