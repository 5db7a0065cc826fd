"""LDA: counts that stay whole, a plain sweep as oracle, topics that are found, and corpora that are read."""

import gzip
import math

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import ENGINES, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import replay_reference
from scipy import stats
from watched import simulate
from wheels import check_topics

import dmlcore as dml
from dmlcore.cluster.faults import random_faults
from dmlcore.data import Corpus, read_bag_of_words
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.problems import bars, lda, match_topics, top_words, topics_of
from dmlcore.training.batches import INIT, UPDATES, run_key, task_key

ADD = optax.identity()
POLICIES = {name: make for name, make in ALL_POLICIES.items() if make().batch_size is None}
LENGTHS = [7, 0, 12, 1, 9, 12, 3, 5, 8, 2, 11, 4, 6, 10, 5, 7, 9, 3, 8, 6]


@pytest.fixture(scope="module")
def small():
    """Twenty documents of 0 to 12 tokens over nine words, and four topics."""
    word = np.random.default_rng(0).integers(9, size=sum(LENGTHS))
    return lda(Corpus(np.repeat(np.arange(20), LENGTHS), word, 20, tuple("abcdefghi")), 4, 0.5, 0.2)


def train(policy, problem, cluster=MIXED, **options):
    options = {"updates": 40, "seed": 3, "eval_every": 40, "batch_size": 2} | options
    return dml.train(problem, cluster, policy, ADD, **options)


@pytest.mark.parametrize("policy", ["ssp", "k_batch_async"])
def test_compiled_equals_reference_and_itself(policy, small):
    one, two = (train(POLICIES[policy](), small) for _ in range(2))
    check_topics(small, one.params)
    assert same_bits(one.params, two.params)
    assert same_bits(one.params, replay_reference(one.trace, small, ADD))


@settings(max_examples=40)
@given(policy=st.sampled_from(sorted(POLICIES)), seed=st.integers(0, 1000), faulty=st.booleans())
def test_counts_are_whole_after_any_schedule(policy, seed, faulty, small):
    """Each of four workers has five documents, so that tasks come to one whose last push still waits."""
    cluster = dml.Cluster.uniform(4, samples_per_second=1000, jitter=stats.expon())
    if faulty:
        faults = random_faults(4, 0.1, seed=seed)
        cluster = cluster.with_faults(*faults, patience=0.02, checkpoint_every=5)
    trace = simulate(POLICIES[policy](), cluster, updates=40, seed=seed, batch_size=2)
    run = dml.replay(trace, small, ADD, eval_every=40)
    check_topics(small, run.params)
    assert np.isfinite(run.history["loss"]).all()


@pytest.mark.parametrize(
    ("policy", "engine"), [("k_batch_async", "devices"), ("ssp", "threads"), ("k_batch_async", "threads")]
)
def test_counts_are_whole_on_every_engine(policy, engine, small):
    run = train(POLICIES[policy](), small, engine=ENGINES[engine][0])
    check_topics(small, run.params)
    assert same_bits(run.params, dml.replay(run.trace, small, ADD).params)


def test_counts_are_whole_where_threads_crash(small):
    cluster = EXPONENTIAL.with_faults(*random_faults(4, 0.3, seed=3), patience=0.1, checkpoint_every=5)
    run = train(dml.asp(), small, cluster, updates=120, engine=dml.engines.threads(1.0))
    check_topics(small, run.params)
    assert run.trace.metadata["incidents"]


def gibbs(problem, num_topics, alpha, beta, seed, clocks, batch_size):
    """A plain sequential sweep over documents in turn, in NumPy: Griffiths and Steyvers 2004, equation 5."""
    start = problem.init(run_key(seed, INIT))
    topic, counts = np.array(start["topic"], int), np.array(start["word_topic"], int)
    words, length = problem.data["words"], problem.data["length"]
    for clock in range(clocks):
        key = task_key(run_key(seed, UPDATES), 0, clock)
        uniform = np.asarray(jax.random.uniform(key, (batch_size, words.shape[1])))
        for place in range(batch_size):
            d = (clock * batch_size + place) % len(length)
            for i in range(length[d]):
                w = words[d, i]
                counts[w, topic[d, i]] -= 1
                others = np.delete(topic[d, : length[d]], i)
                of_document = np.bincount(others, minlength=num_topics)
                likely = (counts[w] + beta) / (counts.sum(0) + len(counts) * beta) * (of_document + alpha)
                topic[d, i] = np.searchsorted(
                    np.cumsum(likely) / likely.sum(), uniform[place, i], side="right"
                )
                counts[w, topic[d, i]] += 1
    return topic, counts


