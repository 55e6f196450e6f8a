"""Classification by the commands and from Python: whole runs of a tiny network on tiny pictures."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from visiontrain import Model
from visiontrain.cli import main
from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError, DataError
from visiontrain.run import pictures
from visiontrain.run.prepare import read_data
from visiontrain.run.train import TrainResult, train_run
from visiontrain.run.val import val_run
from visiontrain.tasks.classify import CLASSIFY

HEADER = (
    "epoch,time,updates,images,train/loss,metrics/accuracy_top1,metrics/accuracy_top5,val/loss,"
    "lr/weight,lr/norm,lr/bias,t_data,t_step,t_val"
)
TOP1, TOP5 = "metrics/accuracy_top1", "metrics/accuracy_top5"
IMGSZ = 32


@pytest.fixture(scope="module")
def keys(small_classifier):
    """Of a run that takes half a second."""
    return {
        "model": str(small_classifier),
        "imgsz": IMGSZ,
        "epochs": 1,
        "batch": 4,
        "nbs": 8,
        "workers": 0,
        "quiet": True,
        "plots": False,
    }


@pytest.fixture
def run(keys, tmp_path):
    """A function that trains and returns the result; the run folder is `tmp_path / "run"`."""

    def train(**settings) -> TrainResult:
        return train_run(load_config("train", python={**keys, "save_dir": str(tmp_path / "run"), **settings}))

    return train


@pytest.fixture(scope="module")
def folders(tiny_folders) -> Path:
    return tiny_folders(classes=("blue", "green", "red"))


@pytest.fixture(scope="module")
def trained(keys, folders, tmp_path_factory) -> TrainResult:
    """A run on `folders`, with pictures; not to be changed."""
    place = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISIONTRAIN_CACHE", str(place / "cache"))
        settings = {**keys, "data": str(folders), "save_dir": str(place / "run"), "epochs": 2, "plots": True}
        return train_run(load_config("train", python=settings))


@pytest.fixture
def several_labels(tmp_path) -> Path:
    """A CSV whose images are of none, one, two or all of three classes."""
    rng = np.random.default_rng(0)
    root = tmp_path / "several"
    root.mkdir()
    rows = ["path,label,split"]
    for split in ("train", "val"):
        for number in range(8):
            name = f"{split}{number}.png"
            Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(root / name)
            names = [letter for place, letter in enumerate("abc") if number >> place & 1]
            rows.append(f"{name},{'|'.join(names)},{split}")
    (root / "labels.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return root / "labels.csv"


def words(**settings) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def log_of(folder: Path) -> str:
    return (folder / "train.log").read_text(encoding="utf-8")


def images_by_class(metrics) -> dict[str, int]:
    return {row.name: row.images for row in metrics.per_class}


# What a run leaves behind.


@pytest.mark.slow
def test_a_run_leaves_what_the_document_says(trained):
    folder = trained.save_dir
    assert (folder / "results.csv").read_text(encoding="utf-8").splitlines()[0] == HEADER
    rows = rows_of(folder)
    assert [int(row["epoch"]) for row in rows] == [1, 2]
    assert all(row[name] for row in rows for name in HEADER.split(","))
    final = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert final["metrics"] == dict(trained.metrics) == {TOP1: trained.metrics[TOP1], TOP5: 1.0}
    assert json.loads((folder / "plan.json").read_text(encoding="utf-8"))["updates"] == trained.updates
    args = yaml.safe_load((folder / "args.yaml").read_text(encoding="utf-8"))
    assert (args["imgsz"], args["lr0"], args["loss"]) == (IMGSZ, 0.02, "auto")
    checkpoint = load_checkpoint(trained.best)
    assert (checkpoint["task"], checkpoint["names"]) == ("classify", ["blue", "green", "red"])


@pytest.mark.parametrize("name", ["train_batch0.jpg", "val_batch0_labels.jpg", "val_batch0_pred.jpg", "results.png"])
def test_a_run_draws_pictures_that_are_not_empty(trained, name):
    assert np.asarray(Image.open(trained.save_dir / name)).std() > 10


def test_pictures_show_all_classes_though_the_split_is_sorted_by_them(trained, tiny_folders, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        pictures, "draw_targets", lambda task, batch, names, path: drawn.append(batch.targets["classes"])
    )
    data = tiny_folders(7, classes=("blue", "green", "red"), splits=("val",))
    val_run(load_config("val", python={"model": str(trained.best), "data": str(data), "save_dir": str(tmp_path / "v")}))
    assert [len(classes) for classes in drawn] == [4, 4, 4]  # batch=4
    assert torch.cat(drawn).flatten().bincount().tolist() == [4, 4, 4]


@pytest.mark.slow
def test_the_argument_file_repeats_the_run(trained, tmp_path):
    code = main(["train", f"cfg={trained.save_dir / 'args.yaml'}", *words(save_dir=tmp_path / "again", plots=False)])
    assert code == 0
    assert same_weights(trained.last, tmp_path / "again" / "weights" / "last.pt")


def same_weights(first: Path, second: Path) -> bool:
    a, b = load_checkpoint(first), load_checkpoint(second)
    assert a["model"].keys() == b["model"].keys()
    return all(torch.equal(a[key][name], b[key][name]) for key in ("model", "ema") for name in a[key])


@pytest.mark.slow
def test_a_run_that_goes_on_ends_with_the_bits_of_one_that_was_never_stopped(run, folders, tmp_path):
    settings = {"mixup": 0.3, "cutmix": 0.3, "class_weights": "balanced", "dropout": 0.2, "label_smoothing": 0.1}
    whole = run(data=str(folders), epochs=4, save_period=2, **settings)
    copy = tmp_path / "copy"
    shutil.copytree(whole.save_dir, copy)
    went_on = train_run(load_config("train", python={"resume": str(copy / "weights" / "epoch2.pt"), "quiet": True}))
    assert went_on.save_dir == copy
    assert same_weights(whole.last, went_on.last)
    assert [row["train/loss"] for row in rows_of(copy)] == [row["train/loss"] for row in rows_of(whole.save_dir)]


@pytest.mark.slow
def test_it_stops_where_nothing_gets_better(run, folders):
    result = run(data=str(folders), epochs=6, patience=1, optimizer="SGD", lr0=1e-9, warmup_epochs=0)
    assert len(rows_of(result.save_dir)) == 2
    assert "stopped before epoch 6" in log_of(result.save_dir)


# Classes are known by their names.


def test_a_class_that_val_lacks_shifts_no_index_and_is_told(run, tiny_folders, tmp_path):
    data = tiny_folders(classes=("blue", "green", "red"))
    shutil.rmtree(data / "val" / "blue")
    result = run(data=str(data))
    told = f"val: 1 classes that train has and this split lacks: {data / 'val'} (blue)"
    assert told in log_of(result.save_dir)
    metrics = Model(result.best).val(save_dir=str(tmp_path / "val"), plots=False, quiet=True)
    assert images_by_class(metrics) == {"blue": 0, "green": 4, "red": 4}
    assert metrics.top1 == result.metrics[TOP1]


def test_images_of_a_class_that_train_lacks_are_left_out_and_told(run, tiny_folders, capsys):
    data = tiny_folders()
    tiny_folders(classes=("amber",), splits=("val",), root=data)
    result = run(data=str(data))
    capsys.readouterr()
    told = f"val: 1 classes that train lacks, their images left out: {data / 'val' / 'amber'} (amber: 4 images)"
    assert told in log_of(result.save_dir)
    assert images_by_class(result.metrics) == {"green": 4, "red": 4}
    assert main(["check", *words(data=data, save_dir=result.save_dir / "check", json=True)]) == 3
    document = json.loads(capsys.readouterr().out)
    assert [error["code"] for error in document["errors"]] == ["class-extra"]


@pytest.mark.slow
def test_a_class_without_training_images_keeps_its_index(run, tiny_folders):
    data = tiny_folders()
    (data / "train" / "amber").mkdir()
    result = run(data=str(data), class_weights="balanced", sampling="balanced")
    assert load_checkpoint(result.last)["names"] == ["amber", "green", "red"]
    assert load_checkpoint(result.last)["args"]["values"]["class_weights"] == [1.0, 1.0, 1.0]
    assert images_by_class(result.metrics) == {"amber": 0, "green": 4, "red": 4}


def test_names_of_a_yaml_set_the_order_and_every_split_follows(run, tiny_folders):
    data = tiny_folders()
    (data / "data.yaml").write_text("train: train\nval: val\nnames: [red, green]\n", encoding="utf-8")
    config = load_config("train", python={"data": str(data), "task": "classify"})
    for records in read_data(config, CLASSIFY, ("train", "val")).splits.values():
        assert {(record.path.parent.name, *record.classes.tolist()) for record in records} == {("red", 0), ("green", 1)}
    assert load_checkpoint(run(data=str(data / "data.yaml")).best)["names"] == ["red", "green"]


def test_the_order_of_rows_is_not_that_of_classes(trained, folders, tmp_path):
    """The same images by a CSV that names red first: the metrics are those of the folders."""
    rows = [f"{path},{path.parent.name}" for path in sorted((folders / "val").rglob("*.png"), reverse=True)]
    (tmp_path / "val.csv").write_text("\n".join(["path,label", *rows]) + "\n", encoding="utf-8")
    keys = {"model": str(trained.best), "plots": False}
    by_folders = val_run(load_config("val", python={**keys, "save_dir": str(tmp_path / "a")}))
    by_rows = val_run(load_config("val", python={**keys, "save_dir": str(tmp_path / "b"), "data": str(tmp_path)}))
    assert images_by_class(by_rows.metrics) == {"blue": 4, "green": 4, "red": 4}
    assert np.array_equal(by_rows.metrics.confusion, by_folders.metrics.confusion)
    assert by_rows.losses["loss"] == pytest.approx(by_folders.losses["loss"], rel=1e-6)


def test_weights_of_other_classes_are_refused_unless_the_data_name_them_all(trained, tiny_folders, tmp_path):
    data, place = tiny_folders(), tmp_path / "val"
    settings = {"model": str(trained.best), "save_dir": str(place), "plots": False, "quiet": True}
    with pytest.raises(ConfigError, match="its classes are green, red; those of the weights are blue, green, red: "):
        val_run(load_config("val", python={**settings, "data": str(data)}))
    assert not place.exists()
    (data / "data.yaml").write_text("val: val\nnames: [blue, green, red]\n", encoding="utf-8")
    found = val_run(load_config("val", python={**settings, "data": str(data)}))
    assert images_by_class(found.metrics) == {"blue": 0, "green": 4, "red": 4}


# Data sets at the edge.


@pytest.mark.slow
def test_a_single_folder_of_classes_is_split_with_all_classes_in_proportion(run, tiny_folders):
    data = tiny_folders(10, splits=("",))
    result = run(data=str(data), val_fraction=0.2)
    assert images_by_class(result.metrics) == {"green": 2, "red": 2}
    assert "val: 4 of train's images, split off by val_fraction = 0.2" in log_of(result.save_dir)
    scored = Model(result.best).val(save_dir=str(result.save_dir / "val"), plots=False, quiet=True)
    assert dict(scored) == dict(result.metrics)


@pytest.mark.slow
def test_without_val_the_last_epoch_is_the_best(run, tiny_folders):
    result = run(data=str(tiny_folders(splits=("",))), epochs=2)
    assert (result.best_epoch, dict(result.metrics)) == (2, {})
    assert "no val split: the last epoch counts as the best" in log_of(result.save_dir)


@pytest.mark.slow
@pytest.mark.parametrize(("num_images", "classes"), [(2, ("red",)), (1, ("green", "red"))])
def test_two_images_of_one_class_or_of_two_are_enough(run, tiny_folders, num_images, classes):
    result = run(data=str(tiny_folders(num_images, classes=classes)))
    assert result.metrics[TOP5] == 1.0
    assert result.updates == 1
    (probs,) = (found.probs for found in Model(result.best).predict(np.zeros((40, 60, 3), np.uint8)))
    assert len(probs.top5) == len(classes)


# Images of several classes.


@pytest.mark.slow
def test_a_csv_of_several_labels_goes_through_every_command(run, several_labels, tmp_path, capsys):
    result = run(data=str(several_labels), multi_label=True, class_weights="balanced", mixup=0.5)
    assert load_checkpoint(result.best)["args"]["values"]["loss"] == "auto"
    assert images_by_class(result.metrics) == {"a": 4, "b": 4, "c": 4}
    assert result.metrics.confusion is None
    capsys.readouterr()

    model = f"model={result.best}"
    assert main(["val", model, *words(save_dir=tmp_path / "val", json=True)]) == 0
    assert json.loads(capsys.readouterr().out)[TOP1] == result.metrics[TOP1]
    assert main(["verify", model, "json=True", "quiet=True"]) == 0
    assert json.loads(capsys.readouterr().out)["exact"]["rel_error"] <= 1e-9
    assert main(["check", *words(data=several_labels, multi_label=True, save_dir=tmp_path / "check")]) == 0
    (found,) = Model(result.best).predict(several_labels.parent / "val5.png")
    assert found.probs.data.sum() != pytest.approx(1.0, abs=1e-3)  # each class for itself


def test_several_labels_where_one_is_wanted_are_named_with_the_remedy(run, several_labels, tmp_path, capsys):
    with pytest.raises(DataError) as caught:
        run(data=str(several_labels))
    assert [fault.partition(": /")[0] for fault in caught.value.faults] == [
        "train: 4 images have several labels",
        "train: 1 image has no label",
        "val: 4 images have several labels",
        "val: 1 image has no label",
    ]
    assert all("multi_label=True" in fault for fault in caught.value.faults)
    assert not (tmp_path / "run").exists()
    assert main(["check", *words(data=several_labels, save_dir=tmp_path / "check")]) == 3
    assert "FAILED: no errors, no warnings, unfit for training; see" in capsys.readouterr().out


def test_a_network_for_several_labels_is_not_trained_or_scored_as_one_for_a_single_label(
    run, keys, folders, trained, tmp_path
):
    description = yaml.safe_load(Path(keys["model"]).read_text(encoding="utf-8"))
    (tmp_path / "several.yaml").write_text(yaml.safe_dump({**description, "multi_label": True}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"multi_label = False: .* type multi_label=True"):
        run(data=str(folders), model=str(tmp_path / "several.yaml"))
    settings = {"model": str(trained.best), "multi_label": True, "save_dir": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match=r"multi_label = True: .* type multi_label=False"):
        val_run(load_config("val", python=settings))
    assert not (tmp_path / "run").exists()


# The commands.


def test_val_prints_a_table_or_one_document(trained, tmp_path, capsys):
    assert main(["classify", "val", f"model={trained.best}", *words(save_dir=tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["class", "images", "P", "R", "F1", "AP"]
    assert "balanced accuracy" in printed
    assert list((tmp_path / "a").glob("val_batch0_*.jpg"))
    assert main(["val", f"model={trained.best}", *words(save_dir=tmp_path / "b", plots=False, json=True)]) == 0
    document = json.loads(capsys.readouterr().out)
    csv_names = {TOP1, TOP5, "val/loss"}
    assert csv_names < set(document)
    written = json.loads((tmp_path / "b" / "results.json").read_text(encoding="utf-8"))
    assert written["metrics"] == {name: document[name] for name in csv_names}
    assert (written["split"], written["images"]) == ("val", 12)


def test_plan_and_verify_give_the_documents_of_every_task(keys, folders, capsys):
    asked = words(**{**keys, "data": folders, "json": True, "class_weights": "balanced", "mixup": 0.5})
    assert main(["classify", "plan", *asked]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["images"], plan["accumulate"]) == (12, 2)
    assert main(["classify", "verify", *asked]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["passed"] is True
    assert verdict["exact"]["rel_error"] <= 1e-9


def test_show_draws_the_sample_and_tells_the_shares_of_its_classes(folders, tmp_path, capsys):
    asked = words(data=folders, imgsz=IMGSZ, index=0, mixup=1.0, seed=1, save_dir=tmp_path / "show")
    assert main(["show", *asked]) == 0
    assert (tmp_path / "show" / "epoch1_index0.jpg").is_file()
    printed = capsys.readouterr().out
    assert "labels: blue (" in printed
    assert "boxes" not in printed


def test_predict_tells_and_writes_the_best_classes(trained, folders, tmp_path, capsys):
    place = tmp_path / "predict"
    asked = words(model=trained.best, source=folders / "val" / "red", save_txt=True, save_dir=place)
    assert main(["predict", *asked]) == 0
    assert "1/4" in capsys.readouterr().out
    lines = (place / "labels" / "000.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(line.split()[1] for line in lines) == ["blue", "green", "red"]
    assert sum(float(line.split()[0]) for line in lines) == pytest.approx(1, abs=0.02)
    assert np.asarray(Image.open(place / "000.jpg")).std() > 10


def test_from_python_it_is_the_same(trained, folders, tmp_path):
    model = Model(trained.best)
    metrics = model.val(save_dir=str(tmp_path / "val"), plots=False, quiet=True)
    assert dict(metrics) == {TOP1: metrics.top1, TOP5: metrics.top5} == dict(trained.metrics)
    results = model.predict(folders / "val" / "**" / "*.png")
    assert len(results) == 12
    assert results[0].boxes is None
    assert results[0].names == {0: "blue", 1: "green", 2: "red"}
    hits = [found.names[found.probs.top1] == Path(found.path).parent.name for found in results]
    assert sum(hits) / 12 == metrics.top1
    assert float(results[0].probs.top1conf) == float(results[0].probs.data.max())
    assert len(json.loads(results[0].to_json())) == 3


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"model": "det-n", "task": "classify"}, "task = classify: model = 'det-n' is for detect"),
        ({"model": "det-n"}, "it looks like folders, a format of task=classify"),
        ({"mosaic": 1.0}, "mosaic: has no effect on classify, it is for detect"),
        ({"imgsz": 33}, "imgsz = 33 is not a multiple of the network's largest stride, 32; use 32 or 64"),
        ({"model": "squeezenet1_1", "imgsz": 8}, "imgsz = 8: is too small for squeezenet1_1, .* use 32 or more"),
        ({"class_weights": (1.0, 2.0)}, "class_weights: 2 are given for 3 classes"),
        ({"class_weights": (0.0, 0.0, 0.0)}, "class_weights: are 0 for every class, so nothing counts"),
        ({"multi_label": True, "loss": "cross_entropy"}, "use loss=bce or loss=focal"),
        ({"mixup": 0.7, "cutmix": 0.7}, "choose two probabilities that add up to at most 1"),
        ({"flip_swap": (0, 5)}, "flip_swap: holds 5, and the last of the 3 classes is 2"),
        ({"pretrained": "True"}, "there are weights for torchvision's networks only"),
        ({"data_format": "csv"}, "holds no train.csv"),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_folder(run, folders, tmp_path, settings, fault):
    with pytest.raises((ConfigError, DataError), match=fault):
        run(data=str(folders), **settings)
    assert not (tmp_path / "run").exists()


# Everything that a run may be asked for besides.


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "resnet18"},
        {"model": "mobilenet_v3_small", "dropout": 0.5},
        {"norm": "group"},
        {"norm": "frozen", "checkpoint_activations": True},
        {"noise_scale": True, "precise_bn": True, "epochs": 2},
        {"sampling": "balanced", "multi_scale": True, "epochs": 2},
        {"auto_augment": "augmix", "degrees": 20, "flipud": 0.5, "erasing": 0.9},
        {"loss": "focal", "label_smoothing": 0.1, "tail": "carry", "epochs": 2},
        {"loss": "bce"},
        {"val": False},
    ],
    ids=lambda settings: ",".join(map(str, settings)),
)
def test_it_trains_with(run, folders, settings):
    result = run(data=str(folders), **settings)
    assert all(np.isfinite(float(row["train/loss"])) for row in rows_of(result.save_dir))


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["ram", "disk"])
def test_a_cache_changes_no_bit(run, folders, tmp_path, cache):
    plain = run(data=str(folders), save_dir=str(tmp_path / "plain"))
    assert same_weights(plain.last, run(data=str(folders), cache=cache, save_dir=str(tmp_path / "cached")).last)


@pytest.mark.slow
def test_loader_processes_and_another_micro_batch_see_the_same_samples(run, folders, tmp_path):
    kept = {"data": str(folders), "warmup_epochs": 0, "norm": "frozen", "mixup": 0.5, "amp": False}
    first = run(save_dir=str(tmp_path / "a"), batch=8, **kept)
    second = run(save_dir=str(tmp_path / "b"), batch=2, workers=1, **kept)
    a, b = (load_checkpoint(result.last)["model"] for result in (first, second))
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-3, atol=1e-4, msg=name)
