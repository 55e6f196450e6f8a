"""Comparing two trained models."""

from __future__ import annotations

import json

import pytest

from visiontrain import Model
from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint
from visiontrain.errors import ConfigError, UserError
from visiontrain.models.classifiers import build_classifier
from visiontrain.run.class_names import maps_of_both
from visiontrain.run.compare import compare, compare_run
from visiontrain.run.val import val_run


def changed(path, folder, **contents):
    """A copy of weights with other contents."""
    checkpoint = load_checkpoint(path)
    target = folder / "other.pt"
    save_checkpoint(target, {**checkpoint, **contents})
    return target


def noisy(path, folder):
    """A copy of weights that finds something else."""
    import torch

    weights = dict(load_checkpoint(path)["ema"])
    generator = torch.Generator().manual_seed(0)
    for name, tensor in weights.items():
        if tensor.dtype == torch.float32 and tensor.ndim > 1:
            weights[name] = tensor + 0.05 * torch.randn(tensor.shape, generator=generator)
    return changed(path, folder, ema=weights)


def settings(trained, other, tmp_path, **keys):
    places = {"model": str(trained.best), "weights": str(other), "save_dir": str(tmp_path / "compared")}
    return load_config("compare", python={**places, "workers": 0, **keys})


@pytest.fixture
def data(tiny_yolo):
    return str(tiny_yolo(12, folder="twelve"))


def test_both_models_score_what_val_scores_them(trained, tmp_path, data):
    other = noisy(trained.best, tmp_path)
    found = compare_run(settings(trained, other, tmp_path, data=data), is_silent=True)
    keys = {"data": data, "plots": False, "quiet": True, "exist_ok": True, "save_dir": str(tmp_path / "scored")}
    for path, name in ((trained.best, "a"), (other, "b")):
        metrics = val_run(load_config("val", python={"model": str(path), **keys})).metrics
        for one in found.metrics:
            assert getattr(one, name) == pytest.approx(metrics[one.name], abs=1e-9)
        rows = {row.name: row.ap for row in metrics.per_class}
        assert {one.name: getattr(one, name) for one in found.per_class} == pytest.approx(rows, abs=1e-9)
    assert found.images == 12
    assert found.metrics[0].name == "metrics/mAP50-95(B)"


def test_a_model_does_not_differ_from_itself(trained, tmp_path, data):
    found = compare_run(settings(trained, trained.best, tmp_path, data=data), is_silent=True)
    assert found.better is None
    assert all((one.difference, one.low, one.high) == (0, 0, 0) for one in found.metrics)
    assert found.whole_images.p == 1


def test_the_command_prints_a_table_and_json_prints_the_file_it_writes(trained, tmp_path, data, capsys):
    compare(settings(trained, trained.last, tmp_path, data=data))
    printed = capsys.readouterr().out
    assert f"a: {trained.best}\nb: {trained.last}\n" in printed
    assert "no difference that 12 images could show (mAP50-95)" in printed
    compare(settings(trained, trained.last, tmp_path, data=data, json=True, exist_ok=True))
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "compared" / "compare.json").read_text(encoding="utf-8"))
    assert document["better"] is None


def test_from_python_the_document_is_returned(trained, tmp_path, data, capsys):
    document = Model(trained.best).compare(
        trained.last, data=data, quiet=True, workers=0, save_dir=str(tmp_path / "compared")
    )
    assert {"a", "b", "split", "images", "metrics", "per_class", "whole_images", "better", "verdict"} == set(document)
    assert capsys.readouterr().out == ""


def test_the_second_model_is_scored_on_the_data_of_the_first(trained, tmp_path, data):
    args = load_checkpoint(trained.best)["args"]
    other = changed(trained.best, tmp_path, args={**args, "values": {**args["values"], "data": "elsewhere.yaml"}})
    found = compare_run(settings(trained, other, tmp_path), is_silent=True)
    assert found.images == 8


def test_models_that_count_their_classes_in_another_order_are_compared_by_name(trained, tmp_path, data):
    other = changed(trained.best, tmp_path, names=["green", "red"])
    found = compare_run(settings(trained, other, tmp_path, data=data), is_silent=True)
    assert [one.name for one in found.per_class] == ["red", "green"]
    swapped = compare_run(
        settings(trained, other, tmp_path, data=data, save_dir=str(tmp_path / "again")), is_silent=True
    )
    assert swapped.per_class == found.per_class


def test_models_of_other_classes_are_refused_unless_these_are_mapped(trained, tmp_path, data):
    other = changed(trained.best, tmp_path, names=["red", "leaf"])
    with pytest.raises(ConfigError, match=r"the classes of the two models differ: red, green; and red, leaf\. Give"):
        compare_run(settings(trained, other, tmp_path, data=data))
    with pytest.raises(ConfigError, match="map_names: neither model has a class 'lawn'; they have red, green, leaf"):
        compare_run(settings(trained, other, tmp_path, data=data, map_names="green:lawn"))
    with pytest.raises(ConfigError, match="become 1 in one model and 2 in the other"):
        compare_run(settings(trained, other, tmp_path, data=data, map_names="red:leaf,green:red"))
    assert not (tmp_path / "compared").exists()
    found = compare_run(settings(trained, other, tmp_path, data=data, map_names="green:leaf"), is_silent=True)
    assert all(one.difference == 0 for one in (*found.metrics, *found.per_class))


