"""MLflow's own client finds every column by epoch and every update once; nothing is sent anywhere."""

import json
import os

import pytest

from visiontrain.errors import ConfigError

pytest.importorskip("mlflow", reason="mlflow is not installed; pip install 'visiontrain[mlflow]'")
pytest.importorskip("sqlalchemy", reason="mlflow is installed without its data base (mlflow-skinny)")

pytestmark = [pytest.mark.slow, pytest.mark.offline, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "detect" / "train"
    folder.mkdir(parents=True)
    return folder


def logger_of(folder, **keys):
    from visiontrain.loggers.mlflow import MlflowLogger

    return MlflowLogger(folder, settings={"batch": 8, "data": "x" * 999, **keys.pop("settings", {})}, **keys)


def write(folder, epochs, *, ends=True, **keys):
    logger = logger_of(folder, **keys)
    for epoch in epochs:
        rows = [{"update": number, "box_loss": 0.5 * number, "lr": 0.01} for number in (2 * epoch - 1, 2 * epoch)]
        logger.log("updates", {"rows": rows})
        logger.log("epoch", {"epoch": epoch, "metrics/mAP50(B)": 0.25 * epoch, "val/box_loss": None})
    if ends:
        logger.log("end", {"metrics": {"metrics/mAP50(B)": 0.5}})
    logger.close()


def the_run(folder):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(folder.parent.name)
    (run,) = client.search_runs([experiment.experiment_id])
    history = {
        name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    return run, history


def test_a_run_is_there_with_its_settings_epochs_updates_and_best_score(folder):
    write(folder, [1, 2])
    run, history = the_run(folder)
    assert (run.info.run_name, run.info.status) == ("train", "FINISHED")
    assert run.data.params["batch"] == "8"
    assert history["metrics/mAP50"] == [(1, 0.25), (2, 0.5)]
    assert history["update/box_loss"] == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]
    assert history["best/mAP50"] == [(2, 0.5)]
    assert "val/box_loss" not in history
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_run_that_goes_on_repeats_nothing_and_may_have_other_settings(folder):
    write(folder, [1, 2, 3], ends=False)
    assert the_run(folder)[0].info.status == "KILLED"
    write(folder, [3, 4], is_resumed=True, settings={"epochs": 9})
    write(folder, [], is_resumed=True, settings={"epochs": 10})
    run, history = the_run(folder)
    assert [step for step, _ in history["metrics/mAP50"]] == [1, 2, 3, 4]
    assert [step for step, _ in history["update/lr"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (run.info.status, run.data.params["epochs"]) == ("FINISHED", "9")


def test_a_new_run_in_an_old_folder_is_a_run_of_its_own(folder):
    write(folder, [1])
    before = json.loads((folder / "mlflow.json").read_text())
    write(folder, [1])
    assert json.loads((folder / "mlflow.json").read_text()) != before


def test_the_environment_names_store_and_experiment(folder, tmp_path, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mine.db'}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    write(folder, [1])
    assert MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mine.db'}").get_experiment_by_name("mine") is not None
    assert not (folder.parent / "mlflow.db").exists()


def test_a_store_that_cannot_be_used_is_told_before_training(folder, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://here")
    with pytest.raises(ConfigError, match="logger = mlflow: the store nonsense://here cannot be used"):
        logger_of(folder)


def test_a_store_that_fails_in_mid_run_is_an_error_that_does_not_end_it(folder, monkeypatch):
    from mlflow.exceptions import MlflowException

    logger = logger_of(folder)

    def fail(*_, **__):
        raise MlflowException("the server is gone")

    monkeypatch.setattr(logger._client, "log_batch", fail)
    with pytest.raises(OSError, match="mlflow: the server is gone"):
        logger.log("epoch", {"epoch": 1, "updates": 2})
