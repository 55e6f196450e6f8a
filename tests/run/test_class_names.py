"""Scoring weights on data that call their classes differently, or count them in another order."""

from pathlib import Path

import numpy as np
import pytest

from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.run.class_names import with_names_of_weights
from visiontrain.run.val import val_run
from visiontrain.sample import DataSet, Record, Records

WEIGHTS = ("red", "green", "blue")


def data_of(names, classes):
    boxes = np.tile(np.array([[0.1, 0.1, 0.5, 0.5]], np.float32), (len(classes), 1))
    records = Records([Record(Path("a.png"), 10, 10, boxes, np.array(classes, np.int64))])
    return DataSet(Path("data"), tuple(names), {"val": records}, notes=("before",))


def test_equal_names_in_equal_order_are_left_alone():
    data = data_of(WEIGHTS, [0, 1, 2])
    assert with_names_of_weights(data, WEIGHTS, None) is data


def test_another_order_is_put_right_by_name_and_told():
    found = with_names_of_weights(data_of(("blue", "red", "green"), [0, 1, 2, 0]), WEIGHTS, None)
    assert found.names == WEIGHTS
    assert found.splits["val"].classes.tolist() == [2, 0, 1, 2]
    assert found.notes[0] == "before"
    assert "in another order" in found.notes[1]


def test_other_names_are_mapped_and_the_left_over_classes_of_the_weights_are_told():
    found = with_names_of_weights(data_of(("rot", "red"), [0, 1, 1]), WEIGHTS, "rot:blue")
    assert found.names == WEIGHTS
    assert found.splits["val"].classes.tolist() == [2, 0, 0]
    assert found.notes[1:] == (
        "classes: rot of the data is blue of the weights",
        "classes: the data count them in another order than the weights; they are matched by name",
        "classes: no class of the data is green of the weights",
    )


def test_two_classes_may_become_one_and_an_image_is_of_it_once():
    names = ("car", "truck", "dog")
    found = with_names_of_weights(data_of(names, [0, 1, 2]), ("vehicle", "dog"), "car:vehicle, truck:vehicle")
    assert found.splits["val"].classes.tolist() == [0, 0, 1]
    images = Records([Record(Path("a.png"), 10, 10, np.zeros((0, 4), np.float32), np.array([0, 1, 2]))])
    found = with_names_of_weights(
        DataSet(Path("data"), names, {"val": images}), ("vehicle", "dog"), "car:vehicle,truck:vehicle"
    )
    assert found.splits["val"].classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("names", "map_names", "text"),
    [
        (("red", "green", "gelb"), None, "gelb must be told of which class .* such as map_names=gelb:blue; to learn"),
        (("red", "green"), None, "no class of the data is blue; a data set of fewer classes is scored with map_names="),
        (("red", "green", "gelb"), "gelb", "'gelb' is not two names; write name of the data:name of the weights"),
        (("red", "green", "gelb"), "gelb:blue,gelb:red", "'gelb' stands on the left twice"),
        (("red", "green", "gelb"), "yellow:blue", "the data have no class 'yellow'; they have red, green, gelb"),
        (("red", "green", "gelb"), "gelb:blau", "the weights have no class 'blau'; they have red, green, blue"),
    ],
)
def test_what_is_not_told_or_told_wrong_is_refused(names, map_names, text):
    with pytest.raises(ConfigError, match=text):
        with_names_of_weights(data_of(names, [0]), WEIGHTS, map_names)


@pytest.mark.slow
def test_scores_do_not_depend_on_the_names_and_the_order_of_the_data(run_training, tiny_yolo, tmp_path, capsys):
    result = run_training(epochs=4)
    turned = tiny_yolo(8, folder="turned")
    text = turned.read_text(encoding="utf-8")
    turned.write_text(text.replace("[red, green]", "[gruen, red]"), encoding="utf-8")
    for labels in (turned.parent / "labels").rglob("*.txt"):
        rows = [f"{1 - int(row[0])}{row[1:]}" for row in labels.read_text(encoding="utf-8").splitlines()]
        labels.write_text("\n".join(rows) + "\n", encoding="utf-8")
    keys = {"model": str(result.best), "plots": False, "save_dir": str(tmp_path / "scored")}
    found = val_run(load_config("val", python={**keys, "data": str(turned), "map_names": "gruen:green"}))
    assert dict(found.metrics) == pytest.approx(dict(result.metrics), abs=1e-9)
    assert "gruen of the data is green of the weights" in capsys.readouterr().out