def test_each_model_is_given_the_names_that_it_has():
    assert maps_of_both(("a", "b"), ("b", "a"), None) == (None, None)
    assert maps_of_both(("a", "b"), ("a", "c"), "x:b,y:c") == ("x:b", "y:c")
    assert maps_of_both(("a", "b"), ("a", "c"), "x:a") == ("x:a", "x:a")
    assert maps_of_both(("a", "b"), ("a", "c"), "x:c") == (None, "x:c")


def test_both_files_are_looked_at_before_anything_is_said(trained, tmp_path):
    with pytest.raises(UserError) as error:
        compare_run(load_config("compare", python={"model": "first.pt", "weights": "second.pt"}))
    assert [fault.split(":")[0] for fault in error.value.faults] == ["first.pt", "second.pt"]
    with pytest.raises(ConfigError, match=r"weights: is not given; type both weights files"):
        compare_run(load_config("compare", python={"model": str(trained.best)}))
    with pytest.raises(ConfigError, match=r"gone\.pt: cannot be read"):
        compare_run(settings(trained, "gone.pt", tmp_path))
    with pytest.raises(ConfigError, match="'det-n', which is not a weights file"):
        compare_run(settings(trained, "det-n", tmp_path))


def test_image_size_and_keys_without_effect_are_told_together_and_once(trained, tmp_path):
    with pytest.raises(ConfigError) as caught:
        compare_run(settings(trained, trained.last, tmp_path, imgsz=33, multi_label=True))
    assert [fault.split(" ")[0] for fault in caught.value.faults] == ["multi_label:", "imgsz"]
    with pytest.raises(UserError) as caught:
        compare_run(settings(trained, "gone.pt", tmp_path, imgsz=33, multi_label=True))
    assert [fault.split(" ")[0] for fault in caught.value.faults] == ["multi_label:", "imgsz", "gone.pt:"]


def test_two_tasks_are_not_compared(trained, tmp_path, small_classifier, write_weights):
    other = write_weights(build_classifier(str(small_classifier), ("red", "green"), imgsz=64))
    with pytest.raises(ConfigError, match=r"is for classify, and model = .* for detect; compare two of one task"):
        compare_run(settings(trained, other, tmp_path))


def test_classifiers_are_compared_by_what_they_recognize(tmp_path, small_classifier, write_weights, tiny_folders):
    folders = tiny_folders(6)
    weights = []
    for name in ("first", "second"):
        network = build_classifier(str(small_classifier), ("green", "red"), imgsz=64)
        weights.append(str(write_weights(network, data=folders, folder=name)))
    places = {"model": weights[0], "weights": weights[1], "save_dir": str(tmp_path / "compared"), "workers": 0}
    found = compare_run(load_config("compare", python={**places, "map_names": None}), is_silent=True)
    whole = found.whole_images
    assert found.metrics[0].a == pytest.approx((whole.both + whole.a_alone) / 12)
    assert found.metrics[0].b == pytest.approx((whole.both + whole.b_alone) / 12)
    assert [one.name for one in found.metrics] == ["metrics/accuracy_top1", "metrics/accuracy_top5"]
    recalls = [one.a for one in found.per_class]
    assert sum(recalls) / 2 == pytest.approx(found.metrics[0].a)


def test_a_classifier_of_several_classes_an_image_is_not_compared_with_one_of_one_class(
    tmp_path, small_classifier, write_weights, tiny_folders
):
    names, data = ("green", "red"), tiny_folders(2)
    first = write_weights(build_classifier(str(small_classifier), names, imgsz=64), data=data, folder="first")
    network = build_classifier(str(small_classifier), names, imgsz=64, multi_label=True)
    second = write_weights(network, data=data, folder="second")
    args = load_checkpoint(second)["args"]
    other = changed(second, tmp_path, args={**args, "values": {**args["values"], "multi_label": True}})
    keys = {"model": str(first), "weights": str(other), "save_dir": str(tmp_path / "compared")}
    with pytest.raises(ConfigError, match=r"multi_label = False: the network's own, .* is True"):
        compare_run(load_config("compare", python=keys))
    assert not (tmp_path / "compared").exists()


def test_each_file_is_blamed_under_its_own_key(trained, tmp_path):
    asked = load_config("compare", python={"model": "det-n", "weights": "det-s", "save_dir": str(tmp_path / "c")})
    with pytest.raises(ConfigError) as refused:
        compare_run(asked)
    assert [fault.partition(":")[0] for fault in refused.value.faults] == ["model", "weights"]
    assert not (tmp_path / "c").exists()
