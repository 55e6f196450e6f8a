from __future__ import annotations

import csv
from dataclasses import replace

import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.ema import Ema
from visiontrain.errors import ConfigError
from visiontrain.models.classifiers import build_classifier
from visiontrain.models.detectors import build_detector
from visiontrain.run import compiling
from visiontrain.run.compiling import check_compile, compile_
from visiontrain.run.train import train_run

CPU = DeviceSetup(torch.device("cpu"), threads=1, workers=0)


def asked(**keys):
    return load_config("train", python={"compile": True, **keys})


def test_all_that_stands_in_the_way_is_told_at_once(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError) as refused:
        check_compile(asked(checkpoint_activations=True), CPU)
    one, other = refused.value.faults
    assert "leave out compile or checkpoint_activations" in one
    assert "compile: needs a C++ compiler (g++, c++, clang++, cl)" in other


def test_the_compiler_is_the_one_that_a_variable_names(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    compiler = tmp_path / "mine"
    compiler.touch(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    check_compile(asked(), CPU)
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="none is in PATH"):
        check_compile(asked(), CPU)


def test_a_metal_device_is_refused():
    with pytest.raises(ConfigError, match="does not support Metal"):
        check_compile(asked(), replace(CPU, device=torch.device("mps")))


def test_a_machine_without_a_compiler_trains_as_long_as_nobody_asks_for_one(monkeypatch):
    monkeypatch.setattr(compiling, "CXX_COMPILERS", ())
    check_compile(load_config("train"), CPU)


def test_a_compiled_network_has_plain_names_and_plain_copies():
    network = build_detector("det-n", ("a",))
    names = list(network.state_dict())
    compile_(network)
    assert list(network.state_dict()) == names
    assert network._compiled_call_impl is not None
    assert Ema(network).model._compiled_call_impl is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [lambda: build_detector("det-n", ("a", "b")), lambda: build_classifier("cls-n", ("a", "b"), imgsz=64)]
)
def test_the_passes_are_one_graph(network):
    built = network().train()
    explained = torch._dynamo.explain(built)(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    assert explained.graph_break_count == 0
    assert explained.graph_count == 1


@pytest.mark.slow
def test_a_compiled_run_learns_what_a_plain_one_learns(tiny_folders, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    model = tmp_path / "three_layers.yaml"
    model.write_text("task: classify\nlayers:\n  - [-1, 1, Conv, [8, 3, 4]]\n  - [-1, 1, Classify, []]\n")
    keys = {"data": str(tiny_folders(4)), "task": "classify", "model": str(model), "imgsz": 32, "batch": 2, "nbs": 4}
    keys |= {"epochs": 1, "amp": False, "plots": False, "quiet": True, "optimizer": "SGD", "warmup_epochs": 0}
    rows = []
    for is_compiled in (False, True):
        folder = tmp_path / f"{is_compiled}"
        train_run(load_config("train", python={**keys, "compile": is_compiled, "save_dir": str(folder)}))
        with (folder / "results.csv").open(newline="") as file:
            (row,) = csv.DictReader(file)
        rows.append([float(row[name]) for name in ("train/loss", "val/loss")])
    assert rows[0] == pytest.approx(rows[1], rel=1e-5)
    assert any((tmp_path / "inductor").rglob("*.so"))
