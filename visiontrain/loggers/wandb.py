"""Weights & Biases: an offline log in the run's folder, which `wandb sync` uploads; or what WANDB_MODE says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.loggers.values import EPOCH, UPDATE, best_values, epoch_values, update_values

RUN_FILE = "wandb.json"
"""Tells a run that goes on its identifier, and how far its log has come."""
STEP = "step"
"""Numbers all that is logged, over every part of the run: a number that has been is dropped when parts are joined."""
EPOCH_METRICS = ("train/*", "val/*", "metrics/*", "lr/*", "t_*", "time", "updates", "images")


class WandbLogger:
    """Logs what TensorBoard is given, too. An offline log deletes nothing: what is there is not repeated.

    How far the log has come is noted before each addition, so a run that is killed in between has a gap of a few
    updates in it at worst, and nothing twice.
    """

    def __init__(self, folder: Path, *, settings: Mapping[str, Any], is_resumed: bool = False) -> None:
        """
        Args:
            folder: Of the run.
            settings: Logged as its configuration.
            is_resumed: Whether the run of Weights & Biases that the folder names goes on.

        Raises:
            ConfigError: If it cannot begin.
        """
        # It tells its makers of its errors unless it is asked not to before it is imported; the user's word wins.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._path = folder / RUN_FILE
        self._noted: dict[str, Any] = {"id": None, EPOCH: 0, UPDATE: 0, STEP: 0}
        if is_resumed and self._path.is_file():
            self._noted = json.loads(self._path.read_text(encoding="utf-8"))
        self._is_finished = False
        mode = os.environ.get("WANDB_MODE") or "offline"
        try:
            with _as_os_error():
                self._run = wandb.init(
                    project=os.environ.get("WANDB_PROJECT") or "visiontrain",
                    name=os.environ.get("WANDB_NAME") or folder.name,
                    id=self._noted["id"],
                    dir=str(folder),
                    config=dict(settings),
                    mode=mode,  # type: ignore[arg-type]
                    resume="allow",
                    settings=_quiet_settings(),
                )
                self._noted["id"] = self._run.id
                self._note()
                for names in EPOCH_METRICS:
                    self._run.define_metric(names, step_metric=EPOCH)
                self._run.define_metric(f"{UPDATE}/*", step_metric=UPDATE)
        except (OSError, ValueError) as error:  # ValueError: what the environment says is none of its values
            found = " ".join(str(error).split())
            raise ConfigError(
                f"logger = wandb: cannot begin with WANDB_MODE = {mode} ({found}); mend that, or leave wandb out"
            ) from error

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        """Raises OSError if the log cannot be written."""
        if event == "updates":
            self._log(UPDATE, {row[UPDATE]: update_values(row) for row in values["rows"]})
        elif event == "epoch":
            self._log(EPOCH, {int(values[EPOCH]): epoch_values(values)})
        elif event == "end":
            with _as_os_error():
                self._run.summary.update(best_values(values.get("metrics", {})))
            self._is_finished = True

    def close(self) -> None:
        """Raises OSError if the log cannot be written."""
        with _as_os_error():
            self._run.finish(exit_code=0 if self._is_finished else 1)

    def _log(self, axis: str, values: Mapping[int, Mapping[str, float]]) -> None:
        """Log the values of some steps, except those that are there."""
        new = {step: of_step for step, of_step in values.items() if step > self._noted[axis]}
        if not new:
            return
        first = self._noted[STEP]
        self._noted |= {axis: max(new), STEP: first + len(new)}
        self._note()
        with _as_os_error():
            for number, (step, of_step) in enumerate(new.items(), start=first):
                self._run.log({axis: step, **of_step}, step=number)

    def _note(self) -> None:
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.write_text(json.dumps(self._noted) + "\n", encoding="utf-8")
        temporary.replace(self._path)


def _quiet_settings() -> Any:
    """Nothing but the log: no machine, no code, no output of the program, no words of its own."""
    from wandb import Settings

    return Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
    )


@contextmanager
def _as_os_error() -> Iterator[None]:
    """What goes wrong with the log as what goes wrong with a disk: it does not end a run."""
    from wandb.errors import Error

    try:
        yield
    except Error as error:
        raise OSError(f"wandb: {error}") from error
