"""Readers on files written here; fetching against a server on this machine; real data where it is at hand."""

import gzip
import http.server
import io
import socket
import tarfile
import threading
import zipfile
from functools import partial
from hashlib import sha256

import numpy as np
import pytest
from real_data import needs
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dmlcore import data, files
from dmlcore.data import datasets, fetch, formats


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


# Readers


def test_idx_roundtrip(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx(IMAGES)))
    np.testing.assert_array_equal(formats.read_idx(path), IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a file that starts with 000008 .*, got an empty file"),
        (b"\0\0\x0d\1" + idx(IMAGES)[4:], "starts with 000008 .*, got 00000d01"),
        (idx(IMAGES)[:9], "expected a header of 16 bytes, got 9 .the file is cut short."),
        (idx(IMAGES)[:-1], r"expected 40 bytes \(for the shape \(2, 3, 4\)\), got 39"),
        (idx(IMAGES) + b"\0", "expected 40 bytes .*, got 41"),
    ],
)
def test_idx_refuses(content, message):
    with pytest.raises(ValueError, match=message):
        formats.parse_idx(content, "images")


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(idx(IMAGES), mtime=0)[:-9], b""], ids=len)
def test_damaged_gzip_names_the_file(content, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"images\.gz"):
        formats.read_idx(path)


def test_cifar_planes_become_channels():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), np.uint8)
    content = b"".join(bytes([label]) + image.tobytes() for label, image in zip([9, 0], pixels, strict=True))
    images, labels = formats.parse_cifar(content)
    assert labels.tolist() == [9, 0]
    np.testing.assert_array_equal(images, np.moveaxis(pixels, 1, -1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a multiple of 3073 bytes, got 0"),
        (bytes(3072), "expected a multiple of 3073 bytes, got 3072"),
        (bytes(3073) + bytes([10] + [0] * 3072), "record 1: expected a label from 0 to 9, got 10"),
    ],
)
def test_cifar_refuses(content, message):
    with pytest.raises(ValueError, match=message):
        formats.parse_cifar(content)


