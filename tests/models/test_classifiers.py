from pathlib import Path

import pytest
import torch

from visiontrain.errors import ConfigError
from visiontrain.models.classifiers import build_classifier, classifier_names
from visiontrain.models.network import LayerGraph
from visiontrain.models.torchvision_models import TorchvisionNetwork

NAMES = ("a", "b", "c")
TINY = """
layers: [[-1, 1, Conv, [16, 3, 2]], [-1, 1, Conv, [16, 3, 2]], [-1, 1, Classify, [32]]]
"""


def test_a_name_is_one_of_ours_or_of_torchvision():
    assert isinstance(build_classifier("cls-n", NAMES, imgsz=64), LayerGraph)
    for spec in ("squeezenet1_1", Path("squeezenet1_1")):
        assert isinstance(build_classifier(spec, NAMES, imgsz=64), TorchvisionNetwork)
    assert {"cls-n", "cls-x", "resnet18"} <= set(classifier_names())
    assert not any(name.startswith("det-") for name in classifier_names())


@pytest.mark.parametrize("spec", ["own.yaml", "squeezenet1_1"])
def test_what_is_chosen_goes_into_the_description_which_makes_the_network_again(tmp_path, spec):
    (tmp_path / "own.yaml").write_text(TINY, encoding="utf-8")
    given = tmp_path / spec if spec.endswith(".yaml") else spec
    network = build_classifier(given, NAMES, imgsz=64, dropout=0.25, multi_label=True)
    twin = build_classifier(network.description, NAMES)
    assert twin.description == network.description
    assert (twin.multi_label, twin.description["multi_label"], twin.description["dropout"]) == (True, True, 0.25)
    assert [m.p for m in twin.modules() if isinstance(m, torch.nn.Dropout)] == [0.25]
    assert not build_classifier(given, NAMES).multi_label


@pytest.mark.parametrize(
    ("spec", "imgsz", "message"),
    [
        ("cls-n", 100, "imgsz = 100 is not a multiple of the network's largest stride, 32; use 96 or 128"),
        ("squeezenet1_1", 16, "is too small for squeezenet1_1"),
        ("cls-q", 96, "is neither a classifier's name nor a YAML file's path; the nearest are cls-"),
        ("resnet-18", 96, "the nearest are resnet18"),
        ("nothing like it", 96, "choose cls-n to cls-x or a name of torchvision's"),
        ("det-n", 96, "model = 'det-n': is no classifier; name one such as cls-n"),
        ("missing.yaml", 96, "cannot be read"),
    ],
)
def test_what_is_no_classifier_or_takes_no_such_images_is_refused(spec, imgsz, message):
    with pytest.raises(ConfigError, match=message):
        build_classifier(spec, NAMES, imgsz=imgsz)


def test_the_file_of_a_detector_is_refused(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("layers: [[-1, 1, Conv, [16, 3, 2]], [-1, 1, Detect, []]]", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"own\.yaml'?: is a network for 'detect'; name a classifier"):
        build_classifier(path, NAMES)
