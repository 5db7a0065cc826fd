"""Gibbs sweeps along traces against plain sweeps in one compiled loop, with no workers and no server.

.venv/bin/python benchmarks/lda.py [DOCWORD VOCAB]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import race, reported, show_race, verdict

import dmlcore as dml
from dmlcore.data import Corpus, read_bag_of_words
from dmlcore.training.replay import Replay

WORKERS, SWEEPS, REPEATS = 8, 20, 7
ALPHA = BETA = 0.1
SHARES = (1.0, 0.1)  # of a worker's documents, in a task: a clock of Ho et al. is one or the other
POLICIES = {"BSP": dml.bsp(), "SSP(3)": dml.ssp(3), "ASP": dml.asp()}


def plain(corpus: Corpus, num_topics: int) -> Callable[[], Any]:
    """Returns what makes `SWEEPS` sweeps over all documents, all counts in place."""
    lengths = np.bincount(corpus.document, minlength=corpus.num_documents)
    ends, num_words = jnp.asarray(lengths.cumsum()), len(corpus.vocabulary)
    document, words = (jnp.asarray(column, jnp.int32) for column in (corpus.document, corpus.word))
    each = jnp.arange(num_topics)

    @functools.partial(jax.jit, donate_argnums=range(4))
    def sweep(word_topic, total, document_topic, topic, key):
        uniform = jax.random.uniform(key, words.shape)

        def draw(i, state):
            word_topic, total, in_document, topic = state
            word, left = words[i], each == topic[i]
            of_word, total, in_document = word_topic[word] - left, total - left, in_document - left
            up_to = jnp.cumsum((of_word + BETA) / (total + num_words * BETA) * (in_document + ALPHA))
            new = jnp.minimum((up_to <= uniform[i] * up_to[-1]).sum(), num_topics - 1)
            joined = each == new
            word_topic = word_topic.at[word].set(of_word + joined)
            return word_topic, total + joined, in_document + joined, topic.at[i].set(new)

        def of_document(d, state):
            word_topic, total, document_topic, topic = state
            begin = jnp.where(d, ends[d - 1], 0)
            state = word_topic, total, document_topic[d], topic
            word_topic, total, in_document, topic = jax.lax.fori_loop(begin, ends[d], draw, state)
            return word_topic, total, document_topic.at[d].set(in_document), topic

        state = word_topic, total, document_topic, topic
        return jax.lax.fori_loop(0, corpus.num_documents, of_document, state)

    def run() -> Any:
        topic = jax.random.randint(jax.random.key(0), words.shape, 0, num_topics)
        word_topic = jnp.zeros((num_words, num_topics), jnp.int32).at[words, topic].add(1)
        document_topic = jnp.zeros((corpus.num_documents, num_topics), jnp.int32).at[document, topic].add(1)
        state = [word_topic, word_topic.sum(0), document_topic, topic]
        for number in range(SWEEPS):
            state = sweep(*state, jax.random.key(number))
        return jax.block_until_ready(state)

    return run


def along(corpus: Corpus, num_topics: int, policy: dml.Policy, share: float) -> Callable[[], Any]:
    """Returns what makes as many sweeps along the trace of a policy."""
    problem, optimizer = dml.problems.lda(corpus, num_topics, ALPHA, BETA), optax.identity()
    batch_size = max(1, int(share * corpus.num_documents / WORKERS))
    cluster = dml.Cluster.uniform(WORKERS, jitter=lambda u: -np.log1p(-u))
    samples = SWEEPS * corpus.num_documents
    trace = dml.simulate(policy, cluster, samples=samples, batch_size=batch_size)
    assert trace.updates["samples"].sum() >= samples - WORKERS * batch_size

    def run() -> Any:
        replay = Replay([trace], problem, [optimizer])
        replay.advance(len(trace.updates))
        return jax.block_until_ready(replay.params())

    return run


def main() -> None:
    corpora = {"bars": (dml.problems.bars(2_000), 10)}
    if sys.argv[1:]:
        corpora[Path(sys.argv[1]).name] = read_bag_of_words(*sys.argv[1:3]), 20
    for name, (corpus, num_topics) in corpora.items():
        tokens = SWEEPS * len(corpus.word)
        for share in SHARES:
            contenders = {"plain": plain(corpus, num_topics)}
            contenders |= {method: along(corpus, num_topics, POLICIES[method], share) for method in POLICIES}
            seconds = race(contenders, REPEATS)
            title = (
                f"{name}: {corpus}, {num_topics} topics, {WORKERS} workers, {share:.0%} of theirs in a task"
            )
            show_race(title, seconds, tokens, "tokens", "plain")
            for method in POLICIES:
                what = f"{method} on {name}, {share:.0%} in a task / plain sweeps"
                verdict(what, seconds["plain"] / seconds[method], 0.8)


if __name__ == "__main__":
    with reported("lda"):
        main()
