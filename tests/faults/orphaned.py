"""A process that is killed while its workers start, or wait for work: `python orphaned.py loader|check`."""

import os
import signal
import sys
import time

import numpy as np
from PIL import Image

from visiontrain.data.check.looks import look_at_all
from visiontrain.data.loader import _make_loader

STARTING = 2.0
"""Seconds: longer than it takes to write to a worker what it is to do."""


def slow_to_arrive():
    time.sleep(STARTING)
    return Slow()


class Slow:
    """A data set that workers take their time to unpickle, as they do to import torch."""

    def __reduce__(self):
        return slow_to_arrive, ()

    def __getitem__(self, key):
        return key


def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def main(workers):
    if workers == "loader":
        return iter(_make_loader(Slow(), list, [[0]], workers=2, pin_memory=False))
    paths = [f"{number}.png" for number in range(4)]
    for path in paths:
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
    return look_at_all(paths, imgsz=32, workers=2, progress=killed)


if __name__ == "__main__":  # not in the workers, which run this file again
    kept = main(sys.argv[1])
    killed()
