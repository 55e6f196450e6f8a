from __future__ import annotations

import pytest

from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.run.choose_task import with_task


def task_for(**settings):
    return with_task(load_config("train", python=settings)).task


@pytest.mark.parametrize(
    ("model", "task"), [("det-n", "detect"), ("cls-s", "classify"), ("resnet18", "classify"), (None, "detect")]
)
def test_the_task_is_that_of_the_model(model, task):
    assert task_for(**({} if model is None else {"model": model})) == task


def test_the_task_of_a_yaml_is_that_of_its_head(tmp_path):
    for head, task in (("Detect", "detect"), ("Classify", "classify")):
        (tmp_path / "my.yaml").write_text(f"layers:\n  - [-1, 1, Conv, [8, 3, 2]]\n  - [-1, 1, {head}, []]\n")
        assert task_for(model=str(tmp_path / "my.yaml")) == task


def test_without_a_model_the_task_is_that_of_the_data(tmp_path, tiny_yolo):
    assert task_for(data=str(tiny_yolo(2))) == "detect"
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "train" / name / "1.png").touch()
    assert task_for(data=str(tmp_path)) == "classify"
    assert task_for(data=str(tmp_path), data_format="yolo") == "detect"
    assert task_for(data=str(tmp_path), model="det-n") == "detect"
    assert task_for(data=str(tmp_path / "gone")) == "detect"


def test_a_task_that_is_not_the_models_is_refused():
    with pytest.raises(ConfigError, match="task = detect: model = 'resnet18' is for classify; leave one of them out"):
        task_for(task="detect", model="resnet18")


def test_keys_that_have_no_effect_on_the_task_are_told_with_a_task_that_is_not_the_models():
    with pytest.raises(ConfigError) as caught:
        task_for(task="detect", model="resnet18", erasing=0.5, mosaic=0.5)
    assert [fault.split(" ")[0] for fault in caught.value.faults] == ["task", "erasing:"]


def test_keys_of_another_task_are_refused_all_at_once_but_may_stand_in_a_file(tmp_path):
    with pytest.raises(ConfigError) as caught:
        task_for(model="cls-n", mosaic=0.5, box=1.0, epochs=3)
    assert sorted(fault.split(":")[0] for fault in caught.value.faults) == ["box", "mosaic"]
    assert "it is for detect; leave it out" in str(caught.value)
    (tmp_path / "cfg.yaml").write_text("mosaic: 0.5\nmodel: cls-n\n")
    assert task_for(cfg=str(tmp_path / "cfg.yaml")) == "classify"


def test_a_network_that_is_not_known_is_refused_with_the_nearest():
    with pytest.raises(
        ConfigError, match="is neither a network's name nor a YAML file's path; the nearest are resnet1"
    ):
        task_for(model="resnet19")
