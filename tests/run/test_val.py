"""Scoring trained weights."""

from __future__ import annotations

import json

import pytest

from visiontrain.config.load import load_config
from visiontrain.errors import CheckpointError, ConfigError, DataError
from visiontrain.run.val import val, val_run


def settings(trained, tmp_path, **keys):
    return load_config("val", python={"model": str(trained.best), "save_dir": str(tmp_path / "scored"), **keys})


def test_one_json_document_is_all_that_is_printed(trained, tmp_path, capsys):
    val(settings(trained, tmp_path, json=True, plots=False))
    printed = json.loads(capsys.readouterr().out)
    assert "metrics/mAP50-95(B)" in printed
    assert "val/box_loss" in printed


def test_pictures_and_a_table_come_with_it(trained, tmp_path, capsys):
    val(settings(trained, tmp_path))
    assert list((tmp_path / "scored").glob("val_batch*_pred.jpg"))
    printed = capsys.readouterr().out
    assert "mAP50-95" in printed
    assert "green" in printed


def test_another_split_can_be_scored(trained, tmp_path):
    found = val_run(settings(trained, tmp_path, split="train", plots=False, quiet=True))
    assert found.metrics.images == 8
    with pytest.raises(DataError, match="names no images for test"):
        val_run(settings(trained, tmp_path, split="test"))


def test_other_class_names_are_refused(trained, tmp_path, tiny_yolo):
    other = tiny_yolo(2, folder="other")
    other.write_text(other.read_text(encoding="utf-8").replace("green", "blue"), encoding="utf-8")
    with pytest.raises(ConfigError, match="its classes are red, blue; those of the weights are red, green"):
        val_run(settings(trained, tmp_path, data=str(other)))


@pytest.mark.parametrize("model", [None, "det-n"])
def test_a_network_without_weights_is_refused(tmp_path, model):
    keys = {} if model is None else {"model": model}
    with pytest.raises(ConfigError, match=r"name trained weights, such as"):
        val_run(load_config("val", python=keys))


def test_a_damaged_file_is_refused(trained, tmp_path):
    content = bytearray(trained.best.read_bytes())
    content[len(content) // 2] ^= 1
    trained.best.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        val_run(settings(trained, tmp_path))
    assert not (tmp_path / "scored").exists()
