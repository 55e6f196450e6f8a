"""The offline log of Weights & Biases holds every epoch and every update once; nothing is sent anywhere."""

import json
import struct

import pytest

from visiontrain.errors import ConfigError

pytest.importorskip("wandb", reason="wandb is not installed; pip install 'visiontrain[wandb]'")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

BLOCK, HEADER = 32768, 7


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train").mkdir()
    return tmp_path / "train"


def write(folder, epochs, *, ends=True, **keys):
    from visiontrain.loggers.wandb import WandbLogger

    logger = WandbLogger(folder, settings={"batch": 8}, **keys)
    for epoch in epochs:
        rows = [{"update": number, "box_loss": 0.5 * number, "lr": 0.01} for number in (2 * epoch - 1, 2 * epoch)]
        logger.log("updates", {"rows": rows})
        logger.log("epoch", {"epoch": epoch, "metrics/mAP50(B)": 0.25 * epoch, "val/box_loss": None})
    if ends:
        logger.log("end", {"metrics": {"metrics/mAP50(B)": 0.5}})
    logger.close()


def records_of(data):
    """The records of a log in LevelDB's form behind a header of seven bytes."""
    offset, whole = HEADER, b""
    while offset + HEADER <= len(data):
        left = BLOCK - offset % BLOCK
        if left < HEADER:
            offset += left
            continue
        _, length, kind = struct.unpack("<IHB", data[offset : offset + HEADER])
        whole += data[offset + HEADER : offset + HEADER + length]
        offset += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def read(folder):
    """Rows of history, the summary and the exit codes of all parts of the run."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # its own process writes the files, and has done so when it ends
    history, summary, codes = [], {}, []
    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        for data in records_of(path.read_bytes()):
            record = Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "history" and record.history.item:
                items = record.history.item
                history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
            elif kind == "summary":
                summary |= {item.key: json.loads(item.value_json) for item in record.summary.update}
            elif kind == "exit":
                codes.append(record.exit.exit_code)
    return history, summary, codes


def column(history, axis, name):
    return [(row[axis], row[name]) for row in history if name in row]


def test_a_run_is_there_with_its_epochs_updates_and_best_score(folder):
    write(folder, [1, 2])
    history, summary, codes = read(folder)
    assert column(history, "epoch", "metrics/mAP50(B)") == [(1, 0.25), (2, 0.5)]
    assert column(history, "update", "update/box_loss") == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]
    assert summary["best/mAP50(B)"] == 0.5
    assert codes == [0]


def test_a_run_that_goes_on_repeats_nothing_and_numbers_on(folder):
    write(folder, [1, 2, 3], ends=False)
    write(folder, [3, 4], is_resumed=True)
    history, _, codes = read(folder)
    assert [epoch for epoch, _ in column(history, "epoch", "metrics/mAP50(B)")] == [1, 2, 3, 4]
    assert [update for update, _ in column(history, "update", "update/lr")] == [1, 2, 3, 4, 5, 6, 7, 8]
    numbers = [row["_step"] for row in history]
    assert numbers == sorted(set(numbers))
    assert codes == [1, 0]
    assert len({path.name for path in folder.glob("wandb/offline-run-*/run-*.wandb")}) == 1  # named by the identifier


def test_a_mode_that_there_is_not_is_told_before_training(folder, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "nonsense")
    with pytest.raises(ConfigError, match="logger = wandb: cannot begin with WANDB_MODE = nonsense"):
        write(folder, [])
