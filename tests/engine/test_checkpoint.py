"""Checkpoints: whole or not at all, any damage is found, no code is run, and state comes back to the bit."""

import errno
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from visiontrain.engine.checkpoint import (
    load_checkpoint,
    optimizer_state,
    restore_optimizer,
    save_checkpoint,
    weights_of,
)
from visiontrain.engine.optimizer import OptimizerChoice, build_optimizer
from visiontrain.errors import CheckpointError

VALUES: dict[str, Any] = {
    "task": "detect",
    "model": {"weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(3)},
    "ema": None,
    "names": ["cat", "dög"],
    "args": {"values": {}, "origins": {}},
    "network": {"layers": [1, 2.5, "x"], "strides": (8, 16)},
    "metrics": {"map": 0.5, "is_good": True},
}


@pytest.fixture
def path(tmp_path):
    save_checkpoint(tmp_path / "last.pt", VALUES)
    return tmp_path / "last.pt"


def test_values_come_back_as_they_were(path):
    loaded = load_checkpoint(path)
    assert loaded.pop("format") == 1
    torch.testing.assert_close(loaded.pop("model"), VALUES["model"], rtol=0, atol=0)
    assert loaded == {name: value for name, value in VALUES.items() if name != "model"}


def test_torchs_own_safe_loader_reads_the_file(path):
    loaded = torch.load(path, weights_only=True)
    assert torch.equal(loaded["model"]["weight"], VALUES["model"]["weight"])


def test_the_comment_of_the_archive_is_the_digest_of_what_is_before_it(path):
    data = path.read_bytes()
    assert data[-71:] == b"sha256:" + hashlib.sha256(data[:-73]).hexdigest().encode()


def test_nothing_but_the_checkpoint_is_left_in_the_folder(path):
    assert list(path.parent.iterdir()) == [path]


def test_a_flipped_byte_is_found_wherever_it_is(path):
    data = path.read_bytes()
    last = range(len(data) - 100, len(data))  # the digest, its length and the end of the directory
    for place in {*range(0, len(data), len(data) // 50), *last}:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with pytest.raises(CheckpointError, match=r"last\.pt: (is|carries)"):
            load_checkpoint(path)


@pytest.mark.parametrize("missing", [1, 2, 10, 71, 73, 100, 500])
def test_a_file_that_was_cut_short_is_found(path, missing):
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(CheckpointError, match="it was cut short, or another program wrote it"):
        load_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x05\x06" + bytes(100)])
def test_a_file_that_is_no_checkpoint_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a checkpoint; name a weights file"):
        load_checkpoint(path)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path):
    for place in (tmp_path / "gone.pt", tmp_path):
        with pytest.raises(CheckpointError, match=rf"{place.name}: cannot be read \(.+\); name a weights file"):
            load_checkpoint(place)


def write_with_digest(path, values):
    """A file as an attacker would make it: with a digest that fits."""
    buffer = io.BytesIO()
    torch.save(values, buffer)
    body = buffer.getvalue()[:-2]
    comment = b"sha256:" + hashlib.sha256(body).hexdigest().encode()
    path.write_bytes(body + len(comment).to_bytes(2, "little") + comment)


class Malicious:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_code_in_a_file_is_refused_and_not_run(tmp_path):
    trap = tmp_path / "executed"
    write_with_digest(tmp_path / "evil.pt", {**VALUES, "format": 1, "args": Malicious(str(trap))})
    with pytest.raises(CheckpointError, match=r"evil\.pt: is not a checkpoint of tensors and plain values"):
        load_checkpoint(tmp_path / "evil.pt")
    assert not trap.exists()


@pytest.mark.parametrize("values", [[1, 2], {"format": 1}, {**VALUES}])
def test_another_programs_values_are_refused(tmp_path, values):
    write_with_digest(tmp_path / "other.pt", values)
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of this program|lacks"):
        load_checkpoint(tmp_path / "other.pt")


def test_a_format_of_the_future_is_refused_with_its_number(tmp_path):
    write_with_digest(tmp_path / "new.pt", {**VALUES, "format": 2})
    with pytest.raises(CheckpointError, match="is of format 2, and this version reads format 1"):
        load_checkpoint(tmp_path / "new.pt")


@pytest.mark.parametrize("value", [np.float64(0.5), np.int64(1), np.zeros(2), Path("x"), torch.float32, object()])
def test_what_the_safe_loader_would_refuse_is_not_written(path, value):
    before = path.read_bytes()
    with pytest.raises(
        AssertionError, match=r"values\['metrics'\]\['map'\]\[1\] is a .*, neither a tensor nor a plain"
    ):
        save_checkpoint(path, {**VALUES, "metrics": {"map": [1.0, value]}})
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path, monkeypatch, place):
    before = path.read_bytes()

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((os, "fsync", fail) if place == "fsync" else (Path, "replace", fail)))
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, {**VALUES, "task": "classify"})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_new_bytes_are_on_the_disk_before_they_take_the_old_ones_place(path, monkeypatch):
    acts = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: acts.append("sync") or fsync(descriptor))
    monkeypatch.setattr(Path, "replace", lambda source, target: acts.append("rename") or replace(source, target))
    save_checkpoint(path, VALUES)
    assert acts[:2] == ["sync", "rename"]


