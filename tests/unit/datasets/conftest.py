"""Files in the layouts of the publishers, made small."""

import io
import pickle
import struct
import tarfile

import numpy as np
import pytest


@pytest.fixture
def python2_pickle():
    """A function that pickles a dict as Python 2 and NumPy 1 did: protocol 2, all text as byte strings."""
    return _python2_pickle


@pytest.fixture
def pack():
    """A function that packs named bytes into a tar archive."""
    return _pack


def _pack(path, files, folder=""):
    mode = {".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz", ".bz2": "w:bz2", ".tar": "w"}[path.suffix]
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}" if folder else name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _python2_pickle(value, *, by_column=False):
    """Written opcode by opcode, as no Python 2 is at hand; the order is that of the files of the publisher."""
    out = io.BytesIO()
    out.write(pickle.PROTO + b"\x02")
    _write(out, value, by_column)
    out.write(pickle.STOP)
    return out.getvalue()


def _write(out, value, by_column):
    if isinstance(value, dict):
        out.write(pickle.EMPTY_DICT + pickle.MARK)
        for key, held in value.items():
            _write(out, key, by_column)
            _write(out, held, by_column)
        out.write(pickle.SETITEMS)
    elif isinstance(value, list):
        out.write(pickle.EMPTY_LIST + pickle.MARK)
        for held in value:
            _write(out, held, by_column)
        out.write(pickle.APPENDS)
    elif isinstance(value, int):
        out.write(pickle.BININT + struct.pack("<i", value))
    elif isinstance(value, str):
        _write_bytes(out, value.encode("latin-1"))
    else:
        _write_array(out, value, by_column)


def _write_bytes(out, content):
    if len(content) < 256:
        out.write(pickle.SHORT_BINSTRING + bytes([len(content)]) + content)
    else:
        out.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)


def _write_array(out, array, by_column):
    out.write(b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n")
    out.write(pickle.BININT1 + b"\x00" + pickle.TUPLE1)
    _write_bytes(out, b"b")
    out.write(pickle.TUPLE3 + pickle.REDUCE + pickle.MARK + pickle.BININT1 + b"\x01" + pickle.MARK)
    for size in array.shape:
        out.write(pickle.BININT + struct.pack("<i", size))
    out.write(pickle.TUPLE + b"cnumpy\ndtype\n")
    _write_bytes(out, array.dtype.str.lstrip("|<").encode())
    out.write(pickle.BININT1 + b"\x00" + pickle.BININT1 + b"\x01" + pickle.TUPLE3 + pickle.REDUCE + pickle.MARK)
    out.write(pickle.BININT1 + b"\x03")
    _write_bytes(out, b"|")
    out.write(pickle.NONE * 3 + (pickle.BININT + struct.pack("<i", -1)) * 2 + pickle.BININT1 + b"\x00")
    out.write(pickle.TUPLE + pickle.BUILD + (pickle.NEWTRUE if by_column else pickle.NEWFALSE))
    _write_bytes(out, np.asarray(array).tobytes("F" if by_column else "C"))
    out.write(pickle.TUPLE + pickle.BUILD)
