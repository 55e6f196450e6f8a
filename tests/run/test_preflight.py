"""A network or a data set that is not there is told at once, all faults together."""

from __future__ import annotations

import pytest

from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.run.preflight import check_named


def faults_of(mode, **keys):
    with pytest.raises(ConfigError) as caught:
        check_named(load_config(mode, python=keys))
    return [fault.split(":")[0] for fault in caught.value.faults]


def test_network_and_data_are_told_together(tmp_path):
    gone = str(tmp_path / "gone")
    assert faults_of("train", model="det-k", data=gone) == ["model = 'det-k'", f"data = {gone!r}"]
    assert faults_of("plan", model=f"{gone}.yaml", data=gone) == [f"model = '{gone}.yaml'", f"data = {gone!r}"]
    assert faults_of("check", data=gone) == [f"data = {gone!r}"]


def test_both_models_of_a_comparison_are_told_under_their_own_keys():
    assert faults_of("compare", model="first", weights="second") == ["model = 'first'", "weights = 'second'"]


def test_what_is_there_passes(tmp_path, tiny_yolo, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    check_named(load_config("train", python={"model": "det-n", "data": str(tiny_yolo(1))}))
    check_named(load_config("train", python={"data": "~/tiny"}))
    check_named(load_config("train"))


def test_the_weights_to_convert_are_no_network():
    check_named(load_config("convert", python={"weights": "theirs.pkl", "model": "det-n"}))


def test_of_a_run_that_goes_on_its_reader_tells():
    check_named(load_config("train", python={"resume": "gone", "data": "gone"}))


def test_a_data_set_that_may_not_be_looked_for_is_left_to_its_reader(monkeypatch):
    def fail(path):
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.exists", fail)
    check_named(load_config("train", python={"data": "locked/data.yaml"}))
