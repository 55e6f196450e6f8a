"""A run on a backbone of torchvision's: where its weights come from, and what is said where they are missing."""

from __future__ import annotations

import pytest
import torch
import torchvision

from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.model import Model
from visiontrain.models.detectors import build_detector
from visiontrain.models.download import cached_file
from visiontrain.run.finetune import transfer_lines
from visiontrain.run.session import open_session
from visiontrain.run.verify import verify_run

BACKBONE = "mobilenet_v3_small"
STEM = "layers.0.features.0.0.weight"


@pytest.fixture(autouse=True)
def torch_home(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tmp_path / "torch"


@pytest.fixture
def kept_weights():
    """torchvision's weights, where torch keeps what it has fetched."""
    file = cached_file(torchvision.models.get_model_weights(BACKBONE).DEFAULT.url)
    file.parent.mkdir(parents=True)
    state = torchvision.models.get_model(BACKBONE, weights=None).state_dict()
    torch.save(state, file)
    return state


@pytest.fixture
def keys(tiny_yolo):
    return {
        "data": str(tiny_yolo(4)),
        "model": f"det-{BACKBONE}",
        "imgsz": 64,
        "epochs": 1,
        "batch": 2,
        "nbs": 4,
        "workers": 0,
        "plots": False,
    }


def test_pretrained_begins_with_the_weights_that_torch_keeps_and_freeze_keeps_them(keys, kept_weights):
    session = open_session(load_config("train", python={**keys, "pretrained": True, "freeze": "backbone"}))
    assert torch.equal(session.network.state_dict()[STEM], kept_weights["features.0.0.weight"])
    assert session.transfer.unused == ()
    assert not any("warning" in line for line in transfer_lines(session.transfer))
    learns = {name for name, parameter in session.network.named_parameters() if parameter.requires_grad}
    assert learns
    assert all(int(name.split(".")[1]) >= 4 for name in learns)


def test_without_the_file_and_the_internet_one_line_names_it_and_nothing_is_made(
    keys, torch_home, tmp_path, monkeypatch
):
    def fail(url):
        raise OSError("no route to host")

    monkeypatch.setattr("visiontrain.models.offered.check_reachable", fail)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        ConfigError, match=r"mobilenet_v3_small are missing and .*no route.* into .*checkpoints as "
    ) as caught:
        open_session(load_config("train", python={**keys, "pretrained": True}))
    assert len(caught.value.faults) == 1
    assert not torch_home.exists()
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before] == []


def test_the_image_size_is_a_multiple_of_the_largest_stride(keys):
    with pytest.raises(ConfigError, match="imgsz = 72 is not a multiple of the network's largest stride, 32"):
        open_session(load_config("train", python={**keys, "imgsz": 72}))


def test_the_task_is_made_of_the_name():
    assert build_detector(f"det-{BACKBONE}", ("a",)).task == "detect"


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"norm": "group"}, {"norm": "frozen", "checkpoint_activations": True}])
def test_a_run_trains_scores_and_finds_and_its_frozen_backbone_stays_to_the_bit(
    keys, kept_weights, tmp_path, monkeypatch, settings
):
    monkeypatch.chdir(tmp_path)
    model = Model(keys.pop("model"))
    result = model.train(**keys, pretrained=True, freeze="backbone", quiet=True, **settings)
    trained = torch.load(result.last, weights_only=True)["model"]
    kept = {name: tensor for name, tensor in trained.items() if int(name.split(".")[1]) < 4}
    assert len(kept) > 100
    assert all(torch.equal(tensor, kept_weights[name.split(".", 2)[2]]) for name, tensor in kept.items())
    metrics = model.val(data=keys["data"], workers=0, plots=False, quiet=True)
    assert 0 <= metrics.box.map <= 1
    assert len(list(model.predict(keys["data"].replace("data.yaml", "images/val"), save=False, quiet=True))) == 4


@pytest.mark.slow
def test_the_gradient_does_not_depend_on_how_a_window_is_cut(keys):
    assert verify_run(load_config("verify", python={**keys, "quiet": True}))["passed"]
