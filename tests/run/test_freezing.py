"""`freeze`, `unfreeze_epoch`, `lr_backbone`, `layer_decay`: what they choose, say and refuse; whole runs with them."""

from __future__ import annotations

import csv
import shutil

import pytest
import torch
import yaml

from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.optimizer import parameter_groups
from visiontrain.errors import ConfigError
from visiontrain.models.norm import FrozenBatchNorm
from visiontrain.run.freezing import freezing_lines, rates_of
from visiontrain.run.parts import build_parts, checkpoint_of
from visiontrain.run.planning import plan_warnings
from visiontrain.run.session import open_session
from visiontrain.run.train import train_run
from visiontrain.run.verify import verify_run

TRUNK = [[-1, 1, "Conv", [channels, 3, 2]] for channels in (8, 16, 16, 24)]
HEAD = "layers.4"


@pytest.fixture
def settings(tmp_path, tiny_yolo):
    """A function that gives the settings of a mode on a tiny detector, whose backbone are four layers."""
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({"task": "detect", "layers": [*TRUNK, [[2, 3], 1, "Detect", []]]}), encoding="utf-8")

    def make(mode="train", **keys):
        values = {"model": str(path), "imgsz": 64, "epochs": 4, "batch": 2, "nbs": 4, "amp": False, **keys}
        if "data" not in values:
            values["data"] = str(tiny_yolo(6))
        return load_config(mode, python=values)

    return make


def frozen_layers(network):
    return {int(name.split(".")[1]) for name, param in network.named_parameters() if not param.requires_grad}


@pytest.mark.parametrize(
    ("freeze", "layers"),
    [
        (2, {0, 1}),
        ("0,2", {0, 2}),
        ([3], {3}),
        ("backbone", {0, 1, 2, 3}),
        ("layers.1", {1}),
        (r"layers\.[01]\..*,layers.3", {0, 1, 3}),
        (0, set()),
        (None, set()),
    ],
)
def test_layers_are_frozen_by_count_by_number_by_role_or_by_name(settings, freeze, layers):
    session = open_session(settings(freeze=freeze))
    assert frozen_layers(session.network) == layers
    frozen_norms = [path for path, layer in session.network.named_modules() if isinstance(layer, FrozenBatchNorm)]
    assert frozen_norms == [f"layers.{index}.norm" for index in sorted(layers)]
    assert (session.frozen is None) == (not layers)


def test_the_banner_counts_what_is_frozen(settings):
    session = open_session(settings(freeze=1, unfreeze_epoch=3))
    (line,) = freezing_lines(session.network, session.config, session.frozen)
    total = sum(param.numel() for param in session.network.parameters())
    count = 8 * 3 * 9 + 8 + 8
    assert line == (
        f"frozen: {count:,} of {total:,} parameters (3 tensors) and the statistics of 1 BatchNorm layers, "
        "until epoch 3 begins"
    )
    (line,) = freezing_lines(session.network, session.config, session.frozen, epoch=3)
    assert line == "frozen: nothing any more, since epoch 3 began"
    assert any("what is frozen are random weights; start from trained ones" in text for text in plan_warnings(session))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"freeze": 5}, r"freeze = 5: freezes every parameter; type backbone, the number of the first layers \(the"),
        ({"freeze": 6}, "freeze = 6: the network has 5 layers, 0 to 4; type backbone"),
        ({"freeze": "0,7"}, "freeze = 0,7: the network has 5 layers, 0 to 4"),
        ({"freeze": ".*"}, r"freeze = \.\*: freezes every parameter"),
        ({"freeze": "neck"}, "freeze = neck: matches no parameter; their names are such as layers.0.conv.weight"),
        ({"freeze": "(("}, r"freeze = \(\(: is no regular expression"),
        ({"unfreeze_epoch": 2}, "unfreeze_epoch: has no effect without freeze"),
        ({"freeze": 1, "unfreeze_epoch": 5}, "unfreeze_epoch = 5: the run has 4 epochs"),
        ({"freeze": "backbone", "lr_backbone": 0.1}, "lr_backbone: has no effect with freeze = backbone"),
        ({"freeze": r".*norm.*", "precise_bn": True}, r"precise_bn: has no effect with freeze = \.\*norm\.\*"),
    ],
)
def test_what_freezes_nothing_or_everything_or_has_no_effect_is_refused(settings, keys, text):
    with pytest.raises(ConfigError, match=text):
        open_session(settings(**keys))


