"""CIFAR's pickles are read, and no other pickle runs."""

import os
import pickle

import numpy as np
import pytest

from calibrant.datasets.cifar import read_pickled_batch
from calibrant.errors import FileError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 700), dtype=np.uint8)


def test_what_python_2_wrote_is_read(python2_pickle):
    batch = {
        "batch_label": "testing batch 1 of 1",
        "labels": [3, 8, 0],
        "data": PIXELS,
        "filenames": ["a.png", "b", "c"],
    }
    held = read_pickled_batch(python2_pickle(batch), "test_batch")
    assert held.keys() == batch.keys()
    assert held["labels"] == [3, 8, 0]
    assert held["filenames"] == [b"a.png", b"b", b"c"]
    assert held["data"].dtype == np.uint8
    assert np.array_equal(held["data"], PIXELS)


def test_the_pickle_of_these_tests_is_what_pythons_own_reader_understands(python2_pickle):
    # Otherwise the writer and the reader of this project could share a mistake.
    held = pickle.loads(python2_pickle({"data": PIXELS}), encoding="bytes")  # noqa: S301  # our own bytes
    assert np.array_equal(held[b"data"], PIXELS)
    held = pickle.loads(python2_pickle({"data": PIXELS}, by_column=True), encoding="bytes")  # noqa: S301
    assert np.array_equal(held[b"data"], PIXELS)


def test_an_array_that_was_stored_column_by_column_is_the_same_array(python2_pickle):
    held = read_pickled_batch(python2_pickle({"data": PIXELS}, by_column=True), "x")
    assert np.array_equal(held["data"], PIXELS)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_todays_python_and_numpy_write_is_read_in_every_protocol(protocol):
    for array in (PIXELS, np.asfortranarray(PIXELS)):
        held = read_pickled_batch(pickle.dumps({b"data": array, "labels": [1]}, protocol=protocol), "x")
        assert np.array_equal(held["data"], PIXELS)
        assert held["labels"] == [1]


class _Hostile:
    """Would run a command when it is unpickled."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_make_a_file_is_refused_and_makes_none(tmp_path, protocol):
    made = tmp_path / "made"
    content = pickle.dumps({"data": PIXELS, "labels": _Hostile(os.mkdir, str(made))}, protocol=protocol)
    with pytest.raises(FileError, match=r"batch must hold arrays of bytes.*it names (posix|nt)\.mkdir"):
        read_pickled_batch(content, "batch")
    assert not made.exists()
    pickle.loads(content)  # noqa: S301  # so that we know the test would have noticed
    assert made.exists()


@pytest.mark.parametrize(
    ("asked", "content"),
    [
        ("os.system", b"cos\nsystem\n(S'touch made'\ntR."),
        ("builtins.eval", b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R."),
        ("builtins.getattr", b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93."),
        ("numpy.load", b"cnumpy\nload\n."),
        ("numpy.core.multiarray.scalar", b"cnumpy.core.multiarray\nscalar\n."),
        ("numpy.ndarray.tofile", b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."),
        ("calibrant.datasets.cifar.os", b"ccalibrant.datasets.cifar\nos\n."),
        ("subprocess.Popen", b"(S'true'\nisubprocess\nPopen\n."),
    ],
)
def test_every_other_function_is_refused_by_name(asked, content):
    with pytest.raises(FileError, match=f"names {asked}"):
        read_pickled_batch(content, "x")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02}",
        b"not a pickle",
        b"\x80\x02cnumpy\ndtype\n(U\x02O8tR.",  # an array of objects
        b"\x80\x02cnumpy\nndarray\n)R.",  # a name that stands for a type is not called
        b"\x80\x02cnumpy\ndtype\n}(U\x08__call__K\x01ub.",  # nor is a function given other attributes
        b"Pid\n.",
    ],
)
def test_a_damaged_pickle_is_an_error_that_names_the_file(content):
    with pytest.raises(FileError, match="data_batch_1 must"):
        read_pickled_batch(content, "data_batch_1")


def test_a_pickle_cut_short_anywhere_is_an_error(python2_pickle):
    whole = python2_pickle({"labels": [1, 2], "data": PIXELS})
    for length in range(0, len(whole), 97):
        with pytest.raises(FileError, match="x must"):
            read_pickled_batch(whole[:length], "x")


def test_an_array_whose_shape_is_not_its_size_is_refused(python2_pickle):
    content = python2_pickle({"data": PIXELS}).replace(
        (3).to_bytes(4, "little") + b"J" + (700).to_bytes(4, "little"),
        (3).to_bytes(4, "little") + b"J" + (800).to_bytes(4, "little"),
    )
    with pytest.raises(FileError, match="whose shape fits their bytes"):
        read_pickled_batch(content, "x")


def test_an_array_of_anything_but_bytes_is_refused(python2_pickle):
    with pytest.raises(FileError, match="arrays must be of bytes"):
        read_pickled_batch(python2_pickle({"data": np.zeros((2, 2), dtype=np.float32)}), "x")
