import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from visiontrain.errors import ConfigError
from visiontrain.models.pickles import Inert, Reference
from visiontrain.models.weights import MOST_DEPTH, MOST_NAME, read_weights_file, write_safetensors


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("transient", torch.arange(2), persistent=False)
        self.register_parameter("absent", None)


class Averaged:
    """What keeps an average of weights beside a module."""

    def __init__(self, module):
        self.module = module
        self.updates = 3


class Slotted:
    """The same without a dictionary."""

    __slots__ = ("module",)

    def __init__(self, module):
        self.module = module


def network():
    return nn.Sequential(Block(), nn.Sequential(Block(), nn.Linear(4, 2)))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda module: module.state_dict(),
        lambda module: module,
        lambda module: {"model": module, "epoch": 3, "optimizer": {"state": {0: torch.ones(1)}}},
        lambda module: {"epoch": 1, "state_dict": module.state_dict(), "best": 0.5},
        lambda module: {"ema": None, "model": {"state_dict": module.state_dict()}},
        lambda module: {"ema": Averaged(module), "model": network()},
        lambda module: {"ema": Slotted(module), "model": network()},
    ],
)
@pytest.mark.parametrize("is_zip", [True, False])
def test_the_names_and_tensors_are_those_of_the_state_dict_however_wrapped(tmp_path, wrap, is_zip):
    module = network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old form looks for the source of classes
        torch.save(wrap(module), tmp_path / "weights.pt", _use_new_zipfile_serialization=is_zip)
    found = read_weights_file(tmp_path / "weights.pt")
    expected = module.state_dict()
    assert list(found.tensors) == list(expected)
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in expected.items())
    assert found.names is None


def test_a_module_whose_parts_are_of_other_kinds_than_torch_gives_them_is_read_all_the_same(tmp_path):
    module = Block()
    module._non_persistent_buffers_set = Averaged(None)  # type: ignore[assignment]
    torch.save(module, tmp_path / "w.pt")
    assert "transient" in read_weights_file(tmp_path / "w.pt").tensors


def test_what_a_module_holds_beside_its_parts_is_none_of_its_weights(tmp_path):
    module = Block()
    module.ema = {"other": torch.ones(1)}  # type: ignore[assignment]
    torch.save(module, tmp_path / "w.pt")
    assert list(read_weights_file(tmp_path / "w.pt").tensors) == list(module.state_dict())


def test_containers_that_are_too_deep_or_too_many_or_have_endless_names_are_refused(tmp_path, monkeypatch):
    deep: dict[str, object] = {"w": torch.ones(1)}
    for _ in range(MOST_DEPTH + 2):
        deep = {"a": deep}
    many: dict[str, object] = {"w": torch.ones(1)}
    for _ in range(12):
        many = {"a": many, "b": many}
    monkeypatch.setattr("visiontrain.models.weights.MOST_VISITS", 1000)
    for value, message in (
        (deep, f"more than {MOST_DEPTH} deep"),
        (many, "more than any network does"),
        ({"w" * (MOST_NAME + 1): torch.ones(1)}, f"names of more than {MOST_NAME} characters"),
    ):
        torch.save(value, tmp_path / "w.pt")
        with pytest.raises(ConfigError, match=message):
            read_weights_file(tmp_path / "w.pt")


def test_a_scripted_module_is_read_without_its_code(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scripting is deprecated; its files live on
        torch.jit.script(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))).save(tmp_path / "scripted.pt")
    found = read_weights_file(tmp_path / "scripted.pt")
    assert list(found.tensors)[:2] == ["0.weight", "0.bias"]
    assert "1.running_var" in found.tensors


def test_arrays_of_numpy_are_weights_too(tmp_path):
    (tmp_path / "w.pkl").write_bytes(pickle.dumps({"model": {"conv": np.ones((2, 3), np.float32)}, "author": "x"}))
    assert read_weights_file(tmp_path / "w.pkl").tensors["conv"].tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("names", [["cat", "dog"], {0: "cat", 1: "dog"}, {1: "dog", 0: "cat"}])
def test_class_names_are_found(tmp_path, names):
    torch.save({"names": names, "model": {"w": torch.ones(2)}}, tmp_path / "w.pt")
    assert read_weights_file(tmp_path / "w.pt").names == ("cat", "dog")
    module = nn.Linear(1, 2)
    module.names = names
    torch.save({"model": module}, tmp_path / "w.pt")
    assert read_weights_file(tmp_path / "w.pt").names == ("cat", "dog")


@pytest.mark.parametrize("names", [["cat", "cat"], {1: "cat", 2: "dog"}, ["cat", 3], [], ["cat\n", "dog"], "cats"])
def test_class_names_that_are_none_are_left_alone(tmp_path, names):
    torch.save({"names": names, "model": {"w": torch.ones(2)}}, tmp_path / "w.pt")
    assert read_weights_file(tmp_path / "w.pt").names is None


def test_inert_classes_are_counted(tmp_path):
    torch.save(network(), tmp_path / "w.pt")
    found = read_weights_file(tmp_path / "w.pt").not_run
    assert found["torch.nn.modules.conv.Conv2d"] == 2
    assert found["torch.nn.modules.linear.Linear"] == 1


@pytest.mark.parametrize(
    "value", [{}, 3, {"epoch": 3}, [torch.ones(1)], {"model": None}, Inert(Reference("a", "b"), state={"x": 1})]
)
def test_a_file_without_named_tensors_is_refused(tmp_path, value):
    torch.save(value, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match="holds no weights; they should be named tensors"):
        read_weights_file(tmp_path / "w.pt")


def test_a_file_that_is_not_there_or_none_of_weights_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"^weights = 'x': cannot be read \(No such file or directory\)"):
        read_weights_file(tmp_path / "none.pt", where="weights = 'x'")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_weights_file(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_weights_file(tmp_path / "none.safetensors")
    for name in ("w.pt", "w.safetensors"):
        (tmp_path / name).write_text("text")
        with pytest.raises(ConfigError, match="name another file of weights"):
            read_weights_file(tmp_path / name)


def test_safetensors_come_back_as_they_were_written_with_layers_in_their_order(tmp_path):
    shared = torch.arange(12.0).view(3, 4)
    tensors = {f"layers.{index}.w": torch.full((2,), float(index)) for index in (0, 2, 10)}
    tensors |= {"t": shared.t(), "whole": shared, "half": torch.ones(2).half()}
    path = tmp_path / "w.safetensors"
    write_safetensors(path, tensors, {"names": json.dumps(["a", "b"]), "task": "detect"})
    found = read_weights_file(path)
    assert list(found.tensors)[1:4] == ["layers.0.w", "layers.2.w", "layers.10.w"]
    assert {name: tensor.tolist() for name, tensor in found.tensors.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    assert found.names == ("a", "b")
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


def test_a_safetensors_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "w.safetensors").mkdir()
    with pytest.raises(OSError, match=r"."):
        write_safetensors(tmp_path / "w.safetensors", {"w": torch.ones(1)}, {})
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]
