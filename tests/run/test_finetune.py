"""Training that begins with trained weights: what is taken over, what is told, what is refused."""

from __future__ import annotations

import json

import pytest
import torch
import yaml

from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint, weights_of
from visiontrain.errors import CheckpointError, ConfigError
from visiontrain.model import Model
from visiontrain.models.build import build_network
from visiontrain.models.torchvision_models import build_torchvision
from visiontrain.run.finetune import transfer_lines
from visiontrain.run.session import open_session
from visiontrain.run.train import train_run

TRUNK = [[-1, 1, "Conv", [channels, 3, 2]] for channels in (8, 16, 16, 24)]
DETECTOR = {"task": "detect", "layers": [*TRUNK, [[2, 3], 1, "Detect", []]]}
CLASS_ROWS = "layers.4.class_branches.0.2.weight"
STEM = "layers.0.conv.weight"


@pytest.fixture
def network_file(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(DETECTOR), encoding="utf-8")
    return path


@pytest.fixture
def weights_file(tmp_path):
    """A function that writes a checkpoint as training does; its average holds other numbers than its live weights."""

    def write(names=("red", "white"), *, network=None, task="detect", has_ema=True, file="best.pt", **description):
        torch.manual_seed(1)
        network = network or build_network({**DETECTOR, **description}, names)
        path = tmp_path / file
        average = {
            name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in weights_of(network).items()
        }
        values = {
            "task": task,
            "model": weights_of(network),
            "ema": average if has_ema else None,
            "args": {"values": {}, "origins": {}},
            "names": list(names),
            "network": network.description,
        }
        save_checkpoint(path, values)
        return path

    return write


@pytest.fixture
def session_of(tiny_yolo):
    """A function that opens the session of a training run on small images of red and green squares."""

    def open_it(**keys):
        values = {"imgsz": 64, "epochs": 2, "batch": 2, "nbs": 4, **keys}
        if "data" not in values:
            values["data"] = str(tiny_yolo(4))
        return open_session(load_config("train", python=values))

    return open_it


@pytest.mark.parametrize("has_ema", [True, False])
def test_a_run_begins_with_the_weights_that_were_validated(session_of, weights_file, has_ema):
    path = weights_file(has_ema=has_ema)
    session = session_of(model=str(path))
    checkpoint = load_checkpoint(path)
    weights = checkpoint["ema"] or checkpoint["model"]
    state = session.network.state_dict()
    assert torch.equal(state[STEM], weights[STEM])
    assert torch.equal(state["layers.0.norm.running_mean"], weights["layers.0.norm.running_mean"])
    assert torch.equal(state[CLASS_ROWS][0], weights[CLASS_ROWS][0])  # red
    assert not torch.equal(state[CLASS_ROWS][1], weights[CLASS_ROWS][1])  # green is new
    assert session.network.names == ("red", "green")
    assert session.state.epoch == session.state.images == 0
    assert session.checkpoint is None


def test_what_was_taken_over_is_told_and_kept(session_of, weights_file):
    session = session_of(model=str(weights_file()))
    assert (session.transfer.kept, session.transfer.new, session.transfer.dropped) == (("red",), ("green",), ("white",))
    lines = list(transfer_lines(session.transfer))
    assert "  classes: 1 kept (red); 1 new (green); 1 dropped (white)" in lines
    assert not any("warning" in line for line in lines)
    document = session.transfer.document()
    assert json.loads(json.dumps(document)) == document
    assert document["classes"] == {"kept": ["red"], "new": ["green"], "dropped": ["white"]}
    assert STEM in document["matched"]


def test_a_named_network_takes_what_fits_and_lists_the_rest(session_of, weights_file, tmp_path):
    wide = {"task": "detect", "layers": [TRUNK[0], [-1, 1, "Conv", [32, 3, 2]], *TRUNK[2:], [[2, 3], 1, "Detect", []]]}
    path = tmp_path / "wide.yaml"
    path.write_text(yaml.safe_dump(wide), encoding="utf-8")
    session = session_of(model=str(path), pretrained=str(weights_file()))
    assert session.network.description["layers"] == wide["layers"]
    assert STEM in session.transfer.matched
    assert session.transfer.reshaped["layers.1.conv.weight"] == ((16, 8, 3, 3), (32, 8, 3, 3))
    assert any(
        "layers.1.conv.weight (16, 8, 3, 3) for (32, 8, 3, 3)" in line for line in transfer_lines(session.transfer)
    )


