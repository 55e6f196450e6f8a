"""Exporting trained weights: the gate, the file, and running it again."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.export import formats, packages
from visiontrain.model import Model
from visiontrain.models.classifiers import build_classifier
from visiontrain.models.torchvision_models import build_torchvision
from visiontrain.run.export import CHECK_FAILED, ExportError, export, export_run

NAMES = ("red", "green")


def settings(weights, **keys):
    return load_config("export", python={"model": str(weights), **keys})


@pytest.fixture
def weights(two_level_detector, write_weights, tiny_yolo):
    return write_weights(two_level_detector, data=tiny_yolo(3))


def test_a_torchscript_file_gives_what_the_network_gives(weights, two_level_detector, capsys):
    found = export_run(settings(weights, format="torchscript"))
    assert found.is_passed
    assert found.path == weights.with_suffix(".torchscript")
    assert {(each.output, each.batch) for each in found.differences} == {
        (output, batch) for output in ("boxes", "scores") for batch in (1, 4)
    }
    extra = {formats.METADATA_FILE: ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's wish that everybody took torch.export
        module = torch.jit.load(found.path, _extra_files=extra)
    images = torch.rand(3, 3, 64, 96)
    boxes, scores = module(images)
    outputs = two_level_detector(images)
    torch.testing.assert_close(scores, outputs.class_logits.sigmoid())
    assert boxes.shape == (3, (64 * 96 // 64 + 64 * 96 // 256), 4)
    assert json.loads(json.loads(extra[formats.METADATA_FILE])["names"]) == list(NAMES)
    assert "boxes" in capsys.readouterr().out
    assert [path.name for path in weights.parent.iterdir() if path.name.startswith(".")] == []


def test_weights_alone_are_written_as_safetensors(weights, two_level_detector):
    safetensors = pytest.importorskip("safetensors")
    found = export_run(settings(weights, format="safetensors", quiet=True))
    with safetensors.safe_open(found.path, framework="pt") as file:
        assert set(file.keys()) == set(two_level_detector.state_dict())
        assert json.loads(file.metadata()["network"]) == json.loads(json.dumps(two_level_detector.description))


@pytest.fixture
def planted(monkeypatch):
    """A function that puts an error into what is written as TorchScript."""

    def plant(change):
        original = formats.FORMATS["torchscript"]

        def write(program, path, metadata):
            original.write(change(program), path, metadata)

        monkeypatch.setitem(formats.FORMATS, "torchscript", replace(original, write=write))

    return plant


class Swapped(torch.nn.Module):
    """Takes BGR."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, images):
        return self.module(images.flip(1))


def with_module(module_of):
    def change(program):
        changed = replace(program)
        changed.__dict__["module"] = module_of(program)
        return changed

    return change


def test_a_planted_error_ends_with_3_and_leaves_no_file(weights, planted, capsys):
    planted(with_module(lambda program: Swapped(program.module)))
    before = sorted(weights.parent.iterdir())
    assert export(settings(weights, format="torchscript")) == CHECK_FAILED
    assert sorted(weights.parent.iterdir()) == before
    assert "FAILED: the file does not give what the network gives" in capsys.readouterr().out
    assert export(settings(weights, format="torchscript", json=True)) == CHECK_FAILED
    document = json.loads(capsys.readouterr().out)
    assert (document["passed"], document["file"]) == (False, None)
    with pytest.raises(ExportError, match="does not give what the network gives"):
        Model(weights).export(format="torchscript")


def test_a_missing_normalization_is_caught(write_weights, planted, tiny_folders):
    network = build_torchvision("squeezenet1_1", NAMES)
    weights = write_weights(network, data=tiny_folders(2))

    class Unprepared(torch.nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, images):
            return (self.network(images).softmax(dim=1),)

    assert export_run(settings(weights, format="torchscript", quiet=True)).is_passed
    planted(with_module(lambda program: Unprepared(program.network.network)))
    assert not export_run(settings(weights, format="torchscript", quiet=True)).is_passed


def test_an_earlier_file_stays_when_the_check_fails(weights, planted):
    target = export_run(settings(weights, format="torchscript", quiet=True)).path
    earlier = target.read_bytes()
    planted(with_module(lambda program: Swapped(program.module)))
    export(settings(weights, format="torchscript", quiet=True))
    assert target.read_bytes() == earlier


def test_where_the_data_are_gone_the_bundled_sample_is_taken(two_level_detector, write_weights, tmp_path, capsys):
    weights = write_weights(two_level_detector, data=tmp_path / "gone.yaml")
    assert export_run(settings(weights, format="safetensors")).is_passed
    printed = capsys.readouterr()
    assert "the bundled sample is taken instead" in printed.err
    assert "10 images of the bundled sample" in printed.out


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"format": "torchscript", "opset": 18}, "opset: has no effect on format=torchscript, only on onnx"),
        ({"format": "torchscript", "nms": True}, "nms: has no effect on format=torchscript"),
        ({"format": "safetensors", "dynamic": True}, "dynamic: has no effect on format=safetensors"),
        ({"conf": 0.5}, "conf: has an effect only with nms=True"),
        ({"data": "gone.yaml"}, "gone.yaml"),
        ({"imgsz": 65}, "imgsz = 65 is not a multiple"),
    ],
)
def test_what_has_no_effect_is_refused(weights, keys, fault):
    from visiontrain.errors import UserError

    with pytest.raises(UserError, match=fault):
        export_run(settings(weights, **keys))
    assert [path.name for path in weights.parent.iterdir()] == ["best.pt"]


def test_a_classifier_has_no_suppression(write_weights, small_classifier):
    weights = write_weights(build_classifier(small_classifier, NAMES))
    with pytest.raises(ConfigError, match="nms: has no effect on classify"):
        export_run(settings(weights, nms=True))


def test_a_network_without_weights_is_refused():
    with pytest.raises(ConfigError, match="name trained weights"):
        export_run(load_config("export", python={"model": "det-n"}))


def test_a_missing_package_is_named_before_anything_is_read(monkeypatch):
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs onnx, onnxscript, onnxruntime, which are not installed; pip install"):
        export_run(load_config("export", python={"model": "gone.pt"}))


@pytest.mark.parametrize("mode", ["train", "verify", "export"])
def test_modes_that_need_weights_refuse_an_exported_file(mode):
    from visiontrain.run.choose_task import with_task

    with pytest.raises(ConfigError, match=f"which val, compare and predict take; {mode} needs the weights"):
        with_task(load_config(mode, python={"model": "best.onnx"}))
