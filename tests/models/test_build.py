from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.models.description import Scale, network_names
from visiontrain.models.layers import ConvNorm
from visiontrain.models.norm import ChannelGroupNorm

TINY: dict[str, Any] = {
    "task": "detect",
    "scales": {"a": [1.0, 1.0, 64], "b": [2.0, 0.5, 64]},
    "layers": [[-1, 1, "Conv", [16, 3, 2]], [-1, 2, "CSPStage", [32, True]], [[0, 1], 1, "Detect", []]],
}


def rows(*changed):
    return {**TINY, "layers": list(changed)}


def test_the_bundled_detector_comes_in_five_scales():
    assert set(network_names()) >= {f"det-{scale}" for scale in "nsmlx"}


@pytest.mark.parametrize("name", ["det-n", "det-s", "det-m", "det-l", "det-x"])
def test_every_scale_builds_with_strides_8_16_32(name):
    with torch.device("meta"):
        network = build_network(name, ("thing",))
        outputs = network(torch.zeros(1, 3, 64, 64))
    assert network.strides == (8, 16, 32)
    assert outputs.class_logits.shape == (1, 64 + 16 + 4, 1)


@pytest.mark.parametrize(("scale", "millions"), [("n", 1.45), ("s", 5.1), ("m", 9.1), ("l", 17.7), ("x", 27.3)])
def test_the_bundled_classifier_comes_in_five_scales(scale, millions):
    with torch.device("meta"):
        network = build_network(f"cls-{scale}", [str(index) for index in range(10)])
        assert network(torch.zeros(2, 3, 64, 96)).shape == (2, 10)
    assert (network.task, network.strides, network.multi_label) == ("classify", (32,), False)
    assert sum(param.numel() for param in network.parameters()) / 1e6 == pytest.approx(millions, rel=0.02)


def test_the_trunk_of_the_classifier_is_that_of_the_detector():
    with torch.device("meta"):
        classifier, detector = build_network("cls-n", ("a",)), build_network("det-n", ("a",))
    trunk = len(classifier.layers) - 1
    shapes = [
        {name: tensor.shape for name, tensor in network.layers[:trunk].state_dict().items()}
        for network in (classifier, detector)
    ]
    assert shapes[0] == shapes[1]


def test_dropout_and_kind_of_labels_are_chosen_for_a_classifier_and_kept_in_its_description():
    layers = [[-1, 1, "Conv", [16, 3, 2]], [-1, 1, "Classify", [32]]]
    network = build_network({"layers": layers, "dropout": 0.5}, ("a",), dropout=0.25, multi_label=True)
    twin = build_network(network.description, ("a",))
    assert twin.description == {"layers": layers, "dropout": 0.25, "multi_label": True}
    assert (twin.multi_label, twin.layers[-1].dropout.p) == (True, 0.25)
    assert build_network({"layers": layers}, ("a",)).description == {"layers": layers}


def test_a_description_makes_the_same_network_again_and_holds_plain_values_only(tmp_path):
    network = build_network("det-n", ("a", "b"))
    torch.save(network.description, tmp_path / "description.pt")
    description = torch.load(tmp_path / "description.pt", weights_only=True)
    twin = build_network(description, network.names)
    assert twin.description == network.description
    assert twin.sources == network.sources
    twin.load_state_dict(network.state_dict())  # strict: the same names and shapes


