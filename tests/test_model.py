"""The facade."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from visiontrain import ConfigError, Model
from visiontrain.errors import CheckpointError


def test_training_leaves_the_model_with_the_best_weights(tiny_yolo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = Model("det-n")
    result = model.train(data=str(tiny_yolo(4)), epochs=1, imgsz=64, batch=2, nbs=4, quiet=True, plots=False)
    assert result.save_dir == (tmp_path / "runs" / "detect" / "train").resolve()
    assert model.model == str(result.best)
    assert set(model.val(plots=False, quiet=True)) == set(result.metrics)


def test_a_model_shows_what_it_is_made_of():
    assert repr(Model()) == "Model()"
    assert repr(Model("det-n")) == "Model('det-n')"


@pytest.mark.slow
def test_verification_returns_the_document_of_the_command(tiny_yolo, capsys):
    document = Model("det-n").verify(data=str(tiny_yolo(4)), imgsz=64, batch=2, nbs=4, json=True)
    assert document["passed"]
    assert document["exact"]["rel_error"] <= 1e-9
    assert json.loads(capsys.readouterr().out)["exact"] == document["exact"]


def test_wrong_keys_are_refused_as_on_the_command_line():
    with pytest.raises(ConfigError, match=r"epoch.*epochs"):
        Model("det-n").train(epoch=3)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (5, r"^model = 5: is no name and no path; give a network's name such as 'det-n'"),
        (True, "^model = True: is no name and no path"),
        (["det-n"], r"^model = \[det-n\]: is no name and no path"),
        (b"det-n", "^model = a value of type bytes: is no name and no path"),
        ("", "^model = '' is not a name or path, or None"),
        ("det-nn", r"^model = 'det-nn': is neither a network's name .*; the nearest are det-n,"),
        ("yolo", "^model = 'yolo': is neither a network's name .*; choose one of cls-n"),
        ("gone.yaml", r"^model = 'gone\.yaml': the file cannot be read"),
    ],
)
def test_what_is_no_model_is_refused_at_once(model, says):
    with pytest.raises(ConfigError, match=says):
        Model(model)


@pytest.mark.parametrize("model", ["det-n", "resnet18", "det-resnet18", "gone.pt", Path("gone.pt"), None, "None"])
def test_names_and_weights_that_may_yet_come_are_taken(model):
    assert Model(model).model == (None if model in (None, "None") else str(model))


def test_the_page_is_that_of_the_run_that_the_weights_lie_in_unless_another_is_named(trained, tmp_path, capsys):
    page = Model(trained.best).report()
    assert page == trained.save_dir / "report.html"
    assert capsys.readouterr().out.startswith(f"report in {page}\n")
    (tmp_path / "runs" / "other" / "weights").mkdir(parents=True)
    for keys in ({"run": str(tmp_path / "runs" / "other")}, {"project": str(tmp_path / "runs")}):
        assert Model(trained.best).report(**keys) == tmp_path / "runs" / "other" / "report.html"
    assert Model().report(project=str(tmp_path)) == page
    with pytest.raises(ConfigError, match="imgsz: is not a key of report"):
        Model(trained.best).report(imgsz=64)


def test_info_counts_the_network():
    line = Model().info()
    parameters = int(re.search(r"([\d,]+) parameters", line)[1].replace(",", ""))
    gflops = float(re.search(r"([\d.]+) GFLOPs", line)[1])
    assert line.startswith("det-n: ")
    assert parameters <= 2_700_000
    assert gflops <= 6.6


def test_verbose_info_has_a_row_for_each_layer_before_the_line(capsys):
    text = Model("det-n").info(64, verbose=True)
    header, *rows, line = text.splitlines()
    assert header.split() == ["from", "layer", "arguments", "parameters", "output"]
    assert len(rows) == 23
    assert line == Model("det-n").info(64)
    assert capsys.readouterr().out.startswith(text)
    with pytest.raises(ConfigError, match="imgsz = 100 is not a multiple"):
        Model("det-n").info(100)


def test_only_weights_can_be_exported_and_saved(tmp_path):
    with pytest.raises(ConfigError, match="name trained weights"):
        Model("det-n").export(format="torchscript")
    with pytest.raises(ConfigError, match="model = 'det-n': has no weights to save"):
        Model("det-n").save(tmp_path / "saved.pt")
    assert not list(tmp_path.iterdir())


def test_saved_weights_are_loaded_again(tmp_path, write_weights, two_level_detector):
    weights = write_weights(two_level_detector)
    saved = Model(weights).save(tmp_path / "new" / "saved.pt")
    assert saved.read_bytes() == weights.read_bytes()
    model = Model()
    assert model.load(saved) is model
    assert model.model == str(saved)
    saved.write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        Model().load(saved)


def test_plan_and_check_give_the_documents_of_the_command_line(tiny_yolo, small_network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = str(tiny_yolo(6))
    model = Model(small_network)
    planned = model.plan(data=data, imgsz=64, epochs=2, batch=2, nbs=4)
    assert (planned["images"], planned["accumulate"]) == (6, 2)
    assert not (tmp_path / "runs").exists()
    found = model.check(data=data, imgsz=64, quiet=True, save_dir=str(tmp_path / "check"))
    assert found["splits"]["train"]["images"] == 6
    assert (tmp_path / "check" / "check.html").is_file()