def test_one_worker_is_a_plain_sweep(small):
    run = train(dml.asp(), small, dml.Cluster.uniform(1), updates=30, batch_size=3)
    topic, counts = gibbs(small, 4, 0.5, 0.2, seed=3, clocks=30, batch_size=3)
    assert (run.params["topic"] == topic).all()
    assert (run.params["word_topic"] == counts).all()


def test_loss_is_that_of_the_estimates(small):
    """Equations 6 and 7 of Griffiths and Steyvers, token by token."""
    params = jax.tree.map(np.asarray, small.init(jax.random.key(5)))
    total = 0.0
    for words, length, topic in zip(small.data["words"], small.data["length"], params["topic"], strict=True):
        shares = (np.bincount(topic[:length], minlength=4) + 0.5) / (length + 4 * 0.5)
        for word in words[:length]:
            of_word = (params["word_topic"][word] + 0.2) / (params["word_topic"].sum(0) + 9 * 0.2)
            total -= math.log(shares @ of_word)
    found = small.evaluate(params, small.eval_data)
    assert float(found["loss"]) == pytest.approx(total / sum(LENGTHS), rel=1e-5)
    assert float(found["perplexity"]) == pytest.approx(math.exp(total / sum(LENGTHS)), rel=1e-5)


@pytest.mark.full  # test_one_worker_is_a_plain_sweep and test_counts_are_whole_after_any_schedule
@pytest.mark.parametrize("policy", [dml.ssp(0), dml.ssp(3), dml.asp()], ids=str)
def test_bars_are_found(policy):
    corpus = bars(num_documents=300)
    problem = lda(corpus, alpha=1.0)
    run = train(policy, problem, EXPONENTIAL, updates=None, samples=40 * 300, batch_size=25)
    check_topics(problem, run.params)
    order, cosine = match_topics(topics_of(run.params), corpus.topics)
    assert cosine >= 0.9
    assert sorted(order) == list(range(10))
    start = match_topics(topics_of(problem.init(run_key(3, INIT))), corpus.topics)[1]
    assert start < 0.6, "chance is not enough"
    assert run.history["perplexity"].iloc[-1] < 11.5 < 20 < run.history["perplexity"].iloc[0]


def test_bars_are_drawn_from_their_topics():
    corpus = bars(num_documents=200, document_length=50, seed=1)
    assert corpus is bars(200, 50, seed=1)
    assert lda(corpus) is lda(corpus)
    assert lda(num_documents=200, document_length=50, seed=1) is lda(corpus)
    np.testing.assert_allclose(corpus.topics.sum(1), 1)
    np.testing.assert_allclose(corpus.topics.sum(0), 2 / 5)  # each cell is in a row and a column
    share = np.bincount(corpus.word, minlength=25) / len(corpus.word)
    assert np.abs(share - 1 / 25).max() < 0.02
    one = bars(num_documents=50, alpha=1e-4)  # a single topic in each document
    assert all(len(np.unique(one.word[one.document == d])) == 5 for d in range(50))


def test_only_shared_counts_travel(small):
    assert small.parameter_bytes == 4 * (9 * 4 + 4)
    assert small.tensor_shapes == ((4,), (9, 4))


