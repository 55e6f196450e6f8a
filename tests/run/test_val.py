"""Scoring trained weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from visiontrain.cli import main
from visiontrain.config.load import load_config
from visiontrain.data.formats import read_data_set
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import CheckpointError, ConfigError, DataError
from visiontrain.run.val import val, val_run
from visiontrain.tasks.detect import DETECT


def settings(trained, tmp_path, **keys):
    return load_config("val", python={"model": str(trained.best), "save_dir": str(tmp_path / "scored"), **keys})


def test_one_json_document_is_all_that_is_printed(trained, tmp_path, capsys):
    val(settings(trained, tmp_path, json=True, plots=False))
    printed = json.loads(capsys.readouterr().out)
    assert "metrics/mAP50-95(B)" in printed
    assert "val/box_loss" in printed
    assert set(printed["coco"]) >= {"AP", "AP50", "ARl"}
    assert [row["name"] for row in printed["per_class"]] == ["red", "green"]
    assert sum(map(sum, printed["confusion"][:-1])) == printed["instances"] == 8
    assert [kind["kind"] for kind in printed["errors"]][-1] == "missed"
    assert printed["intervals"] == {}  # eight images are too few


def test_intervals_are_printed_where_there_are_few_images_but_not_too_few(trained, tmp_path, tiny_yolo, capsys):
    result = val_run(settings(trained, tmp_path, data=str(tiny_yolo(12, folder="twelve")), plots=False))
    low, high = json.loads((result.save_dir / "results.json").read_text(encoding="utf-8"))["intervals"][
        "metrics/mAP50-95(B)"
    ]
    assert 0 <= low <= result.metrics.box.map <= high
    expected = f"95 % intervals, as there are only 12 images: mAP50-95 [{low:.3f}, {high:.3f}], mAP50 ["
    assert expected in capsys.readouterr().out
    val_run(settings(trained, tmp_path, plots=False, exist_ok=True))
    assert "% intervals" not in capsys.readouterr().out


def test_pictures_and_a_table_come_with_it(trained, tmp_path, capsys):
    val(settings(trained, tmp_path))
    assert list((tmp_path / "scored").glob("val_batch*_pred.jpg"))
    printed = capsys.readouterr().out
    assert "mAP50-95" in printed
    assert "green" in printed


def test_another_split_can_be_scored(trained, tmp_path):
    found = val_run(settings(trained, tmp_path, split="train", plots=False, quiet=True))
    assert found.metrics.images == 8
    with pytest.raises(DataError, match="names no images for test"):
        val_run(settings(trained, tmp_path, split="test"))


def test_other_class_names_are_refused(trained, tmp_path, tiny_yolo):
    other = tiny_yolo(2, folder="other")
    other.write_text(other.read_text(encoding="utf-8").replace("green", "blue"), encoding="utf-8")
    with pytest.raises(ConfigError, match="its classes are red, blue; those of the weights are red, green"):
        val_run(settings(trained, tmp_path, data=str(other)))


@pytest.mark.parametrize("model", [None, "det-n"])
def test_a_network_without_weights_is_refused(tmp_path, model):
    keys = {} if model is None else {"model": model}
    with pytest.raises(ConfigError, match=r"name trained weights, such as"):
        val_run(load_config("val", python=keys))


def test_a_damaged_file_is_refused(trained, tmp_path):
    content = bytearray(trained.best.read_bytes())
    content[len(content) // 2] ^= 1
    trained.best.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        val_run(settings(trained, tmp_path))
    assert not (tmp_path / "scored").exists()


@pytest.mark.parametrize("mode", ["val", "compare"])
def test_scoring_that_is_broken_off_leaves_no_folder_and_ends_with_130(trained, tmp_path, monkeypatch, capsys, mode):
    monkeypatch.chdir(tmp_path)
    drawn = []

    def break_off(scorer, network):
        (places,) = (tmp_path / "runs" / "detect").iterdir()
        drawn.append(places.name)
        raise KeyboardInterrupt

    monkeypatch.setattr("visiontrain.run.score.Scorer.score", break_off)
    weights = ["weights=" + str(trained.last)] if mode == "compare" else []
    assert main([mode, f"model={trained.best}", *weights, "workers=0"]) == 130
    assert drawn == [mode]
    assert not list((tmp_path / "runs" / "detect").iterdir())
    assert capsys.readouterr().err == f"visiontrain {mode}: stopped\n"


def test_image_size_and_keys_without_effect_are_told_together(trained, tmp_path):
    with pytest.raises(ConfigError) as caught:
        val_run(settings(trained, tmp_path, imgsz=33, multi_label=True))
    assert [fault.split(" ")[0] for fault in caught.value.faults] == ["multi_label:", "imgsz"]


@pytest.fixture(scope="module")
def uneven_set(tmp_path_factory):
    """Pictures of three shapes; a network for them that finds plenty, though it was never trained."""
    import numpy as np
    from PIL import Image

    root = tmp_path_factory.mktemp("uneven")
    rng = np.random.default_rng(0)
    (root / "images").mkdir()
    (root / "labels").mkdir()
    for index in range(11):
        width, height = [(64, 64), (96, 48), (50, 70)][index % 3]
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(root / "images" / f"{index}.png")
        rows = [f"{label} {x:.3f} {y:.3f} 0.4 0.4\n" for label, (x, y) in enumerate(rng.uniform(0.2, 0.8, (2, 2)))]
        (root / "labels" / f"{index}.txt").write_text("".join(rows[: index % 3]))
    (root / "data.yaml").write_text("train: images\nval: images\nnames: [red, green]\n")
    return root / "data.yaml"


def outcome(metrics):
    """All that is measured, to the last bit."""
    found = [
        (index, image.boxes.tolist(), image.scores.tolist(), image.classes.tolist())
        for index, image in sorted(metrics.scored.detections.items())
    ]
    return repr((metrics.box, metrics.coco, metrics.per_class, metrics.best_threshold, found))


def test_scores_do_not_depend_on_the_size_of_batches(trained, tmp_path, uneven_set):
    keys = {"data": str(uneven_set), "plots": False, "quiet": True, "conf": 1e-6, "workers": 0}
    metrics = [
        val_run(settings(trained, tmp_path, batch=batch, exist_ok=True, **keys)).metrics for batch in (1, 2, 5, 16)
    ]
    assert sum(len(image.scores) for image in metrics[0].scored.detections.values()) > 100
    assert len({outcome(one) for one in metrics}) == 1


@pytest.mark.slow
def test_scores_do_not_depend_on_workers(trained, tmp_path, uneven_set):
    keys = {"data": str(uneven_set), "plots": False, "quiet": True, "conf": 1e-6, "exist_ok": True}
    metrics = [
        val_run(settings(trained, tmp_path, batch=batch, workers=workers, **keys)).metrics
        for batch in (2, 5)
        for workers in (0, 2)
    ]
    assert len({outcome(one) for one in metrics}) == 1


def test_the_best_thresholds_are_in_the_checkpoint(trained):
    stored = load_checkpoint(trained.best)["metrics"]
    thresholds = {name: value for name, value in stored.items() if name.startswith("best_threshold")}
    assert set(thresholds) == {"best_threshold", "best_threshold/red", "best_threshold/green"}
    assert all(0 <= value < 1 for value in thresholds.values())
    assert thresholds["best_threshold"] == trained.metrics.best_threshold


@pytest.fixture
def crowded_set(tmp_path, tiny_yolo):
    """Four objects as COCO tells of them, the first of them a crowd region, the second of another class."""
    data = read_data_set(tiny_yolo(4, folder="plain")).splits["val"]
    annotations = [
        {"image_id": index, "category_id": label, "bbox": [*box[:2], *(box[2:] - box[:2])], "area": 5000.0}
        for index, record in enumerate(data)
        for box, label in zip(record.boxes.astype(float) * 64, record.classes.tolist(), strict=True)
    ]
    annotations[0]["iscrowd"] = 1
    document = {
        "images": [{"id": i, "file_name": one.path.name, "width": 64, "height": 64} for i, one in enumerate(data)],
        "annotations": [{"id": number, **one} for number, one in enumerate(annotations)],
        "categories": [{"id": 0, "name": "red"}, {"id": 1, "name": "green"}],
    }
    labels = data[0].path.parent / "val.json"
    labels.write_text(json.dumps(document))
    description = tmp_path / "coco.yaml"
    description.write_text(f"val: {labels}\n")
    return description


def test_crowd_regions_and_areas_of_a_coco_file_reach_the_score(trained, tmp_path, crowded_set, capsys):
    found = val_run(settings(trained, tmp_path, data=str(crowded_set), plots=False))
    assert (found.metrics.instances, found.metrics.num_ignored) == (3, 1)
    assert math.isnan(found.metrics.coco.ap_small)  # by their boxes all are small
    assert not math.isnan(found.metrics.coco.ap_medium)
    assert "1 crowd regions and difficult objects are passed over" in capsys.readouterr().out


def test_as_one_class_crowd_regions_are_of_it_too(crowded_set):
    labels = Path(crowded_set.read_text(encoding="utf-8").removeprefix("val: ").strip())
    labels.write_text(labels.read_text(encoding="utf-8").replace('"category_id": 0', '"category_id": 1'))
    config = load_config("val", python={"data": str(crowded_set), "single_cls": True, "model": "best.pt"})
    first, *_ = DETECT.read(config, ("val",)).splits["val"]
    assert first.scoring is not None
    assert first.scoring.crowd_classes.tolist() == [0]


def test_the_folder_of_a_training_run_is_not_written_into(trained, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in trained.save_dir.rglob("*")}
    with pytest.raises(ConfigError, match="is the folder of a training run, whose results"):
        val_run(settings(trained, tmp_path, save_dir=str(trained.save_dir), exist_ok=True))
    assert {path: path.stat().st_mtime_ns for path in trained.save_dir.rglob("*")} == before
