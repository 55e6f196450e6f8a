"""A command of which one process is struck: `python struck.py PROCESS BLOW WORDS...`, under torchrun.

BLOW names a function below, with its arguments behind colons. It falls in the first start of the group alone.
"""

import importlib
import os
import signal
import sys
import threading
import time

PLACES = {
    "forward": ("visiontrain.losses.detection", "DetectionCriterion", "__call__"),
    "save": ("visiontrain.run.saving", "", "save_checkpoint"),
    "validation": ("visiontrain.run.score", "Scorer", "score"),
    "end": ("visiontrain.run.train", "", "_finish"),
    "data": ("visiontrain.run.session", "", "read_data"),
    "window": ("visiontrain.run.record", "Recorder", "window"),
}


def before(stage, occurrence, do):
    """Have `do` called with the arguments of the call when `stage` is entered the `occurrence`-th time; 0: always."""
    module, owner, name = PLACES[stage]
    place = importlib.import_module(module)
    place = getattr(place, owner) if owner else place
    plain, entered = getattr(place, name), []

    def call(*arguments, **keys):
        entered.append(None)
        if occurrence in (len(entered), 0):
            do(*arguments)
        return plain(*arguments, **keys)

    setattr(place, name, call)


def kill(stage, occurrence, seconds):
    """SIGKILL, some seconds after the stage is entered; `start` is entered with the program."""

    def strike():
        time.sleep(float(seconds))
        os.kill(os.getpid(), signal.SIGKILL)

    def start(*_):
        threading.Thread(target=strike, daemon=True).start()

    if stage == "start":
        start()
    else:
        before(stage, int(occurrence), start)


def tell(stage, occurrence, name):
    """A signal to this process alone."""
    before(stage, int(occurrence), lambda *_: os.kill(os.getpid(), getattr(signal, name)))


def fail(stage, occurrence, kind):
    """An error of the user's, or of the program's."""

    def strike(*_):
        if kind == "user":
            raise importlib.import_module("visiontrain.errors").DataError("x.png: is struck; mend it")
        raise ZeroDivisionError("struck")

    before(stage, int(occurrence), strike)


def exhaust(images):
    """Out of memory wherever a process holds more than so many images at once; in every start."""

    def strike(criterion, outputs, batch):
        if len(batch) > int(images):
            raise importlib.import_module("torch").OutOfMemoryError("struck")

    before("forward", 0, strike)


def sleep(stage, seconds, patience):
    """Let others wait for this process longer than a collective may take."""
    distributed = importlib.import_module("visiontrain.engine.distributed")
    distributed.COLLECTIVE_TIMEOUT = importlib.import_module("datetime").timedelta(seconds=float(patience))
    before(stage, 0, lambda *_: time.sleep(float(seconds) if os.environ["RANK"] == sys.argv[1] else 0))


def spare():
    """Nothing."""


def fill():
    """No checkpoint can be written any more."""

    def strike(path, *_):
        raise importlib.import_module("visiontrain.engine.checkpoint").SaveError(f"{path}: the disk is full")

    before("save", 0, strike)


if __name__ == "__main__":  # not in the workers, which run this file again
    from visiontrain.cli import main

    process, blow, *words = sys.argv[1:]
    name, *arguments = blow.split(":")
    is_struck = os.environ["RANK"] == process and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if is_struck or name in ("exhaust", "sleep"):
        globals()[name](*arguments)
    sys.exit(main(words))
