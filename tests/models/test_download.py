"""Weights of torchvision from its cache folder, and what is said where they cannot be had."""

from __future__ import annotations

from http.client import IncompleteRead
from urllib.error import URLError

import pytest
import torch
import torchvision

from visiontrain.errors import ConfigError
from visiontrain.models.download import cached_file, torchvision_weights

NAME = "shufflenet_v2_x0_5"
URL = torchvision.models.get_model_weights(NAME).DEFAULT.url


@pytest.fixture(autouse=True)
def torch_home(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tmp_path / "torch"


def test_a_file_that_torch_keeps_is_taken_without_asking_anybody(torch_home, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("asked the internet")

    monkeypatch.setattr("visiontrain.models.offered.urlopen", refuse)
    monkeypatch.setattr("torch.hub.urlopen", refuse)
    file = cached_file(URL)
    assert file.parent == torch_home / "hub" / "checkpoints"
    file.parent.mkdir(parents=True)
    torch.save({"weight": torch.ones(2)}, file)
    assert torch.equal(torchvision_weights(NAME)["weight"], torch.ones(2))


def test_a_damaged_file_is_named_with_the_way_out():
    file = cached_file(URL)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no weights")
    with pytest.raises(ConfigError, match=r"shufflenetv2_x0\.5-f707e7126e\.pth is damaged, .*; remove it"):
        torchvision_weights(NAME)


@pytest.mark.parametrize(
    "error", [URLError("no route"), TimeoutError("too slow"), RuntimeError("invalid hash value"), IncompleteRead(b"")]
)
def test_weights_that_cannot_be_fetched_are_told_in_one_line_with_the_file_and_its_place(monkeypatch, error):
    def fail(url, **_):
        raise error

    monkeypatch.setattr("visiontrain.models.download.check_reachable", lambda url: None)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail)
    with pytest.raises(
        ConfigError, match=r"could not be fetched .*; download https://.* into .*checkpoints as .*pretrained=file.pth"
    ) as caught:
        torchvision_weights(NAME)
    (fault,) = caught.value.faults
    assert NAME in fault
    assert "\n" not in fault
