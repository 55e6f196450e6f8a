"""That a name is none is told without torch; what torchvision has is read from its source."""

from __future__ import annotations

import pytest

from visiontrain.errors import ConfigError
from visiontrain.models.classifiers import classifier_names, task_of_network
from visiontrain.models.description import network_names
from visiontrain.models.detectors import torchvision_detectors
from visiontrain.models.names import check_model, is_file, registered_names
from visiontrain.models.torchvision_models import torchvision_names


def test_what_the_source_registers_is_what_torchvision_lists():
    assert sorted(registered_names()) == sorted(torchvision_names())


def test_every_network_there_is_passes():
    for name in {*network_names(), *classifier_names(), *torchvision_detectors()}:
        check_model(name)


@pytest.mark.parametrize("name", ["best.pt", "gone.pth", "a.onnx", "weights.pkl", "w.safetensors"])
def test_of_a_file_of_weights_nothing_is_said_here(name):
    check_model(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("det-k", "the nearest are det-x, det-s and det-n"),
        ("DET-M", "the nearest are det-m"),
        ("resnet19", "the nearest are resnet18"),
        ("det-resnet19", "the nearest are det-resnet18"),
        ("det-n.yml.bak", "the nearest are det-n"),
        ("zzz", r"choose one of cls-n, .*det-x, or one of torchvision's"),
    ],
)
def test_a_name_that_is_none_is_told_with_the_nearest(name, hint):
    with pytest.raises(ConfigError, match=rf"^weights = '{name}': is neither a network's name nor .*; {hint}"):
        check_model(name, key="weights")
    with pytest.raises(ConfigError):  # nothing is refused here that would be taken later
        task_of_network(name)


def test_only_names_of_detectors_that_there_are_are_offered():
    with pytest.raises(ConfigError) as caught:
        check_model("det-alexnett")
    assert "det-alexnet" not in str(caught.value).partition("; ")[2]


def test_a_backbone_that_no_detector_can_be_on_is_left_to_whoever_knows_the_reason():
    check_model("det-vit_b_16")
    with pytest.raises(ConfigError, match="the features of vit_b_16 do not come as maps"):
        task_of_network("det-vit_b_16")


def test_the_folder_of_a_run_is_answered_with_its_weights(tmp_path):
    (tmp_path / "weights").mkdir()
    with pytest.raises(ConfigError, match="is neither a network's name"):
        check_model(str(tmp_path))
    (tmp_path / "weights" / "best.pt").touch()
    with pytest.raises(ConfigError, match=r"is the folder of a run; name its weights, model=.*weights.best\.pt"):
        check_model(str(tmp_path))


def test_a_yaml_file_is_looked_into(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.yaml': the file cannot be read"):
        check_model(str(tmp_path / "gone.yaml"))
    (tmp_path / "mine.yaml").write_text("layers: []\n")
    check_model(str(tmp_path / "mine.yaml"))


def test_without_the_source_nothing_is_refused(monkeypatch):
    monkeypatch.setattr("visiontrain.models.names.find_spec", lambda name: None)
    assert registered_names() == ()
    check_model("zzz")


def test_a_path_that_the_system_takes_for_none_is_no_file(tmp_path):
    assert not is_file(tmp_path.joinpath(*["a" * 200] * 40))
