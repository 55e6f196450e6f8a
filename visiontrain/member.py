"""One of the processes that `visiontrain train processes=` has started: `python -m visiontrain.member FOLDER`.

Its settings lie in the folder, and what it has to say to the process that has started it goes there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from visiontrain.errors import Ended, UserError
from visiontrain.run import handover
from visiontrain.run.handover import DONE, FAILED, TO_START_AGAIN, WRONG_INPUT


def main(folder: Path) -> int:
    """Train, and return the exit code."""
    over = handover.read(folder, handover.OVER)
    if over is not None:  # torchrun starts again what has ended for a reason that stays
        return int(over["code"])
    code = FAILED
    try:
        code = _train(folder)
    except Ended as end:  # another process says why
        code = end.code
    except KeyboardInterrupt as stop:
        code = handover.signaled(stop)
    finally:
        if code not in (DONE, TO_START_AGAIN):
            handover.write(folder, handover.OVER, {"code": code})
    return code


def _train(folder: Path) -> int:
    # Behind the look whether there is anything to do, so that this takes no time.
    from visiontrain.run.resuming import config_from
    from visiontrain.run.train import train_run

    try:
        result = train_run(config_from(handover.read(folder, handover.SETTINGS) or {}))
    except UserError as error:
        handover.write_faults(folder, error)
        return WRONG_INPUT
    if result.is_own:
        handover.write(folder, handover.RESULT, result.to_plain())
    return DONE


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