def test_topics_that_were_found_stand_for_the_nearest_true_ones():
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(12), 4)
    order = rng.permutation(6)
    found = np.concatenate([true, rng.dirichlet(np.ones(12), 2)])[order]
    assert match_topics(found, true)[1] == pytest.approx(1)
    assert (order[match_topics(found, true)[0]] == np.arange(4)).all()
    with pytest.raises(ValueError, match=r"found, shape: expected at least as many topics.*, got \(2, 12\)"):
        match_topics(true[:2], true)
    with pytest.raises(ValueError, match=r"vocabulary: expected 12 words.*, got 3"):
        top_words(true, "abc")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_topics": 1}, "num_topics: expected .*, got 1"),
        ({"alpha": 0}, "alpha: expected .*, got 0"),
        ({"corpus": "sotu"}, "corpus: expected a Corpus.*, got 'sotu'"),
        (
            {"corpus": bars(), "seed": 1},
            r"document_length, seed: expected the defaults.*, got \(400, 100, 1\)",
        ),
        (
            {"corpus": Corpus(np.array([], int), np.array([], int), 2, ("a",))},
            "corpus: expected a corpus with at least one token",
        ),
    ],
)
def test_what_lda_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        lda(**arguments)


ENTRIES = "1 2 3\n3 1 1\n3 3 2\n1 1 1\n"


def written(folder, docword, vocab="cat\ndog\nemu\n", compress=gzip.compress):
    paths = folder / "docword.x.txt.gz", folder / "vocab.x.txt"
    paths[0].write_bytes(compress(docword.encode()))
    paths[1].write_bytes(vocab if isinstance(vocab, bytes) else vocab.encode())
    return paths


@pytest.mark.parametrize("vocab", ["cat\ndog\nemu\n", "cat\ndog\nemu", "cat\r\ndog\r\nemu\r\n"])
def test_bags_of_words_are_read(tmp_path, vocab):
    corpus = read_bag_of_words(*written(tmp_path, f"3\n3\n4\n{ENTRIES}", vocab))
    assert corpus.document.tolist() == [0, 0, 0, 0, 2, 2, 2]
    assert corpus.word.tolist() == [1, 1, 1, 0, 0, 2, 2]
    assert (corpus.num_documents, corpus.vocabulary) == (3, ("cat", "dog", "emu"))
    assert lda(corpus, 2).data["words"].tolist() == [[1, 1, 1, 0], [0] * 4, [0, 2, 2, 0]]
    assert lda(corpus, 2).data["length"].tolist() == [4, 0, 3]


@pytest.mark.parametrize(
    ("docword", "options", "message"),
    [
        (
            f"3\n3\n4\n{ENTRIES}",
            {"compress": lambda raw: gzip.compress(raw)[:-9]},
            "docword.*: expected a complete",
        ),
        (
            f"3\n3\n4\n{ENTRIES}",
            {"compress": lambda raw: raw},
            r"docword.*: expected a complete gzip file, got a damaged one \(Not a gz",
        ),
        (f"3\n3\n4\n{ENTRIES}", {"vocab": b"\xff\n"}, "vocab.*: expected a complete text file"),
        (
            f"3\n3\n4\n{ENTRIES}",
            {"vocab": "cat\ndog\n"},
            "vocab.*: expected 3 words .from the header of .*docword.*, got 2",
        ),
        (f"3\n3\n5\n{ENTRIES}", {}, "docword.*: expected 5 entries .from its header., got 4"),
        (f"3\n3\n4\n{ENTRIES}1 1", {}, r"docword.*: expected 4 entries .from its header., got 4.66667"),
        ("3\n3\n", {}, "docword.*: expected a header of three counts"),
        ("3\n3\n1\n1 x 2\n", {}, "docword.*: expected whole numbers"),
        (
            "3\n3\n2\n1 1 1\n4 1 1\n",
            {},
            r"docword.*, entry 2: expected a document up to 3.*, got \[4, 1, 1\]",
        ),
        ("3\n3\n1\n1 4 1\n", {}, r"entry 1: expected .*, got \[1, 4, 1\]"),
        ("3\n3\n1\n1 1 0\n", {}, r"entry 1: expected .*, got \[1, 1, 0\]"),
    ],
)
def test_a_damaged_bag_of_words_is_refused(docword, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_bag_of_words(*written(tmp_path, docword, **options))
