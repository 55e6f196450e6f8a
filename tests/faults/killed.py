"""A command that is killed at a chosen moment: `python killed.py STAGE OCCURRENCE SECONDS WORDS...`.

The clock starts when a part of the run named STAGE is entered for the OCCURRENCE-th time; after SECONDS comes
SIGKILL, which no program can catch. The stage `start` is entered with the program itself.
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
    "results": ("visiontrain.loggers.csv", "CsvLogger", "log"),
    "end": ("visiontrain.run.train", "", "_finish"),
}


def start_clock(seconds):
    def kill():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def arm(stage, occurrence, seconds):
    if stage == "start":
        start_clock(seconds)
        return
    module, owner, name = PLACES[stage]
    place = importlib.import_module(module)
    place = getattr(place, owner) if owner else place
    plain, entered = getattr(place, name), []

    def call(*arguments, **keys):
        entered.append(None)
        if len(entered) == occurrence:
            start_clock(seconds)
        return plain(*arguments, **keys)

    setattr(place, name, call)


if __name__ == "__main__":  # not in the workers, which run this file again
    from visiontrain.cli import main

    arm(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    sys.exit(main(sys.argv[4:]))
