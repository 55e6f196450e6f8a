"""`predictions.json` is what COCO's own tools read and score alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.metrics.detections import Detections
from visiontrain.run.coco_results import ResultIds, result_ids, write_results
from visiontrain.run.val import val, val_run
from visiontrain.sample import Record, Records


@pytest.fixture
def coco_data(tiny_yolo, tmp_path):
    """Twelve pictures described by a COCO JSON with odd ids; the path of a YAML, and of the JSON."""
    from visiontrain.data.formats import read_data_set

    records = read_data_set(tiny_yolo(12, folder="plain", box_counts=(1, 2, 0))).splits["val"]
    categories = [{"id": 17, "name": "red"}, {"id": 3, "name": "green"}]
    images = [
        {"id": 1000 + 7 * index, "file_name": one.path.name, "width": 64, "height": 64}
        for index, one in enumerate(records)
    ]
    annotations = [
        {
            "image_id": image["id"],
            "category_id": categories[label]["id"],
            "bbox": [*box[:2], *(box[2:] - box[:2])],
            "area": float((box[2:] - box[:2]).prod()),
            "iscrowd": 0,
        }
        for image, one in zip(images, records, strict=True)
        for box, label in zip(one.boxes.astype(float) * 64, one.classes.tolist(), strict=True)
    ]
    document = {
        "info": {},
        "images": images,
        "categories": categories,
        "annotations": [{"id": number, **one} for number, one in enumerate(annotations, 1)],
    }
    labels = records[0].path.parent / "val.json"
    labels.write_text(json.dumps(document), encoding="utf-8")
    description = tmp_path / "coco.yaml"
    description.write_text(f"val: {labels}\n", encoding="utf-8")
    return description, labels


def score(trained, tmp_path, data, **keys):
    places = {"model": str(trained.best), "data": str(data), "save_dir": str(tmp_path / "scored"), "exist_ok": True}
    options = {"plots": False, "quiet": True, "save_json": True, "conf": 1e-6, "workers": 0}
    return val_run(load_config("val", python={**places, **options, **keys}))


def rows_of(result):
    return json.loads((result.save_dir / "predictions.json").read_text(encoding="utf-8"))


def test_pycocotools_scores_the_file_as_val_does(trained, tmp_path, coco_data, capsys):
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    data, labels = coco_data
    result = score(trained, tmp_path, data)
    truth = coco.COCO(str(labels))
    evaluation = cocoeval.COCOeval(truth, truth.loadRes(str(result.save_dir / "predictions.json")), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    capsys.readouterr()
    ours = [-1 if np.isnan(value) else value for value in result.metrics.coco.document().values()]
    assert result.metrics.box.map > 0
    np.testing.assert_allclose(ours, evaluation.stats, rtol=0, atol=1e-6)


def test_ids_are_those_of_the_coco_file(trained, tmp_path, coco_data):
    data, labels = coco_data
    result = score(trained, tmp_path, data)
    rows = rows_of(result)
    document = json.loads(labels.read_text(encoding="utf-8"))
    assert {row["image_id"] for row in rows} <= {image["id"] for image in document["images"]}
    assert {row["category_id"] for row in rows} == {3, 17}
    assert len(rows) == sum(len(found.scores) for found in result.metrics.scored.detections.values())
    first = result.metrics.scored.detections[0]
    of_first = [row for row in rows if row["image_id"] == 1000]
    assert [row["score"] for row in of_first] == first.scores.tolist()
    assert of_first[0]["bbox"] == [*first.boxes[0, :2], *(first.boxes[0, 2:] - first.boxes[0, :2])]


def test_elsewhere_an_image_is_called_by_its_name_and_a_class_by_its_index(trained, tmp_path, tiny_yolo):
    data = tiny_yolo(4, folder="yolo")
    (data.parent / "images" / "val" / "003.png").rename(data.parent / "images" / "val" / "last one.png")
    (data.parent / "labels" / "val" / "003.txt").rename(data.parent / "labels" / "val" / "last one.txt")
    rows = rows_of(score(trained, tmp_path, data))
    assert {row["image_id"] for row in rows} == {0, 1, 2, "last one"}
    assert {row["category_id"] for row in rows} == {0, 1}


def test_classes_go_by_what_they_are_mapped_to_and_those_that_the_data_lack_are_left_out(
    trained, tmp_path, coco_data, capsys
):
    data, labels = coco_data
    document = json.loads(labels.read_text(encoding="utf-8"))
    document["categories"] = [{"id": 17, "name": "crimson"}]
    document["annotations"] = [one for one in document["annotations"] if one["category_id"] == 17]
    labels.write_text(json.dumps(document), encoding="utf-8")
    result = score(trained, tmp_path, data, map_names="crimson:red")
    rows = rows_of(result)
    found = np.concatenate([one.classes for one in result.metrics.scored.detections.values()])
    assert len(rows) == (found == 0).sum() > 0
    assert {row["category_id"] for row in rows} == {17}
    assert (
        f"; {(found == 1).sum()} detections of classes that the data do not have are not in it"
        in capsys.readouterr().out
    )


def test_two_images_of_one_name_are_refused_before_anything_is_scored(trained, tmp_path, tiny_yolo):
    data = tiny_yolo(4, folder="yolo")
    folder = data.parent / "images" / "val"
    (folder / "sub").mkdir()
    (folder / "000.png").rename(folder / "sub" / "1.png")
    (folder / "sub" / "1.txt").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"save_json: .* would both be image 1; rename one"):
        score(trained, tmp_path, data)
    assert not (tmp_path / "scored").exists()


def test_with_one_class_for_all_its_index_is_written(trained, tmp_path):
    records = Records([Record(tmp_path / "007.png", 8, 8, np.zeros((1, 4), np.float32), np.zeros(1, np.int64))])
    config = load_config("val", python={"data": str(tmp_path), "single_cls": True})
    ids = result_ids(config, records, data_names=("object",), names=("object",))
    assert ids == ResultIds([7], {0: 0})


def test_no_detections_are_an_empty_list(tmp_path):
    path = tmp_path / "predictions.json"
    nothing = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    assert write_results(path, {0: nothing}, ResultIds(["a"], {0: 0})) == 0
    assert json.loads(path.read_text(encoding="utf-8")) == []


def test_without_save_json_no_file_is_written(trained, tmp_path, tiny_yolo):
    result = score(trained, tmp_path, tiny_yolo(2, folder="two"), save_json=False)
    assert not list(Path(result.save_dir).glob("predictions*"))


def test_the_file_is_named_in_the_answer(trained, tmp_path, tiny_yolo, capsys):
    keys = {"model": str(trained.best), "data": str(tiny_yolo(2, folder="two")), "save_dir": str(tmp_path / "scored")}
    val(load_config("val", python={**keys, "plots": False, "save_json": True}))
    assert f"detections in {tmp_path / 'scored' / 'predictions.json'}\n" in capsys.readouterr().out
