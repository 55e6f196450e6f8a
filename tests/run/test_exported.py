"""An ONNX file in the place of weights: what it gives, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.errors import CheckpointError, ConfigError
from visiontrain.export.onnx_network import OnnxNetwork, read_metadata
from visiontrain.model import Model
from visiontrain.models.classifiers import build_classifier
from visiontrain.run.export import export_run
from visiontrain.run.val import val_run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

# What a file of a detector of one level tells, and a graph that gives two boxes at fixed places of any images.
METADATA = {
    "task": "detect",
    "names": '["red", "green"]',
    "strides": "[32]",
    "imgsz": "64",
    "dynamic": "true",
    "multi_label": "false",
    "nms": "null",
    "args": '{"imgsz": 64}',
}
GRAPH = """
<ir_version: 10, opset_import: ["" : 18]>
planted (float[B, 3, H, W] images) => (float[B, 2, 4] boxes, float[B, 2, 2] scores)
<float[1, 2, 4] two_boxes = {4, 4, 20, 20, 30, 30, 60, 60}, float[1, 2, 2] two_scores = {0.9, 0.1, 0.2, 0.6},
 int64[1] first = {0}, int64[2] rest = {1, 1}>
{
    shape = Shape (images)
    batch = Gather <axis = 0> (shape, first)
    target = Concat <axis = 0> (batch, rest)
    boxes = Expand (two_boxes, target)
    scores = Expand (two_scores, target)
}
"""
SUPPRESSED = """
<ir_version: 10, opset_import: ["" : 18]>
planted (float[1, 3, H, W] images) => (float[1, 3, 6] detections)
<float[1, 3, 6] found = {4, 4, 20, 20, 0.9, 0, 30, 30, 60, 60, 0.6, 1, 0, 0, 0, 0, 0, 0}>
{ detections = Identity (found) }
"""


@pytest.fixture
def write_onnx(tmp_path):
    def write(graph=GRAPH, **changed):
        model = onnx.parser.parse_model(graph)
        for key, value in {**METADATA, **changed}.items():
            if value is not None:
                model.metadata_props.add(key=key, value=value)
        path = tmp_path / "planted.onnx"
        onnx.save(model, path)
        return path

    return write


def test_a_file_tells_what_it_is(write_onnx):
    metadata = read_metadata(write_onnx())
    assert (metadata.task, metadata.names, metadata.strides, metadata.imgsz) == ("detect", ("red", "green"), (32,), 64)
    assert metadata.suppression is None


def test_it_predicts_as_weights_do(write_onnx):
    image = np.zeros((64, 128, 3), np.uint8)
    results = Model(write_onnx()).predict([image, image], batch=2, quiet=True)
    for found in results:
        assert found.boxes.conf.tolist() == pytest.approx([0.9, 0.6])
        assert found.boxes.cls.tolist() == [0, 1]
        assert found.boxes.xyxy[0].tolist() == pytest.approx([8, 8 - 0, 40, 40], abs=1e-4)
        assert found.names == {0: "red", 1: "green"}


def test_it_is_scored_as_weights_are_but_has_no_losses(write_onnx, tiny_yolo, tmp_path):
    keys = {"model": str(write_onnx()), "data": str(tiny_yolo(2)), "plots": False, "save_dir": str(tmp_path / "val")}
    found = val_run(load_config("val", python=keys))
    assert found.metrics.images == 2
    assert found.losses == {}


def test_the_classes_of_the_data_must_be_those_of_the_file(write_onnx, tiny_yolo, tmp_path):
    keys = {"model": str(write_onnx(names='["cat", "dog"]')), "data": str(tiny_yolo(2))}
    with pytest.raises(ConfigError, match="its classes are red, green; those of the weights are cat, dog"):
        val_run(load_config("val", python=keys))


def test_a_file_of_one_size_is_given_squares_of_it_and_no_other(write_onnx):
    path = write_onnx(dynamic="false")
    (found,) = Model(path).predict(np.zeros((64, 128, 3), np.uint8), quiet=True)
    assert found.boxes.xyxy[0].tolist() == pytest.approx([8, 0, 40, 8], abs=1e-4)  # 16 pixels of padding are above
    with pytest.raises(ConfigError, match=r"was exported for images of 64 pixels .* use imgsz=64, or export it with"):
        Model(path).predict(np.zeros((64, 64, 3), np.uint8), imgsz=96)


NMS = json.dumps({"conf": 0.25, "iou": 0.7, "max_det": 3})


def test_suppression_inside_is_taken_as_it_is(write_onnx):
    path = write_onnx(SUPPRESSED, nms=NMS)
    image = np.zeros((64, 64, 3), np.uint8)
    (found,) = Model(path).predict(image, quiet=True)
    assert found.boxes.conf.tolist() == pytest.approx([0.9, 0.6])
    (found,) = Model(path).predict(image, conf=0.7, quiet=True)
    assert found.boxes.cls.tolist() == [0]
    (found,) = Model(path).predict(image, classes=[1], quiet=True)
    assert found.boxes.cls.tolist() == [1]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"iou": 0.5}, "iou: has no effect on a file that was exported with nms=True"),
        ({"conf": 0.1}, "conf = 0.1: the file was exported with nms=True and conf=0.25"),
        ({"amp": True}, "amp = True: has no effect on an exported file"),
        ({"device": "cuda"}, "device = 'cuda': exported files are run on the processor"),
    ],
)
def test_what_was_decided_at_export_cannot_be_typed(write_onnx, keys, fault):
    with pytest.raises(ConfigError, match=fault):
        Model(write_onnx(SUPPRESSED, nms=NMS)).predict(np.zeros((64, 64, 3), np.uint8), **keys)


def test_suppression_inside_cannot_be_scored(write_onnx, tiny_yolo):
    with pytest.raises(ConfigError, match="was exported with nms=True and gives no scores to be ranked"):
        Model(write_onnx(SUPPRESSED, nms=NMS)).val(data=str(tiny_yolo(2)))


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"names": None, "strides": None}, "its metadata lack names, strides: another program wrote it"),
        ({"names": "no JSON"}, "its metadata cannot be read"),
        ({"nms": '{"other": 1}'}, "its metadata cannot be read"),
    ],
)
def test_a_file_of_another_program_is_refused(write_onnx, changed, fault):
    with pytest.raises(CheckpointError, match=fault):
        read_metadata(write_onnx(**changed))


def test_a_damaged_or_missing_file_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="is not there"):
        read_metadata(tmp_path / "gone.onnx")
    (tmp_path / "cut.onnx").write_bytes(b"\x08\x0a\x12\x07")
    with pytest.raises(CheckpointError, match="ONNX Runtime cannot load it"):
        read_metadata(tmp_path / "cut.onnx")


def exported(weights, **keys):
    return export_run(load_config("export", python={"model": str(weights), "quiet": True, **keys}))


@pytest.mark.slow  # torch takes ten seconds and more to write ONNX, however small the network
def test_an_onnx_file_is_scored_as_its_weights_are(two_level_detector, write_weights, tiny_yolo, tmp_path):
    data = tiny_yolo(4)
    weights = write_weights(two_level_detector, data=data)
    found = exported(weights, nms=False)
    assert found.is_passed
    model = onnx.load(found.path)
    assert {entry.key for entry in model.metadata_props} >= set(METADATA) | {"normalization", "network_sha256", "opset"}
    assert b"site-packages" not in found.path.read_bytes()
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["images", "boxes", "scores"]
    keys = {"data": str(data), "plots": False, "amp": False, "quiet": True}
    ours = Model(weights).val(save_dir=str(tmp_path / "ours"), **keys)
    theirs = Model(found.path).val(save_dir=str(tmp_path / "theirs"), **{**keys, "amp": "auto"})
    for name in ours:
        assert theirs[name] == pytest.approx(ours[name], abs=1e-3)
    images = torch.randint(0, 256, (3, 3, 64, 96), dtype=torch.uint8)  # another shape and number
    outputs = OnnxNetwork(found.path)(images)
    torch.testing.assert_close(outputs["scores"], two_level_detector(images).class_logits.sigmoid())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["det-n", "det-resnet18", "cls-n", "resnet18"])
@pytest.mark.parametrize("format", ["onnx", "torchscript", "exported_program"])
def test_real_networks_give_the_same_on_ten_real_images(model, format, write_weights, test_data):
    from visiontrain.models.detectors import build_detector

    names = ("rbc", "wbc", "platelets")
    network = build_detector(model, names) if model.startswith("det-") else build_classifier(model, names)
    weights = write_weights(network)
    found = exported(weights, format=format)
    assert {(each.batch) for each in found.differences} == {1, 4}
    assert all(each.relative <= 1e-4 for each in found.differences)


@pytest.mark.slow
def test_suppression_in_the_graph_of_a_detector_passes_the_gate(write_weights):
    from visiontrain.models.build import build_network

    weights = write_weights(build_network("det-n", ("red", "green")))
    found = exported(weights, nms=True, conf=0.1, dynamic=False)
    assert found.is_passed
    assert "detections" in {each.output for each in found.differences}
    assert Model(found.path).predict(np.zeros((64, 64, 3), np.uint8), quiet=True)
