"""Tasks for the tests of the worker processes."""

import os
import time

import torch

from calibrant.errors import InputError


def double(*, number, progress):
    progress("half way", 0.5)
    return {"number": 2 * number}


def sleep(*, seconds, progress):
    progress("sleeping")
    time.sleep(seconds)


def refuse(*, progress):
    progress("about to refuse")
    raise InputError("number must be even; got 3.")


def break_down(*, progress):
    progress("about to break down")
    raise ZeroDivisionError("1 / 0")


def crash(*, progress):
    progress("about to crash")
    os._exit(1)


def not_json(*, progress):
    progress("about to answer")
    return float("nan")


def swallow(*, progress):
    progress("about to need a petabyte")
    return torch.ones(1 << 47)


def lose_file(*, progress):
    progress("about to look for it")
    raise FileNotFoundError(2, "No such file or directory", "gone.npz")
