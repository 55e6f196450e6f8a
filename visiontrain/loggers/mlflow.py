"""MLflow: a data base beside the run folders, or the server that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.loggers.values import EPOCH, UPDATE, best_values, epoch_values, update_values

RUN_FILE = "mlflow.json"
"""Tells a run that goes on where its log is."""
MOST_METRICS, MOST_PARAMS = 1000, 100
"""In one call; servers refuse more."""
LONGEST_PARAM = 250
"""Characters, which every version of MLflow takes."""


class MlflowLogger:
    """Logs what TensorBoard is given, too. MLflow deletes nothing: what is there when a run goes on is not repeated."""

    def __init__(self, folder: Path, *, settings: Mapping[str, Any], is_resumed: bool = False) -> None:
        """
        Args:
            folder: Of the run; its name is that of the run, its parent's that of the experiment.
            settings: Logged as parameters.
            is_resumed: Whether the run of MLflow that the folder names goes on.

        Raises:
            ConfigError: If the store cannot be reached.
        """
        # MLflow tells its makers of its use unless it is asked not to before it is imported; the user's word wins.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder.parent / 'mlflow.db').as_posix()}"
        try:
            with _as_os_error():
                self._client = MlflowClient(tracking_uri=uri)
                self._run = self._begin(folder, is_resumed=is_resumed)
                self._log_params(settings)
        except OSError as error:
            raise ConfigError(
                f"logger = mlflow: the store {uri} cannot be used ({error}); mend it, let MLFLOW_TRACKING_URI name "
                "another, or leave mlflow out"
            ) from error
        self._last: dict[str, int] = {}  # step of each metric's last value
        self._epoch = 0
        self._is_finished = False

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        """Raises OSError if the store cannot be written."""
        if event == "updates":
            self._log((update_values(row), row[UPDATE]) for row in values["rows"])
        elif event == "epoch":
            self._epoch = int(values[EPOCH])
            self._log([(epoch_values(values), self._epoch)])
        elif event == "end":
            self._log([(best_values(values.get("metrics", {})), self._epoch)])
            self._is_finished = True

    def close(self) -> None:
        """Raises OSError if the store cannot be written."""
        with _as_os_error():
            self._client.set_terminated(self._run, status="FINISHED" if self._is_finished else "KILLED")

    def _begin(self, folder: Path, *, is_resumed: bool) -> str:
        """The identifier of a new run, or of the one that goes on."""
        if is_resumed and (folder / RUN_FILE).is_file():
            run: str = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))["run_id"]
            self._client.update_run(run, status="RUNNING")
            return run
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or folder.parent.name or "visiontrain"
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        run = self._client.create_run(number, run_name=folder.name).info.run_id
        (folder / RUN_FILE).write_text(json.dumps({"run_id": run}) + "\n", encoding="utf-8")
        return run

    def _log_params(self, settings: Mapping[str, Any]) -> None:
        """What is there already stays: MLflow refuses to change it."""
        from mlflow.entities import Param

        there = self._client.get_run(self._run).data.params
        new = [Param(key, str(value)[:LONGEST_PARAM]) for key, value in settings.items() if key not in there]
        for start in range(0, len(new), MOST_PARAMS):
            self._client.log_batch(self._run, params=new[start : start + MOST_PARAMS])

    def _log(self, rows: Iterable[tuple[Mapping[str, float], int]]) -> None:
        """Log the values of some steps, except those that the store has already."""
        from mlflow.entities import Metric

        now, new = int(1000 * time.time()), []
        with _as_os_error():
            for values, step in rows:
                for column, value in values.items():
                    name = column.replace("(B)", "")  # parentheses are refused
                    if step > self._last_step(name):
                        self._last[name] = step
                        new.append(Metric(name, value, now, step))
            for start in range(0, len(new), MOST_METRICS):
                self._client.log_batch(self._run, metrics=new[start : start + MOST_METRICS])

    def _last_step(self, name: str) -> int:
        """The last step that the store has of a metric; asked once."""
        if name not in self._last:
            history = self._client.get_metric_history(self._run, name)
            self._last[name] = max((metric.step for metric in history), default=-1)
        return self._last[name]


@contextmanager
def _as_os_error() -> Iterator[None]:
    """What goes wrong with the store as what goes wrong with a disk: it does not end a run."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise OSError(f"mlflow: {error}") from error