def test_what_stays_fresh_is_a_function_of_the_seed(session_of, weights_file, tiny_yolo):
    keys = {"model": str(weights_file()), "data": str(tiny_yolo(4))}
    first, again, other = (session_of(**keys, seed=seed).network.state_dict()[CLASS_ROWS][1] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_file_of_somebody_else_is_matched_by_name_and_shape(session_of, network_file, tmp_path):
    network = build_network(DETECTOR, ("a", "b", "c"))
    torch.save(network.state_dict(), tmp_path / "theirs.pth")
    session = session_of(model=str(network_file), pretrained=str(tmp_path / "theirs.pth"))
    assert torch.equal(session.network.state_dict()[STEM], network.state_dict()[STEM])
    assert set(session.transfer.reshaped) == {
        f"layers.4.class_branches.{level}.2.{kind}" for level in (0, 1) for kind in ("weight", "bias")
    }


def test_a_classifier_takes_rows_of_a_checkpoint_and_the_strict_way_of_a_plain_file(tmp_path, weights_file, images_of):
    torch.manual_seed(0)
    theirs = build_torchvision("shufflenet_v2_x0_5", ("green", "white", "red"))
    keys = {"model": "shufflenet_v2_x0_5", "data": str(images_of(("green", "red"))), "imgsz": 64, "batch": 2, "nbs": 4}
    path = weights_file(("green", "white", "red"), network=theirs, task="classify")
    session = open_session(load_config("train", python={**keys, "pretrained": str(path)}))
    assert session.transfer.kept == ("green", "red")
    bias = session.network.state_dict()["network.fc.bias"]
    assert torch.equal(bias, load_checkpoint(path)["ema"]["network.fc.bias"][[0, 2]])

    torch.save(theirs.network.state_dict(), tmp_path / "theirs.pth")
    session = open_session(load_config("train", python={**keys, "pretrained": str(tmp_path / "theirs.pth")}))
    assert session.transfer.missing == ("fc.weight", "fc.bias")
    assert session.transfer.new == ("green", "red")


@pytest.fixture
def images_of(tmp_path):
    """A function that writes a folder of images for each class and returns the folder of them all."""
    from PIL import Image

    def write(names):
        for split in ("train", "val"):
            for name in names:
                folder = tmp_path / "images" / split / name
                folder.mkdir(parents=True)
                for index in range(2):
                    Image.new("RGB", (64, 64), name).save(folder / f"{index}.png")
        return tmp_path / "images"

    return write


def test_what_contradicts_itself_or_cannot_be_used_is_refused(session_of, weights_file, network_file, tmp_path):
    path = weights_file()
    with pytest.raises(ConfigError, match=r"are weights already; leave one of them out\n") as caught:
        open_session(load_config("train", python={"model": str(path), "pretrained": "x.pt"}))
    assert "data: is not given; name the data set to train" in caught.value.faults[1]
    with pytest.raises(ConfigError, match=r"network with norm = batch, and this one has norm = group; leave norm out"):
        session_of(model=str(path), norm="group")
    grouped = weights_file(norm="group", file="group.pt")
    assert session_of(model=str(grouped)).config.norm == "group"
    with pytest.raises(ConfigError, match=r"with norm = group, and this one has norm = batch; type norm=group"):
        session_of(model=str(network_file), pretrained=str(grouped))
    assert session_of(model=str(network_file), pretrained=str(grouped), norm="group").transfer.missing == ()
    with pytest.raises(ConfigError, match="pretrained = True: there are weights for torchvision's networks only"):
        session_of(model=str(network_file), pretrained=True)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        session_of(model=str(network_file), pretrained=str(path))
    torch.save({"blocks.0": torch.ones(3)}, tmp_path / "other.pth")
    with pytest.raises(
        ConfigError, match=r"other\.pth': none of its tensors fits the network; it holds 1 \(blocks\.0\)"
    ):
        session_of(model=str(network_file), pretrained=str(tmp_path / "other.pth"))


@pytest.mark.slow
def test_a_fine_tuned_run_leaves_its_table_and_goes_on_without_the_weights_it_began_with(
    weights_file, tiny_yolo, tmp_path
):
    path, data = weights_file(), tiny_yolo(4)
    keys = {"imgsz": 64, "batch": 2, "nbs": 4, "plots": False, "workers": 0, "quiet": True, "warmup_epochs": 0}
    result = Model(path).train(data=str(data), epochs=2, save_period=1, save_dir=str(tmp_path / "run"), **keys)
    document = json.loads((result.save_dir / "transfer.json").read_text(encoding="utf-8"))
    assert document["classes"] == {"kept": ["red"], "new": ["green"], "dropped": ["white"]}
    assert "classes: 1 kept (red)" in (result.save_dir / "train.log").read_text(encoding="utf-8")
    straight = load_checkpoint(result.last)["model"]
    path.unlink()
    again = train_run(load_config("train", python={"resume": str(result.save_dir / "weights" / "epoch1.pt")}))
    assert all(torch.equal(straight[name], tensor) for name, tensor in load_checkpoint(again.last)["model"].items())
