"""Scoring weights on data that call their classes differently, or count them in another order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.run.class_names import with_indices_of_weights, with_names_of_weights
from visiontrain.run.val import val_run
from visiontrain.run.verify import verify_run
from visiontrain.sample import DataSet, Record, Records, ScoringLabels

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


def test_crowd_regions_go_with_their_class():
    data = data_of(("blue", "red", "green"), [0])
    (record,) = data.splits["val"]
    crowds = np.tile(np.array([[0, 0, 1, 1]], np.float32), (2, 1))
    scoring = ScoringLabels(np.ones(1), np.zeros(1, bool), crowds, np.array([2, 0]))
    found = with_names_of_weights(
        replace(data, splits={"val": Records([replace(record, scoring=scoring)])}), WEIGHTS, None
    )
    (renumbered,) = found.splits["val"]
    assert renumbered.classes.tolist() == [2]
    assert renumbered.scoring is not None
    assert renumbered.scoring.crowd_classes.tolist() == [1, 2]


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


def translated(names, **settings):
    return with_indices_of_weights(load_config("verify", python=settings), names, WEIGHTS)


def test_classes_that_are_typed_by_number_are_counted_as_the_data_list_them():
    found = translated(("blue", "red", "green"), flip_swap=(0, 1), class_weights=(3.0, 1.0, 2.0))
    assert found.flip_swap == (2, 0)
    assert found.class_weights == (1.0, 2.0, 3.0)
    assert found.is_typed("class_weights")
    found = translated(("green", "rot"), map_names="rot:red", flip_swap=(0, 1), class_weights=(5.0, 7.0))
    assert found.flip_swap == (1, 0)
    assert found.class_weights == (7.0, 5.0, 1.0)


def test_class_weights_of_the_weights_own_training_are_left_as_they_are():
    config = load_config("verify", python={"class_weights": "balanced"})
    assert with_indices_of_weights(config, ("green", "red", "blue"), WEIGHTS).class_weights == "balanced"
    config = load_config("verify", python={}).decide(class_weights=(1.0, 2.0, 3.0))
    assert with_indices_of_weights(config, ("green", "red", "blue"), WEIGHTS).class_weights == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("names", "settings", "text"),
    [
        (
            ("red", "green", "blue"),
            {"class_weights": (1.0, 2.0)},
            "2 are given for 3 classes; give one for each of red",
        ),
        (
            ("red", "rot", "green"),
            {"class_weights": (1.0, 2.0, 3.0), "map_names": "rot:red"},
            "1 and 2 are for classes that map_names makes red of the weights; give them the same",
        ),
    ],
)
def test_class_weights_that_fit_no_class_are_refused(names, settings, text):
    with pytest.raises(ConfigError, match=f"class_weights: {text}"):
        translated(names, **settings)


@pytest.fixture
def colors(tiny_folders, write_weights, tmp_path):
    """Weights of a classifier that were trained with weighted classes, and a data set that lists these as asked."""
    network = build_network({"layers": [[-1, 1, "Conv", [8, 3, 4]], [-1, 1, "Classify", [16]]]}, WEIGHTS)
    weights = write_weights(network, imgsz=32)
    stored = load_checkpoint(weights)
    stored["args"]["values"].update(class_weights=[1.0, 20.0, 0.5], batch=4)
    save_checkpoint(weights, stored)

    def listed(*names):
        path = tmp_path / f"{'-'.join(names)}.yaml"
        folder = tiny_folders(classes=("blue", "green", "red"))
        path.write_text(f"path: {folder}\ntrain: train\nval: val\nnames: [{', '.join(names)}]\n", encoding="utf-8")
        return {"model": str(weights), "data": str(path), "workers": 0}

    return listed


def test_losses_are_weighted_by_class_whatever_the_order_of_the_data(colors, tmp_path):
    def scored(*names):
        keys = {**colors(*names), "plots": False, "save_dir": str(tmp_path / "-".join(names))}
        return val_run(load_config("val", python=keys))

    as_trained, turned = scored(*WEIGHTS), scored("blue", "red", "green")
    assert dict(turned.metrics) == pytest.approx(dict(as_trained.metrics), abs=1e-9)
    assert turned.losses == pytest.approx(as_trained.losses, abs=1e-6)


def test_verify_weighs_and_swaps_the_classes_that_were_meant(colors, monkeypatch):
    seen = {}

    def spied(name, plain):
        monkeypatch.setattr(
            f"visiontrain.tasks.classify.{name}", lambda *given, **keys: seen.update(keys) or plain(*given, **keys)
        )

    from visiontrain.data.transforms.classify import ClassifySettings
    from visiontrain.losses.classification import ClassificationCriterion

    spied("ClassifySettings", ClassifySettings)
    spied("ClassificationCriterion", ClassificationCriterion)
    keys = {**colors("blue", "red", "green"), "batch": 2, "nbs": 4, "quiet": True}
    assert verify_run(load_config("verify", python={**keys, "flip_swap": (0, 1)}), is_silent=True)["passed"]
    assert tuple(seen["class_weights"]) == (1.0, 20.0, 0.5)
    assert seen["flip_swap"] == ((2, 0),)
    verify_run(load_config("verify", python={**keys, "class_weights": (5.0, 6.0, 7.0)}), is_silent=True)
    assert tuple(seen["class_weights"]) == (6.0, 7.0, 5.0)


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