def test_ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n1,30,4.5,9\n7,3,0.5,9\n")
    assert formats.read_ratings(path).to_numpy().tolist() == [[1, 30, 4.5], [7, 3, 0.5]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the columns userId, movieId, rating"),
        ("userId,movieId\n1,2\n", "expected the columns"),
        ("userId,movieId,rating\n1,x,3\n", "of numbers"),
        ("userId,movieId,rating\n1,2,3\n1,2\n", "row 1: expected a rating from 0.5 to 5, got nan"),
        ("userId,movieId,rating\n1,2,6\n", "row 0: expected a rating from 0.5 to 5, got 6.0"),
    ],
)
def test_ratings_refuses(text, message, tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        formats.read_ratings(path)
    assert "ratings.csv" in str(error.value)


# Fetching


FILES = {"one.txt": b"first", "two.txt": b"second"}


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """DMLCORE_DATA and the cache, as two empty folders."""
    monkeypatch.setenv("DMLCORE_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(files, "cache", lambda: tmp_path / "cache")
    return tmp_path / "own", tmp_path / "cache"


@pytest.fixture
def server(tmp_path):
    """A web server on this machine: (its folder, its address)."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{web.server_port}/"
        web.shutdown()
        thread.join()


def source(*urls):
    return fetch.DataFiles(
        "set", {name: sha256(content).hexdigest() for name, content in FILES.items()}, urls
    )


def put(folder, files=FILES):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def put_tar(path):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"set/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def put_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"set/{name}", content)


def contents(paths):
    return {name: path.read_bytes() for name, path in paths.items()}


@pytest.mark.parametrize("place", [0, 1])
def test_own_folder_then_cache_without_a_network(homes, place):
    put(homes[place] / "set")
    paths = fetch.fetch(source())
    assert contents(paths) == FILES
    assert paths["one.txt"].parent == homes[place] / "set"


def test_damaged_file_is_named_with_what_to_do(homes):
    put(homes[0] / "set", FILES | {"two.txt": b"secon"})
    with pytest.raises(
        ValueError, match=r"two\.txt: expected a file with the sha256 16367aac.*, got .*; try deleting"
    ):
        fetch.fetch(source())


@pytest.mark.parametrize(("name", "write"), [("", None), ("set.zip", put_zip), ("set.tar.gz", put_tar)])
def test_download_as_files_or_archive(homes, server, name, write):
    folder, address = server
    put(folder)
    if write:
        write(folder / name)
    assert contents(fetch.fetch(source(address + name))) == FILES
    assert sorted(path.name for path in homes[1].rglob("*")) == ["one.txt", "set", "two.txt"]


def test_an_address_may_be_the_begin_of_names(homes, server):
    folder, address = server
    put(folder, {f"trace-{name}": content for name, content in FILES.items()})
    assert contents(fetch.fetch(source(address + "trace-"))) == FILES


def test_second_address_helps(homes, server):
    folder, address = server
    put(folder)
    assert contents(fetch.fetch(source(address + "missing/", address))) == FILES


@pytest.mark.parametrize("name", ["", "set.zip", "set.tar.gz", "gone.zip"])
def test_failed_download_leaves_nothing(homes, server, name):
    folder, address = server
    put(folder, FILES | {"two.txt": b"other"})
    for archive, write in (("set.zip", put_zip), ("set.tar.gz", put_tar)):
        write(folder / archive)
        (folder / archive).write_bytes((folder / archive).read_bytes()[:-40])
    with pytest.raises(ConnectionError, match=r"set: cannot be downloaded(.|\n)*DMLCORE_DATA") as error:
        fetch.fetch(source(address + name))
    assert address + name in str(error.value)
    assert list(homes[1].rglob("*")) == []


def test_no_network_says_how_to_provide_the_files(homes):
    with pytest.raises(ConnectionError, match=r"put one\.txt, two\.txt into a folder named set"):
        fetch.fetch(source("http://127.0.0.1:9/"))


def test_a_silent_address_is_given_up(homes, monkeypatch):
    monkeypatch.setattr(fetch, "SILENCE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        with pytest.raises(ConnectionError, match=r"timed out|timeout"):
            fetch.fetch(source(address))


# The datasets


def test_digits_are_those_of_scikit_learn_in_a_stratified_split():
    inputs, labels = load_digits(return_X_y=True)
    split = train_test_split(inputs / 16, labels, test_size=360, random_state=0, stratify=labels)
    for own, other in zip(data.digits(), (split[0], split[2], split[1], split[3]), strict=True):
        np.testing.assert_array_equal(own, other)
        assert own.dtype == other.dtype


@needs("mnist")
def test_mnist():
    found = data.mnist()
    assert [part.shape for part in found] == [(60000, 28, 28), (60000,), (10000, 28, 28), (10000,)]
    assert np.bincount(found.test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert found.train_inputs.mean() / 255 == pytest.approx(0.1307, abs=1e-4)


@needs("cifar10")
def test_cifar10():
    found = data.cifar10()
    assert [part.shape for part in found] == [(50000, 32, 32, 3), (50000,), (10000, 32, 32, 3), (10000,)]
    assert np.bincount(found.train_labels).tolist() == [5000] * 10
    np.testing.assert_allclose(found.train_inputs.mean((0, 1, 2)) / 255, [0.4914, 0.4822, 0.4465], atol=1e-4)


@needs("movielens_small")
def test_movielens_small():
    found = data.movielens_small()
    assert [len(part) for part in found] == [100836] * 3
    assert np.array_equal(np.unique(found.user), np.arange(610))
    assert np.array_equal(np.unique(found.item), np.arange(9724))
    assert found.rating.mean() == pytest.approx(3.5016, abs=1e-4)


def test_sources_have_whole_checksums():
    for source in datasets.SOURCES.values():
        assert all(len(bytes.fromhex(value)) == 32 for value in source.sha256.values())