def test_the_backbone_learns_at_a_rate_of_its_own_layer_by_layer_if_that_is_wanted(settings):
    session = open_session(settings(lr_backbone=0.5))
    groups = parameter_groups(session.network, weight_decay=0.0, parts=rates_of(session.network, session.config))
    assert {group["name"]: group["lr_scale"] for group in groups} == {
        **dict.fromkeys(("backbone/weights", "backbone/norms", "backbone/biases"), 0.5),
        **dict.fromkeys(("weights", "depthwise", "norms", "biases"), 1.0),
    }
    config = settings(lr_backbone=0.5, layer_decay=0.1)
    groups = parameter_groups(session.network, weight_decay=0.0, parts=rates_of(session.network, config))
    scales = {group["name"]: group["lr_scale"] for group in groups if group["name"].endswith("/weights")}
    assert scales == pytest.approx({f"layers.{index}/weights": 0.5 * 0.1 ** (4 - index) for index in range(4)})
    (line,) = freezing_lines(session.network, config, None)
    assert line == "backbone: 4 layers learn at 5e-05 (first layer) to 0.05 (last) of the learning rate"


def test_verify_passes_with_frozen_layers(settings):
    document = verify_run(settings("verify", freeze=2, warmup_epochs=0, imgsz=32, nbs=3), is_silent=True)
    assert document["passed"]
    assert document["precision"]["rel_error"] <= 1e-4


@pytest.fixture
def run(settings, tmp_path):
    def train(folder, **keys):
        fixed = {"plots": False, "workers": 0, "quiet": True, "save_dir": str(tmp_path / folder)}
        return train_run(settings(**fixed, **{"warmup_epochs": 1, **keys}))

    return train


def start_of(settings):
    return open_session(settings()).network.state_dict()


def test_frozen_tensors_and_statistics_are_the_same_to_the_bit_after_training(run, settings):
    result = run("run", epochs=1, warmup_epochs=0, freeze="backbone", val=False)
    before = start_of(settings)
    for key in ("model", "ema"):
        after = load_checkpoint(result.last)[key]
        moved = {name for name in before if not torch.equal(before[name], after[name])}
        assert {name for name in before if not name.startswith(HEAD)}.isdisjoint(moved)
        assert {name for name in before if name.startswith(HEAD)} == moved


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["SGD", "Muon"])
@pytest.mark.parametrize("tail", ["flush", "carry"])
def test_a_thaw_lets_all_learn_and_a_run_goes_on_to_the_same_bits_from_before_and_behind_it(
    run, settings, tmp_path, optimizer, tail
):
    keys = {"freeze": 2, "unfreeze_epoch": 3, "lr_backbone": 0.5, "optimizer": optimizer, "tail": tail}
    whole = run("run", **keys, save_period=1)
    before = start_of(settings)
    weights = whole.save_dir / "weights"
    second, last = (load_checkpoint(weights / f"epoch{epoch}.pt") for epoch in (2, 4))
    for key in ("model", "ema"):
        for name in (name for name in before if name.startswith(("layers.0.", "layers.1."))):
            if tail == "flush":  # else the window that closes epoch 2 may be one of epoch 3
                assert torch.equal(before[name], second[key][name]), name
            assert not torch.equal(before[name], last[key][name]), name
    assert not any(name.startswith(("layers.0.", "layers.1.")) for name in second["optimizer"])
    assert any(name.startswith("layers.0.") for name in last["optimizer"])
    with (whole.save_dir / "results.csv").open(encoding="utf-8", newline="") as file:
        rates = [float(row["lr/weight"]) for row in csv.DictReader(file)]
    assert rates[-1] == pytest.approx(0.01 * 0.01)  # the head's

    for epoch in (1, 2, 3):
        copied = tmp_path / f"from{epoch}"
        shutil.copytree(whole.save_dir, copied)
        config = load_config("train", python={"resume": str(copied / "weights" / f"epoch{epoch}.pt")})
        session = open_session(config)
        parts = build_parts(session, warn=pytest.fail)
        at_once = checkpoint_of(parts, session, session.state)  # saved again before any window
        parts.close()
        assert at_once["optimizer"].keys() == load_checkpoint(weights / f"epoch{epoch}.pt")["optimizer"].keys()
        again = train_run(load_config("train", python={"resume": str(copied / "weights" / f"epoch{epoch}.pt")}))
        for key in ("model", "ema"):
            resumed = load_checkpoint(again.last)[key]
            assert all(torch.equal(last[key][name], resumed[name]) for name in resumed), (epoch, key)
