"""Text as bags of words: the `Corpus`, and a reader of the UCI format."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmlcore.checks import fail, message, reject

from .formats import decompressed


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents as bags of words, with one entry per token.

    A corpus hashes by identity, so that `lda` makes only one problem from it.

    Args:
        document: the document of each token, whole numbers from 0 in ascending order, shape (N,) for N
            tokens.
        word: the word of each token, as an index into the vocabulary, shape (N,).
        num_documents: number of documents; a document may be empty.
        vocabulary: the V words.
        topics: the K distributions over words from which the documents were drawn, shape (K, V). Default:
            None, they are not known.
    """

    document: np.ndarray
    word: np.ndarray
    num_documents: int
    vocabulary: tuple[str, ...]
    topics: np.ndarray | None = None

    def __repr__(self) -> str:
        sizes = self.num_documents, len(self.vocabulary), len(self.word)
        return "Corpus({} documents, {} words, {} tokens)".format(*sizes)


def read_bag_of_words(docword: str | Path, vocab: str | Path) -> Corpus:
    """Reads a corpus in the UCI bag-of-words format, plain or compressed with gzip.

    `docword` has three lines with the number of documents D, of words V and of entries E, and then E lines
    `document word count`; documents and words count from 1. `vocab` has V lines with one word each. The
    function unpickles nothing.

    Args:
        docword: path of docword.NAME.txt or docword.NAME.txt.gz.
        vocab: path of vocab.NAME.txt or vocab.NAME.txt.gz.

    Returns:
        The corpus, with documents and words that count from 0.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is damaged, or the two files do not belong together; the message says where.

    >>> read_bag_of_words("docword.kos.txt.gz", "vocab.kos.txt")  # doctest: +SKIP
    Corpus(3430 documents, 6906 words, 467714 tokens)

    Reference: Newman, Bag of Words, UCI Machine Learning Repository, 2008.
    """
    vocabulary = tuple(_text(vocab).replace("\r\n", "\n").removesuffix("\n").split("\n"))
    words = _text(docword).split()
    try:
        numbers = np.array(words, np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(message(str(docword), f"other text ({error})", "whole numbers")) from None
    if len(numbers) < 3 or numbers[:3].min() < 0:
        header = "a header of three counts >= 0 (documents, words, entries)"
        reject(str(docword), f"{numbers[:3].tolist()}", header)
    num_documents, num_words, num_entries = numbers[:3].tolist()
    if len(numbers) != 3 + 3 * num_entries:
        found = (len(numbers) - 3) / 3
        reject(str(docword), f"{found:g}", f"{num_entries} entries (from its header)")
    if len(vocabulary) != num_words:
        reject(str(vocab), f"{len(vocabulary)}", f"{num_words} words (from the header of {docword})")
    entries = numbers[3:].reshape(-1, 3)
    wrong = (entries < 1).any(1) | (entries[:, :2] > (num_documents, num_words)).any(1)
    if wrong.any():
        row = int(wrong.argmax())
        expected = f"a document up to {num_documents}, a word up to {num_words} and a count, each >= 1"
        fail(f"{docword}, entry {row + 1}", entries[row].tolist(), expected)
    document, word, count = entries[np.argsort(entries[:, 0], kind="stable")].T
    tokens = [np.repeat(column - 1, count) for column in (document, word)]
    return Corpus(tokens[0], tokens[1], num_documents, vocabulary)


def _text(path: str | Path) -> str:
    """Returns the content of a text file, decompressed if its name ends in .gz."""
    path = Path(path)
    try:
        return (decompressed(path) if path.suffix == ".gz" else path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise ValueError(message(str(path), f"a damaged one ({error})", "a complete text file")) from error
