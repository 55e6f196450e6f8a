"""Files that users have at hand and that are no networks are told by what they are."""

from __future__ import annotations

import pytest

from visiontrain.errors import ConfigError
from visiontrain.models.description import load_description


def refused(path):
    with pytest.raises(ConfigError) as caught:
        load_description(path)
    (fault,) = caught.value.faults
    return fault


@pytest.mark.parametrize("has_best", [True, False])
def test_the_settings_of_a_run_are_one_fault_that_offers_what_was_meant(tmp_path, has_best):
    best = tmp_path / "weights" / "best.pt"
    if has_best:
        best.parent.mkdir()
        best.touch()
    path = tmp_path / "args.yaml"
    path.write_text("model: det-n\ndata: d.yaml\nepochs: 3\nbatch: 2\n")
    fault = refused(path)
    assert fault.startswith(f"model = '{path}': holds the settings of a run, not a network; type cfg={path} ")
    assert f"model={best if has_best else 'RUN/weights/best.pt'} to use what a run has trained" in fault.replace(
        "\\", "/"
    )


def test_a_data_set_is_one_fault_that_names_its_key(tmp_path):
    path = tmp_path / "data.yaml"
    path.write_text("path: .\ntrain: images\nnames: [red, green]\n")
    assert refused(path) == (
        f"model = '{path}': describes a data set, not a network; type data={path} and name a network as model"
    )


@pytest.mark.parametrize("text", ["epochs: 3\nlayer: []\n", "names: [red]\n"])
def test_of_other_files_each_key_that_is_unknown_is_a_fault(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="unknown key"):
        load_description(path)


def test_a_network_may_not_be_taken_for_settings(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("epochs: 3\nbatch: 2\nlayers: []\n")
    with pytest.raises(ConfigError, match="unknown key 'epochs'"):
        load_description(path)
