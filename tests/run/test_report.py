"""`report` makes the page of whatever is left of a run."""

from __future__ import annotations

import json
import os
import random
import shutil

import pytest

from visiontrain.cli import main
from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.run import train as module
from visiontrain.run.report import report, write_report
from visiontrain.run.run_folder import PIECES


def run(**keys):
    report(load_config("report", python=keys))


def text_of(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_of_a_run_tells_its_scores_settings_plan_and_machine(trained, capsys):
    run(run=str(trained.save_dir))
    assert capsys.readouterr().out.startswith(f"report in {trained.save_dir / 'report.html'}\n")
    text = text_of(trained.save_dir)
    for told in ("trained 1 of 1 epochs", "mAP50-95", "<code>nbs</code>", "batch 2 × accumulate 2", "torch", "red"):
        assert told in text, told


def test_what_the_folder_lacks_is_told_and_the_rest_is_shown(trained, capsys):
    """Training without plots leaves no pictures; with one piece after the other gone there is a page every time."""
    for name in ("results.json", "results.csv", "review.json", "plan.json", "args.yaml"):
        (trained.save_dir / name).unlink()
        run(run=str(trained.save_dir))
        told = capsys.readouterr().out
        assert f"not in it: {name}: is not there" in told
        assert f"{name}: is not there" in text_of(trained.save_dir)
    assert "pictures of the training images: are not there" in told
    assert "no epoch has ended" in text_of(trained.save_dir)


def test_a_run_that_still_goes_on_has_a_page(trained):
    (trained.save_dir / "results.json").unlink()
    (trained.save_dir / "review.json").unlink()
    write_report(trained.save_dir)
    assert "1 of 1 epochs: the run still goes on, or was interrupted" in text_of(trained.save_dir)


def test_a_finished_run_that_goes_on_is_not_told_to_be_done(trained):
    results = trained.save_dir / "results.csv"
    header, row = results.read_text(encoding="utf-8").splitlines()
    results.write_text(f"{header}\n{row}\n2{row[1:]}\n", encoding="utf-8")
    write_report(trained.save_dir)
    assert "2 of 1 epochs: the run still goes on" in text_of(trained.save_dir)


def test_images_that_are_gone_have_a_stand_in(trained):
    document = json.loads((trained.save_dir / "review.json").read_text(encoding="utf-8"))
    assert document["gallery"]
    document["gallery"] = [{**document["gallery"][0], "path": "gone.jpg"}]
    (trained.save_dir / "review.json").write_text(json.dumps(document), encoding="utf-8")
    write_report(trained.save_dir)
    assert "cannot be read any more" in text_of(trained.save_dir)


@pytest.mark.parametrize("name", ["args.yaml", "plan.json", "results.csv", "results.json", "review.json", "train.log"])
def test_a_piece_that_is_damaged_in_any_way_never_stops_the_page(trained, name):
    """Cut short, overwritten in places, replaced by other things; the same damages in every run."""
    rng = random.Random(name)
    path = trained.save_dir / name
    whole = path.read_bytes()
    for number in range(12):
        data = bytearray(whole[: rng.randrange(len(whole))] if number % 2 else whole)
        for _ in range(min(len(data), 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        write_report(trained.save_dir)
    for other in (
        b"",
        b"\x00",
        b"[]",
        b"3",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"windows": 3, "epochs": {}}',
        b"\xff\xfe",
    ):
        path.write_bytes(other)
        write_report(trained.save_dir)
    path.unlink()
    path.mkdir()  # a folder in its place
    write_report(trained.save_dir)
    assert "</html>" in text_of(trained.save_dir)


def test_pictures_that_are_damaged_are_told(trained):
    (trained.save_dir / "labels.png").write_bytes(b"no picture")
    _, missing = write_report(trained.save_dir)
    assert any(line.startswith("labels.png") for line in missing)


def test_of_a_split_that_was_only_scored_nothing_of_training_is_missed(trained, tmp_path):
    folder = tmp_path / "val"
    folder.mkdir()
    shutil.copy(trained.save_dir / "review.json", folder)
    (folder / "results.json").write_text('{"metrics": {}, "split": "val", "images": 8}', encoding="utf-8")
    _, missing = write_report(folder)
    assert missing == []
    assert "scored on the val split" in text_of(folder)
    assert "<code>nbs</code>" in text_of(folder)  # the settings lie in the review


def touch(folder, when):
    folder.mkdir(parents=True)
    (folder / "args.yaml").write_text("nbs: 64  # default\n", encoding="utf-8")
    os.utime(folder / "args.yaml", (when, when))


def test_without_run_the_newest_run_is_taken(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, place in enumerate(("detect/train", "classify/train", "detect/train2", "detect/empty")):
        touch(tmp_path / "runs" / place, 1_000_000 + number)
    (tmp_path / "runs/detect/empty/args.yaml").unlink()
    touch(tmp_path / "mine/first", 5)
    for keys, found in (
        ({}, "runs/detect/train2"),
        ({"task": "classify"}, "runs/classify/train"),
        ({"project": "mine"}, "mine/first"),
    ):
        run(**keys)
        assert capsys.readouterr().out.splitlines()[0] == f"report in {found}/report.html"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "run: is not given, and there is no run in runs; name"),
        ({"project": "nowhere"}, "there is no run in nowhere"),
        ({"task": "classify"}, "there is no run in runs/classify"),
        ({"run": "nowhere"}, "'nowhere': does not exist; name the folder of a run"),
        ({"run": "a.txt"}, "'a.txt': is a file; name the folder of a run$"),
        ({"run": "mine/first/args.yaml"}, "is a file; name the folder of a run, here .*first$"),
        ({"run": "mine/first/weights/best.pt"}, "is a file; name the folder of a run, here .*first$"),
        ({"run": "mine"}, "is not the folder of a run; it holds the runs first; name"),
        ({"run": "void"}, "is not the folder of a run; it holds none of args.yaml, plan.json"),
        ({"run": "a\0b"}, "run = "),
        ({"run": "x" * 300}, "run = "),
        ({"run": "mine", "project": "mine"}, "project: has no effect beside run"),
    ],
)
def test_a_run_that_is_none_is_refused_in_one_line(tmp_path, monkeypatch, keys, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    (tmp_path / "void").mkdir()
    touch(tmp_path / "mine/first", 5)
    (tmp_path / "mine/first/weights").mkdir()
    (tmp_path / "mine/first/weights/best.pt").write_bytes(b"weights")
    with pytest.raises(ConfigError, match=says) as refused:
        run(**keys)
    assert len(refused.value.faults) == 1
    assert "\n" not in refused.value.faults[0]


def test_a_folder_that_may_not_be_looked_into_is_refused(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(type(tmp_path), "iterdir", refuse)
        patched.setattr(type(tmp_path), "exists", refuse)
        with pytest.raises(ConfigError, match="is not the folder of a run"):
            run(run=str(tmp_path))


def test_a_place_that_cannot_be_written_is_told(trained):
    (trained.save_dir / "report.html").mkdir()
    with pytest.raises(ConfigError, match=r"report\.html: cannot be written"):
        write_report(trained.save_dir)
    assert not list(trained.save_dir.glob(".report*"))


def test_the_command_line_ends_with_two_and_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "run=nowhere"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert main(["detect", "report"]) == 2


@pytest.mark.slow
def test_training_and_scoring_end_with_pictures_and_a_page(run_training, tmp_path, capsys):
    result = run_training(plots=True)
    of_scores = {"PR_curve.png", "F1_curve.png", "confusion_matrix.png", "val_worst.jpg", "report.html", "review.json"}
    made = {path.name for path in result.save_dir.iterdir()}
    assert made >= {*of_scores, "results.png", "labels.png", "train_batch0.jpg", "val_batch0_pred.jpg"}
    _, missing = write_report(result.save_dir)
    assert missing == []
    assert "first images as training saw them" in text_of(result.save_dir)
    capsys.readouterr()
    assert main(["val", f"model={result.best}", f"save_dir={tmp_path / 'val'}"]) == 0
    assert f"report {tmp_path / 'val' / 'report.html'}" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "val").iterdir()} >= of_scores


@pytest.mark.slow
def test_a_page_that_cannot_be_written_does_not_end_the_run(run_training, monkeypatch):
    def refuse(folder):
        raise ConfigError("report.html: cannot be written")

    monkeypatch.setattr(module, "write_report", refuse)
    result = run_training(plots=True)
    assert "warning: report.html: cannot be written; the run is on disk" in (result.save_dir / "train.log").read_text(
        encoding="utf-8"
    )
    assert (result.save_dir / "results.json").is_file()


def test_the_pieces_of_a_run_are_those_that_training_writes(trained):
    assert {path.name for path in trained.save_dir.iterdir()} >= set(PIECES)