def test_a_path_chooses_its_key_scale_or_else_its_first(tmp_path):
    text = """
scales: {a: [1.0, 1.0, 64], b: [2.0, 0.5, 64]}
layers: [[-1, 1, Conv, [16, 3, 2]], [-1, 2, CSPStage, [32, true]], [[0, 1], 1, Detect, []]]
"""
    (tmp_path / "first.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "second.yaml").write_text(text + "scale: b\n", encoding="utf-8")
    first, second = (build_network(tmp_path / f"{name}.yaml", ("a",)) for name in ("first", "second"))
    assert [len(network.layers[1].chain) for network in (first, second)] == [2, 4]
    assert [network.layers[1].out_channels for network in (first, second)] == [32, 16]
    assert first.strides == (2, 2)


def test_the_width_is_applied_after_the_most_channels_and_rounded_to_eight():
    assert Scale(1.0, 0.25, 1024).channels(1024) == 256
    assert Scale(1.0, 1.5, 512).channels(1024) == 768
    assert Scale(1.0, 0.25, 1024).channels(20) == 8
    assert [Scale(0.5).repeats(count) for count in (1, 2, 3, 4)] == [1, 1, 1, 2]


@pytest.mark.parametrize(("norm", "layer"), [("batch", nn.BatchNorm2d), ("group", ChannelGroupNorm)])
def test_the_key_norm_chooses_the_normalization_and_not_the_weights(norm, layer):
    torch.manual_seed(0)
    plain = build_network(TINY, ("a",))
    torch.manual_seed(0)
    chosen = build_network({**TINY, "norm": norm}, ("a",))
    assert type(plain.layers[0].norm) is nn.BatchNorm2d
    assert type(chosen.layers[0].norm) is layer
    for a, b in zip(plain.parameters(), chosen.parameters(), strict=True):
        assert torch.equal(a, b)


def test_building_does_not_change_the_description_it_was_given():
    given = {**TINY, "layers": [list(row) for row in TINY["layers"]]}
    build_network(given, ("a",))
    assert given == TINY


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("det-q", "det-"),
        ("dett-n", "the nearest are det-n"),
        ("nothing like it", "choose one of .*det-n"),
        (Path("missing.yaml"), "missing.yaml.* cannot be read"),
        ({**TINY, "layer": []}, "unknown key 'layer'"),
        ({**TINY, "scale": "z"}, "scale is 'z'; the key scales has a, b"),
        ({**TINY, "scales": {"a": [1.0, -1.0, 64]}}, "scale a is .* above 0"),
        ({**TINY, "norm": "frozen"}, "norm is 'frozen'; it should be batch or group .* give them as norm= of a run"),
        ({**TINY, "norm": ["group"]}, "norm is .* it should be batch or group"),
        ({**TINY, "task": "classify"}, "task is 'classify'; the head Detect is for 'detect'"),
        ({**TINY, "dropout": 0.1}, "dropout belongs to a classifier, and the head Detect is for 'detect'"),
        ({**TINY, "multi_label": True}, "multi_label belongs to a classifier"),
        ({**TINY, "dropout": 1}, "dropout is 1; it should be a number from 0 to below 1"),
        ({**TINY, "dropout": True}, "dropout is True; it should be a number"),
        ({**TINY, "dropout": False}, "dropout is False; it should be a number"),
        ({**TINY, "scales": 5}, r"scales is 5; it should give each name its \[depth"),
        ({**TINY, "scales": {"n": [1, 1, 64]}, "scale": ["n"]}, r"scale is \['n'\]; the key scales has n"),
        ({"layers": [[-1, 1, ["Conv"], []]]}, r"is of unknown kind \['Conv'\]"),
        ({**TINY, "multi_label": "yes"}, "multi_label is 'yes'; it should be true or false"),
        (rows(), "layers is .* it should be a list"),
        (rows([-1, 1, "Convolution", [16]], TINY["layers"][-1]), "layer 0 is of unknown kind 'Convolution'"),
        (rows([-2, 1, "Conv", [16]], [-1, 1, "Detect", []]), "layer 0 reads -2; it should be a layer before it"),
        (rows([-1, 1, "Conv", [16]]), "layer 0 is Conv; the last layer, and only that, is a head"),
        (rows([-1, 0, "Conv", [16]], [-1, 1, "Detect", []]), "layer 0 repeats 0 times"),
        (rows([-1, 2, "Conv", [16]], [-1, 1, "Detect", []]), "layer 0 repeats 2 times; Conv stands once"),
        (rows([-1, 1, "Conv", [16, 3, 2, 5]], [-1, 1, "Detect", []]), "its arguments are channels, kernel, stride"),
        (rows([[-1, -1], 1, "Conv", [16]], [-1, 1, "Detect", []]), "layer 0 .* reads 2 layers; it takes one"),
        (rows([-1, 1, "Upsample", []], [-1, 1, "Detect", []]), "only an even stride can be halved"),
        (
            rows(
                [-1, 1, "Conv", [16, 3, 2]],
                [-1, 1, "Conv", [16, 3, 2]],
                [[0, 1], 1, "Concat", []],
                [-1, 1, "Detect", []],
            ),
            "joins maps of strides 2, 4",
        ),
        (rows([-1, 1, "Conv", [16]], [-1, 1, "Detect", [1]]), "has 1 bins; a distance needs at least 2"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused_with_its_place(spec, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        build_network(spec, ("a",))


def test_all_faulty_rows_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        build_network(rows([-1, 0, "Conv", [16]], [5, 1, "Conv", [16]], [-1, 1, "Detect", []]), ("a",))
    assert len(caught.value.faults) == 2


def test_a_file_that_is_not_yaml_is_refused(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("layers: [", encoding="utf-8")
    with pytest.raises(ConfigError, match="not YAML"):
        build_network(path, ("a",))
    path.write_text("- a list", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds a list"):
        build_network(path, ("a",))


def test_a_network_without_classes_is_refused():
    with pytest.raises(ConfigError, match="no class names"):
        build_network(TINY, ())


def test_batch_norm_is_set_for_small_micro_batches():
    norm = ConvNorm(3, 8).norm
    assert (norm.eps, norm.momentum) == (1e-3, 0.03)