def test_weights_are_copies_in_fp32_by_name():
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(torch.bfloat16)
    weights = weights_of(network)
    assert weights.keys() == network.state_dict().keys()
    assert weights["0.weight"].dtype == torch.float32
    assert weights["1.num_batches_tracked"].dtype == torch.int64
    before = weights["0.weight"].clone()
    with torch.no_grad():
        network[0].weight.add_(1)
    assert torch.equal(weights["0.weight"], before)
    assert weights_of(nn.Linear(2, 2, dtype=torch.float64))["weight"].dtype == torch.float64


def small_network():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 2, 1))
    network.register_parameter("scale", nn.Parameter(torch.ones(())))
    return network.to(memory_format=torch.channels_last)


def take_step(network, optimizer, number):
    images = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(number))
    (network(images).square().mean() * network.scale).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Muon"])
def test_an_optimizer_goes_on_from_a_file_to_the_same_bits(name, tmp_path):
    choice = OptimizerChoice(name, 0.01, 0.9)
    network = small_network()
    optimizer = build_optimizer(network, choice, weight_decay=0.01)
    for number in range(3):
        take_step(network, optimizer, number)
    values = {**VALUES, "model": weights_of(network), "optimizer": optimizer_state(optimizer, network)}
    save_checkpoint(tmp_path / "last.pt", values)

    stored = load_checkpoint(tmp_path / "last.pt")
    resumed = small_network()
    resumed.load_state_dict(stored["model"])
    other = build_optimizer(resumed, choice, weight_decay=0.01)
    restore_optimizer(other, resumed, stored["optimizer"])
    assert optimizer_state(other, resumed).keys() == optimizer_state(optimizer, network).keys()
    for number in range(3, 6):
        take_step(network, optimizer, number)
        take_step(resumed, other, number)
    torch.testing.assert_close(dict(resumed.state_dict()), dict(network.state_dict()), rtol=0, atol=0)
    torch.testing.assert_close(optimizer_state(other, resumed), optimizer_state(optimizer, network), rtol=0, atol=0)


def test_optimizer_state_is_keyed_by_name_and_survives_another_order_of_groups():
    network, other = small_network(), small_network()
    choice = OptimizerChoice("AdamW", 0.01, 0.9)
    optimizer = build_optimizer(network, choice, weight_decay=0.01)
    take_step(network, optimizer, 0)
    shuffled = build_optimizer(other, choice, weight_decay=0.01)
    shuffled.param_groups.reverse()
    restore_optimizer(shuffled, other, optimizer_state(optimizer, network))
    assert set(optimizer_state(shuffled, other)) == {name for name, _ in network.named_parameters()}
    torch.testing.assert_close(optimizer_state(shuffled, other), optimizer_state(optimizer, network), rtol=0, atol=0)


def test_state_of_a_parameter_that_is_not_there_or_of_another_shape_is_refused():
    network = small_network()
    optimizer = build_optimizer(network, OptimizerChoice("SGD", 0.01, 0.9), weight_decay=0.0)
    with pytest.raises(CheckpointError, match="the network has no parameter 'gone'"):
        restore_optimizer(optimizer, network, {"gone": {"momentum_buffer": torch.zeros(2)}})
    with pytest.raises(
        CheckpointError, match=r"momentum_buffer of '3.bias' has the shape \(7,\), the parameter \(2,\)"
    ):
        restore_optimizer(optimizer, network, {"3.bias": {"momentum_buffer": torch.zeros(7)}})
