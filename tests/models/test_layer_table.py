"""The rows of a network: every parameter once, shapes as they come out, numbers as `freeze` counts."""

import pytest
import torch

from visiontrain.models.anatomy import anatomy_of
from visiontrain.models.build import build_network
from visiontrain.models.classifiers import build_classifier
from visiontrain.models.detectors import build_detector
from visiontrain.models.layer_table import HEADER, layer_rows

NAMES = ("a", "b", "c")
BUILT = {
    "det-n": (build_detector, 64),
    "det-mobilenet_v3_small": (build_detector, 64),
    "cls-n": (build_classifier, 32),
    "shufflenet_v2_x0_5": (build_classifier, 64),
}


@pytest.mark.parametrize("name", BUILT)
def test_the_rows_hold_every_parameter_once_and_are_the_layers_that_freeze_counts(name):
    build, imgsz = BUILT[name]
    network = build(name, NAMES)
    rows = layer_rows(network, imgsz)
    assert sum(row.parameters for row in rows) == sum(parameter.numel() for parameter in network.parameters())
    assert [row.index for row in rows] == list(range(len(anatomy_of(network).layers)))
    assert rows[0].sources == (-1,)
    assert all(source < row.index for row in rows for source in row.sources)
    assert all(row.shapes and len(row.cells()) == len(HEADER) for row in rows)


def test_a_row_tells_what_its_file_says_and_what_comes_out():
    rows = layer_rows(build_detector("det-n", NAMES), 64)
    assert rows[0].cells() == ("0", "images", "Conv", "64, 3, 2", f"{3 * 16 * 9 + 2 * 16:,}", "16×32×32")
    assert (rows[4].kind, rows[4].arguments) == ("CSPStage × 2", "256, True")  # of four, at half the depth
    assert rows[11].cells()[1:4] == ("10, 6", "Concat", "")
    assert rows[-1].sources == (15, 18, 21)
    places = 8 * 8 + 4 * 4 + 2 * 2
    assert rows[-1].shapes == ((places, 4 * 16), (places, len(NAMES)))


def test_rows_of_a_network_of_torchvision_have_the_arguments_of_torchs_layers():
    rows = layer_rows(build_classifier("resnet18", NAMES), 64)
    assert rows[0].cells() == ("0", "images", "Conv2d", "3, 64, 7, 2", "9,408", "64×32×32")
    assert rows[-1].cells() == ("10", "9", "Linear", "512, 3", f"{513 * 3:,}", "3")


def test_rows_behind_parts_of_torchvision_read_the_last_of_their_layers():
    network = build_detector("det-resnet18", NAMES)
    rows = layer_rows(network, 64)
    first = next(row for row in rows if row.kind == "Conv")
    assert first.sources == (first.index - 1,)
    joined = next(row for row in rows if row.kind == "Concat")  # with the map of stride 16
    assert rows[joined.sources[1]].shapes == ((256, 4, 4),)
    assert rows[joined.sources[1] + 1].shapes == ((512, 2, 2),)


def test_asking_leaves_the_network_as_it_was():
    network = build_network("det-n", NAMES).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    layer_rows(network, 64)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert network.training
    assert not any(module._forward_hooks for module in network.modules())
