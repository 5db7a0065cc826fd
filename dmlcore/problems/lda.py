"""Latent Dirichlet allocation: topics of a corpus by collapsed Gibbs sampling."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.calls import memoised
from dmlcore.checks import real
from dmlcore.data import Corpus

from .problem import Batch, Params, Problem, frozen
from .topics import bars


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
