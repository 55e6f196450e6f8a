"""A checkpoint that is damaged in any way is refused with one sentence, and the one before it is used."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
import zipfile

import pytest
import torch

from visiontrain.cli import main
from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import DIGEST_PREFIX, load_checkpoint
from visiontrain.errors import CheckpointError
from visiontrain.run.resuming import go_on

pytestmark = pytest.mark.slow


@pytest.fixture
def run_folder(run_training, tmp_path):
    """Of a run that has two checkpoints."""
    run_training(epochs=2, workers=0, val=False)
    (tmp_path / "run" / "results.json").unlink()
    return tmp_path / "run"


def damaged(content: bytes, rng: random.Random) -> bytes:
    kind = rng.choice(["cut", "flip", "flip", "burst", "zeros", "longer"])
    place = rng.randrange(len(content))
    if kind == "cut":
        return content[:place]
    if kind == "longer":
        return content + rng.randbytes(rng.randint(1, 100))
    changed = bytearray(content)
    if kind == "flip":
        changed[place] ^= 1 << rng.randrange(8)
    elif kind == "burst":
        changed[place : place + 16] = bytes(byte ^ 0xA5 for byte in changed[place : place + 16])
    else:
        block = range(place, min(place + 4096, len(changed)))
        changed[place : place + 4096] = bytes(len(block))
    return bytes(changed)


def test_damaged_checkpoints_are_all_refused_and_the_one_before_is_used(run_folder, dose):
    last = run_folder / "weights" / "last.pt"
    whole, before = last.read_bytes(), load_checkpoint(last.with_name("previous.pt"))
    config = load_config("train", python={"resume": str(run_folder)})
    rng, refused = random.Random(0), 0
    for _ in range(dose(50, full=1000)):
        content = damaged(whole, rng)
        if content == whole:  # zeros over zeros
            continue
        last.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"last\.pt: ") as caught:
            load_checkpoint(last)
        (fault,) = caught.value.faults
        assert "\n" not in fault
        resumed = go_on(config)
        assert resumed.is_last_damaged
        assert resumed.checkpoint is not None
        assert resumed.checkpoint["plan"]["window"] == before["plan"]["window"]
        assert fault in resumed.changes[0]
        refused += 1
    assert refused >= dose(45, full=950)


class Evil:
    def __init__(self, sentinel):
        self._sentinel = sentinel

    def __reduce__(self):
        return os.mkdir, (str(self._sentinel),)


def with_digest(body: bytes) -> bytes:
    """As if this program had written it."""
    body = body[:-2]
    comment = DIGEST_PREFIX + hashlib.sha256(body).hexdigest().encode()
    return body + len(comment).to_bytes(2, "little") + comment


def malicious_files(sentinel, honest):
    """Pickles that make a folder when they are read, in the forms that torch has."""
    evil = Evil(sentinel)
    yield pickle.dumps(evil)
    for keys in ({}, {"_use_new_zipfile_serialization": False}):
        buffer = io.BytesIO()
        torch.save({**honest, "args": evil}, buffer, **keys)
        yield buffer.getvalue()
        if not keys:
            yield with_digest(buffer.getvalue())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(evil))
        archive.writestr("archive/version", "3\n")
    yield with_digest(buffer.getvalue())


def test_pickles_that_carry_code_are_refused_and_run_nothing(run_folder, tmp_path, tiny_yolo, monkeypatch, capsys):
    images = tiny_yolo(1, folder="others").parent / "images" / "val"
    monkeypatch.chdir(tmp_path)
    last = run_folder / "weights" / "last.pt"
    honest, sentinel = load_checkpoint(last), tmp_path / "executed"
    config = load_config("train", python={"resume": str(run_folder)})
    for content in malicious_files(sentinel, honest):
        last.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"last\.pt: "):
            load_checkpoint(last)
        assert go_on(config).is_last_damaged
        for words in (["val", f"model={last}"], ["predict", f"model={last}", f"source={images}"]):
            capsys.readouterr()
            assert main(words) == 2
            assert "last.pt" in capsys.readouterr().err
        (tmp_path / "evil.pt").write_bytes(content)
        # A file of another program may hold names of code beside its weights; they are passed over or refused.
        assert main(["convert", f"weights={tmp_path / 'evil.pt'}"]) in (0, 2)
        assert not sentinel.exists()
