"""Text as bags of words: documents, their words, and the reader of the UCI format."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .formats import decompressed


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents as bags of words, token by token; hashable by identity, so that problems are made of it once.

    Args:
        document: of each token, (N,), from 0, ascending.
        word: of each token, (N,), a number in the vocabulary.
        num_documents: D; a document may be empty.
        vocabulary: the V words.
        topics: distributions over words that the documents were drawn from, (K, V), where they are known.
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

    `docword` has three lines D, V, E and then E lines `document word count`, numbered from 1; `vocab` has V
    words, one a line. Nothing is unpickled.

    Args:
        docword: path of docword.NAME.txt or docword.NAME.txt.gz.
        vocab: path of vocab.NAME.txt or vocab.NAME.txt.gz.

    Returns:
        The corpus, documents and words numbered from 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file is damaged, or the two do not belong together; the message says where.

    >>> read_bag_of_words("docword.kos.txt.gz", "vocab.kos.txt")  # doctest: +SKIP
    Corpus(3430 documents, 6906 words, 467714 tokens)

    Reference: Newman, Bag of Words, UCI Machine Learning Repository, 2008.
    """
    vocabulary = tuple(_text(vocab).replace("\r\n", "\n").removesuffix("\n").split("\n"))
    try:
        numbers = np.array(_text(docword).split(), np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{docword}: expected whole numbers ({error})") from None
    if len(numbers) < 3 or numbers[:3].min() < 0:
        raise ValueError(f"{docword}: expected a header of three counts, of documents, words and entries")
    num_documents, num_words, num_entries = numbers[:3].tolist()
    if len(numbers) != 3 + 3 * num_entries:
        found = (len(numbers) - 3) / 3
        raise ValueError(f"{docword}: {found:g} entries, expected {num_entries} as the header says")
    if len(vocabulary) != num_words:
        raise ValueError(f"{vocab}: {len(vocabulary)} words, expected {num_words} as {docword} says")
    entries = numbers[3:].reshape(-1, 3)
    wrong = (entries < 1).any(1) | (entries[:, :2] > (num_documents, num_words)).any(1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{docword}: entry {row + 1} is {entries[row].tolist()}, expected a document up to "
            f"{num_documents}, a word up to {num_words} and a count, each at least 1"
        )
    document, word, count = entries[np.argsort(entries[:, 0], kind="stable")].T
    tokens = [np.repeat(column - 1, count) for column in (document, word)]
    return Corpus(tokens[0], tokens[1], num_documents, vocabulary)


def _text(path: str | Path) -> str:
    """A text file, decompressed where its name says so."""
    path = Path(path)
    try:
        return (decompressed(path) if path.suffix == ".gz" else path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a complete text file ({error})") from error
