import json
import os
import pickle
import re
from pathlib import Path

import pytest
import torch
import torchvision
import yaml
from torch import nn

from visiontrain import Model, cli
from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.models.detectors import build_detector
from visiontrain.run.convert import convert_run

NAMES = ("red", "green")


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trained(small_network):
    """A small detector whose tensors all differ from those of a fresh one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        network = build_network(small_network, NAMES)
        with torch.no_grad():
            for tensor in network.state_dict().values():
                if tensor.is_floating_point():
                    tensor.copy_(torch.rand_like(tensor) + 0.5)
    return network


def convert(**settings):
    return convert_run(load_config("convert", python=settings), is_silent=True)


def answer(capsys, *words):
    code = cli.main(["convert", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def assert_same(path, network):
    found = load_checkpoint(path)
    assert found["ema"] is None
    assert list(found["model"]) == list(network.state_dict())
    for name, tensor in network.state_dict().items():
        assert torch.equal(found["model"][name], tensor), name
    return found


def test_weights_of_the_same_names_become_a_checkpoint_that_loads(trained, small_network):
    torch.save({"model": trained.state_dict(), "names": {0: "red", 1: "green"}}, "theirs.pt")
    result = convert(weights="theirs.pt", model=str(small_network), save_dir="run")
    found = assert_same(result.weights, trained)
    assert (found["task"], found["names"]) == ("detect", ["red", "green"])
    assert result.weights.relative_to(result.weights.parents[1]).as_posix() == "weights/converted.pt"
    assert {match.how for match in result.matching.matches} == {"name"}
    results = Model(result.weights).predict(torch.zeros(1, 3, 64, 64), imgsz=64, quiet=True)
    assert results[0].names == {0: "red", 1: "green"}
    assert json.loads((result.weights.parents[1] / "convert.json").read_text()) == result.document


class Wrapper(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.stack = nn.ModuleList(layers)


@pytest.mark.slow
def test_a_pickled_module_of_other_names_is_matched_by_shape_and_order(trained, small_network):
    renamed = {
        name.replace("layers.", "net.x").replace("conv.", "c.").replace("norm.", "n."): tensor
        for name, tensor in trained.state_dict().items()
    }
    torch.save(renamed, "theirs.pt")
    result = convert(weights="theirs.pt", model=str(small_network), save_dir="run")
    assert_same(result.weights, trained)
    assert {match.how for match in result.matching.matches} == {"order"}
    torch.save(Wrapper(trained.layers), "module.pt")
    assert_same(convert(weights="module.pt", model=str(small_network), save_dir="run2").weights, trained)


def test_a_mapping_pairs_what_neither_names_nor_order_tell(trained, small_network):
    state = trained.state_dict()
    other = {f"x.{index}": tensor for index, tensor in enumerate(reversed(state.values()))}
    torch.save(other, "theirs.pt")
    with pytest.raises(ConfigError, match=r"lacks \d+ of the \d+ tensors|none of its tensors fits"):
        convert(weights="theirs.pt", model=str(small_network))
    mapping = {f"x.{index}": name for index, name in enumerate(reversed(list(state)))}
    Path("map.yaml").write_text(yaml.safe_dump(mapping), encoding="utf-8")
    assert_same(
        convert(weights="theirs.pt", model=str(small_network), mapping="map.yaml", save_dir="run").weights, trained
    )


def test_the_number_of_classes_is_found_where_nobody_tells_it(small_network):
    network = build_network(small_network, tuple(f"b{index}" for index in range(7)))
    torch.save(network.state_dict(), "theirs.pt")
    result = convert(weights="theirs.pt", model=str(small_network), save_dir="run")
    assert assert_same(result.weights, network)["names"] == [f"class{index}" for index in range(7)]


def test_class_names_of_the_data_are_taken_and_other_classes_start_fresh(small_network, tiny_yolo):
    data = str(tiny_yolo(2))
    for count, is_missing in ((2, False), (5, True)):
        network = build_network(small_network, tuple(f"b{index}" for index in range(count)))
        torch.save(network.state_dict(), "theirs.pt")
        result = convert(weights="theirs.pt", model=str(small_network), data=data, save_dir=f"run{count}")
        assert load_checkpoint(result.weights)["names"] == ["red", "green"]
        assert bool(result.matching.missing) == is_missing
    torch.save({"names": ["a", "b"], "model": network.state_dict()}, "theirs.pt")
    with pytest.raises(ConfigError, match="data: its classes are red, green; those of the weights are a, b"):
        convert(weights="theirs.pt", model=str(small_network), data=data)


SMALL = "mobilenet_v3_small"


@pytest.fixture
def kept_backbone():
    """The file `theirs.pt` of a classifier of torchvision."""
    state = torchvision.models.get_model(SMALL, weights=None).state_dict()
    torch.save(state, "theirs.pt")
    return state


def test_weights_of_torchvision_become_the_whole_backbone_of_a_detector_whose_rest_is_to_be_trained(
    kept_backbone, tiny_yolo, capsys
):
    words = ["weights=theirs.pt", f"model=det-{SMALL}", "save_dir=run"]
    code, _, err = answer(capsys, *words)
    assert code == 2
    assert re.search(rf"fills the backbone of det-{SMALL} and nothing else \(\d+ of \d+ tensors\); name the data", err)
    assert not Path("run").exists()
    code, out, _ = answer(capsys, *words, f"data={tiny_yolo(2)}")
    assert code == 0
    assert re.search(r"\d+ left fresh: layers\.4\.conv\.weight, .*; train them", out)
    found = load_checkpoint(Path("run/weights/converted.pt"))
    backbone = {name: tensor for name, tensor in found["model"].items() if int(name.split(".")[1]) < 4}
    assert {name.split(".", 2)[2] for name in backbone} == {name for name in kept_backbone if "classifier" not in name}
    assert all(torch.equal(tensor, kept_backbone[name.split(".", 2)[2]]) for name, tensor in backbone.items())
    assert found["names"] == ["red", "green"]


def test_a_backbone_with_a_hole_or_with_more_than_it_is_no_backbone_to_go_on_from(kept_backbone, tiny_yolo):
    keys = {"weights": "theirs.pt", "model": f"det-{SMALL}", "data": str(tiny_yolo(2))}
    torch.save({name: tensor for name, tensor in kept_backbone.items() if name != "features.0.0.weight"}, "theirs.pt")
    with pytest.raises(ConfigError, match=r"lacks \d+ of the \d+ tensors"):
        convert(**keys)
    whole = build_detector(keys["model"], NAMES).state_dict()
    torch.save({name: tensor for name, tensor in whole.items() if not name.startswith("layers.8.")}, "theirs.pt")
    with pytest.raises(ConfigError, match=r"lacks \d+ of the \d+ tensors of .* \(layers\.8\."):
        convert(**keys)


@pytest.mark.parametrize("backbone", [SMALL, "shufflenet_v2_x0_5"])
def test_weights_of_a_detector_on_torchvision_fill_it_with_any_beginning(backbone):
    network = build_detector(f"det-{backbone}", ("a", "b", "c"))
    torch.save({"model": {f"module.{name}": tensor for name, tensor in network.state_dict().items()}}, "theirs.pt")
    result = convert(weights="theirs.pt", model=f"det-{backbone}", save_dir="run")
    assert assert_same(result.weights, network)["names"] == ["class0", "class1", "class2"]
    assert {match.how for match in result.matching.matches} == {"name"}


@pytest.mark.slow
def test_a_checkpoint_of_torchvision_loads_by_name():
    from torchvision.models import shufflenet_v2_x0_5

    module = shufflenet_v2_x0_5(num_classes=11)
    torch.save(module, "theirs.pth")
    result = convert(weights="theirs.pth", model="shufflenet_v2_x0_5", save_dir="run")
    found = load_checkpoint(result.weights)
    assert found["task"] == "classify"
    assert len(found["names"]) == 11
    for name, tensor in module.state_dict().items():
        assert torch.equal(found["model"][f"network.{name}"], tensor)


def test_without_a_network_the_file_is_listed_and_nothing_is_written(capsys, tmp_path, trained):
    torch.save({"model": Wrapper(trained.layers)}, "theirs.pt")
    code, out, err = answer(capsys, "weights=theirs.pt")
    assert (code, err) == (0, "")
    assert "stack.0.conv.weight" in out
    assert "not run: " in out
    assert "torch.nn.modules.conv.Conv2d × " in out
    code, out, err = answer(capsys, "weights=theirs.pt", "json=True")
    document = json.loads(out)
    assert document["found"][0] == {"name": "stack.0.conv.weight", "shape": [8, 3, 3, 3], "dtype": "float32"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs.pt"]


def test_a_pickle_that_would_write_a_file_is_read_without_the_file_appearing(capsys, trained, small_network, tmp_path):
    class Trap:
        def __init__(self, call, *arguments):
            self.reduced = call, arguments

        def __reduce__(self):
            return self.reduced

    traps = [
        Trap(open, str(tmp_path / "written"), "w"),
        Trap(os.system, f"touch {tmp_path / 'written'}"),
        Trap(eval, f"open({str(tmp_path / 'written')!r}, 'w')"),
    ]
    for index, is_zip in enumerate((True, False)):
        values = {"traps": traps, "model": trained.state_dict(), "names": list(NAMES)}
        torch.save(values, f"trap{index}.pt", _use_new_zipfile_serialization=is_zip)
        code, out, err = answer(capsys, f"weights=trap{index}.pt", f"model={small_network}", f"save_dir=run{index}")
        assert (code, err) == (0, "")
        assert "os.system" in out.replace("posix.system", "os.system").replace("nt.system", "os.system")
        assert_same(tmp_path / f"run{index}" / "weights" / "converted.pt", trained)
        assert not (tmp_path / "written").exists()
    with pytest.raises((pickle.UnpicklingError, RuntimeError)):  # that the traps are some
        torch.load("trap0.pt", weights_only=True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: dict(list(state.items())[:-3]), r"lacks \d of the \d+ tensors of .*layers\.\d+"),
        (lambda state: {"other": torch.ones(5)}, "none of its tensors fits"),
        (lambda state: {name: tensor.int() for name, tensor in state.items()}, "none of its tensors fits"),
        (lambda state: {**state, "layers.0.norm.bias": torch.full((8,), float("nan"))}, "1 tensors are not finite"),
    ],
)
@pytest.mark.slow
def test_weights_that_do_not_fill_the_network_are_refused_in_one_line_and_no_folder_is_made(
    capsys, tmp_path, trained, small_network, spoil, message
):
    torch.save(spoil(trained.state_dict()), "theirs.pt")
    code, out, err = answer(capsys, "weights=theirs.pt", f"model={small_network}")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    with pytest.raises(ConfigError, match=message):
        convert(weights="theirs.pt", model=str(small_network))
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.pt"]


def test_a_refusal_begins_with_its_reason_and_names_five_tensors_at_most(capsys, small_network):
    torch.save({"other": torch.ones(5)}, "theirs.pt")
    fault = answer(capsys, "weights=theirs.pt", f"model={small_network}")[2]
    assert fault.startswith("visiontrain convert: weights = 'theirs.pt': none of its tensors fits")
    assert "(visiontrain convert weights=theirs.pt lists them)" in fault
    network = build_network(small_network, NAMES)
    torch.save({name: tensor for name, tensor in network.state_dict().items() if "0" in name}, "theirs.pt")
    fault = answer(capsys, "weights=theirs.pt", f"model={small_network}")[2]
    reason, lacking, rest = re.fullmatch(r"visiontrain convert: (.*?) tensors of \S+ \((.*?)\); (.*)\n", fault).groups()
    number = int(re.fullmatch(r"weights = 'theirs\.pt': lacks (\d+) of the \d+", reason)[1])
    assert re.search(r" and (\d+) more$", lacking)[1] == str(number - 5)
    assert lacking.count(", ") == 4
    assert rest.startswith("pair names with mapping=FILE.yaml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "weights: is not given"),
        ({"weights": "w.pt", "mapping": "m.yaml"}, "mapping: has no effect without a network"),
        ({"weights": "w.pt", "data": "d.yaml"}, "data: has no effect without a network"),
        ({"weights": "w.pt", "model": "best.pt"}, "model = 'best.pt': is a file of weights"),
        ({"weights": "w.pt"}, r"weights = 'w.pt': cannot be read \(No such file"),
    ],
)
def test_keys_that_make_no_sense_together_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        convert(**settings)


@pytest.mark.parametrize("text", ["", "- a", "a: 3", "3: a", "[", "a"])
def test_a_mapping_that_is_none_is_refused(tmp_path, small_network, text):
    torch.save({"w": torch.ones(1)}, "theirs.pt")
    (tmp_path / "map.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mapping = 'map\.yaml': (should hold|cannot be read)"):
        convert(weights="theirs.pt", model=str(small_network), mapping="map.yaml")


def test_names_that_a_terminal_would_obey_are_escaped(capsys):
    torch.save({"\x1b[2Jw": torch.ones(1), "\ud800": torch.ones(1)}, "theirs.pt")
    for words in ((), ("json=True",)):
        code, out, _ = answer(capsys, "weights=theirs.pt", *words)
        assert code == 0
        assert "\x1b" not in out
        assert "x1b[2Jw" in out


def test_a_checkpoint_of_ours_can_be_listed_and_its_average_is_what_counts(trained):
    state = trained.state_dict()
    values = {"model": {name: tensor * 0 for name, tensor in state.items()}, "ema": state, "names": list(NAMES)}
    save_checkpoint(Path("w.pt"), values)
    found = convert(weights="w.pt").found
    assert found.names == NAMES
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in state.items())
