"""Which weights torchvision offers is read from its source; that they are missing is told before torch is loaded."""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.error import URLError

import pytest
import torch
import torchvision

from visiontrain.cli import main
from visiontrain.errors import ConfigError
from visiontrain.models.offered import check_at_hand, check_reachable, hub_folder, kept_file, offered_url
from visiontrain.models.torchvision_models import torchvision_names

URL = torchvision.models.get_model_weights("resnet18").DEFAULT.url


@pytest.fixture
def asked(monkeypatch):
    """The addresses that were asked for; nobody answers."""
    urls = []

    def fail(url):
        urls.append(url)
        raise OSError("no route to host")

    monkeypatch.setattr("visiontrain.models.offered.check_reachable", fail)
    return urls


def test_what_the_source_says_is_what_torchvision_says():
    offered = {name: torchvision.models.get_model_weights(name).DEFAULT.url for name in torchvision_names()}
    assert {name: offered_url(name) for name in offered} == offered


@pytest.mark.parametrize("name", ["", "resnet19", "det-n", "_resnet", "ResNet", "resnet.18", "("])
def test_of_a_name_that_is_none_of_torchvisions_nothing_is_said(name, asked, tmp_path):
    assert offered_url(name) is None
    check_at_hand(name, hub=tmp_path)
    assert asked == []


def test_source_that_is_written_otherwise_says_nothing(tmp_path, monkeypatch):
    models = tmp_path / "torchvision" / "models"
    models.mkdir(parents=True)
    (models / "a.py").write_text("def one(weights=None): ...\ndef two(*, weights: Optional[None] = None): ...\n")
    (models / "b.py").write_text(
        "class W:\n    V1 = load()\n    DEFAULT = V1\ndef three(*, weights: Optional[W] = None): ...\n"
        "class X:\n    DEFAULT, V1 = 1, 2\ndef four(*, weights: Optional[X] = None): ...\n"
    )
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path / "torchvision")]})
    monkeypatch.setattr("visiontrain.models.offered.find_spec", lambda name: spec)
    assert [offered_url(name) for name in ("one", "two", "three", "four")] == [None] * 4
    monkeypatch.setattr("visiontrain.models.offered.find_spec", lambda name: None)
    assert offered_url("one") is None


@pytest.mark.parametrize("variables", [{}, {"XDG_CACHE_HOME": "/c"}, {"XDG_CACHE_HOME": "/c", "TORCH_HOME": "~/t"}])
def test_the_folder_is_that_of_torch(variables, monkeypatch):
    for key in ("XDG_CACHE_HOME", "TORCH_HOME"):
        monkeypatch.delenv(key, raising=False)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    assert str(hub_folder()) == torch.hub.get_dir()


def test_a_file_that_is_missing_and_cannot_be_fetched_is_named_with_its_place(asked, tmp_path):
    with pytest.raises(ConfigError, match=r"the weights of resnet18 are missing .*no route to host") as caught:
        check_at_hand("det-resnet18", hub=tmp_path)
    (fault,) = caught.value.faults
    assert f"download {URL} on another machine and put it into {tmp_path}" in fault
    assert f"{os.sep}checkpoints as resnet18-" in fault
    assert asked == [URL]
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_asked_of_nobody(asked, tmp_path):
    file = kept_file(URL, tmp_path)
    file.parent.mkdir(parents=True)
    file.touch()
    check_at_hand("resnet18", hub=tmp_path)
    assert asked == []


@pytest.mark.parametrize(
    ("model", "task"), [("resnet18", "detect"), ("det-resnet18", "classify"), ("det-vit_b_16", None)]
)
def test_a_network_that_is_not_for_the_task_has_another_fault(model, task, asked, tmp_path):
    check_at_hand(model, task, hub=tmp_path)
    assert asked == []


@pytest.mark.parametrize("model", ["resnet18", "det-resnet18"])
def test_the_command_ends_before_it_begins(model, asked, tmp_path, monkeypatch, capsys):
    """What it would run is out of reach, and with it torch."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setitem(sys.modules, "visiontrain.run.train", None)
    assert main(["train", f"model={model}", "pretrained=True"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("visiontrain train: pretrained = True: the weights of resnet18 are missing")
    assert Path(URL).name in line
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_wait_is_bounded(monkeypatch):
    ended = Event()

    def hang(*_, **__):
        ended.wait(60)
        raise URLError("too late")

    monkeypatch.setattr("visiontrain.models.offered.urlopen", hang)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 s"):
        check_reachable(URL, seconds=0.1)
    ended.set()


def test_a_server_that_answers_anything_is_reachable():
    class Refusing(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(403)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.handle_request, daemon=True).start()
        check_reachable(f"http://127.0.0.1:{server.server_port}/weights.pth")
