"""`visiontrain check`: what it finds, says, writes and returns."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from visiontrain.cli import main
from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError, DataError
from visiontrain.findings import CODES
from visiontrain.run.check import check_run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Run folders are made here."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def faulty(tiny_yolo):
    """Eight images to train and eight to validate, with a fault of each of six kinds."""
    root = tiny_yolo(8).parent
    train, val = root / "images" / "train", root / "images" / "val"
    (root / "labels" / "train" / "000.txt").write_text("0 .5 .5 .2 .2\n0 a b c d\n0 1.02 .5 .4 .4\n", encoding="utf-8")
    data = (train / "001.png").read_bytes()
    (train / "001.png").write_bytes(data[: len(data) // 2])
    shutil.copy(train / "002.png", val / "002.png")
    exif = Image.Exif()
    exif[0x0112] = 3
    with Image.open(train / "003.png") as image:
        image.save(train / "003.png", exif=exif)
    with Image.open(train / "004.png") as image:
        image.resize((48, 48)).save(val / "004.png")
    return root


def checked(**keys):
    return check_run(load_config("check", python={"imgsz": 64, **keys}), is_silent=True)


def found(result):
    return {
        (code, split): [(Path(one.file).name, one.line) for one in tally.examples]
        for code, split, tally in result.findings
    }


def fingerprint(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(path, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def test_a_clean_data_set_gives_no_finding(tiny_yolo):
    result = checked(data=str(tiny_yolo(8)))
    assert found(result) == {}
    assert result.passed
    assert result.document["errors"] == result.document["warnings"] == []


def test_every_fault_is_found_with_its_file_and_line(faulty):
    result = checked(data=str(faulty))
    assert not result.passed
    assert found(result) == {
        ("image-unreadable", "train"): [("001.png", None)],
        ("image-in-splits", "val"): [("002.png", None)],
        ("image-turned", "train"): [("003.png", None)],
        ("image-alike", "val"): [("004.png", None)],
        ("row-not-numbers", "train"): [("000.txt", 2)],
        ("box-clipped", "train"): [("000.txt", 3)],
    }


def test_nothing_is_written_into_the_data_set(faulty):
    before = fingerprint(faulty)
    folders = [path for path in (faulty, *faulty.rglob("*")) if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    checked(data=str(faulty))
    for folder in folders:
        folder.chmod(0o755)
    assert fingerprint(faulty) == before


def test_the_page_holds_the_pictures_of_the_faults(faulty):
    result = checked(data=str(faulty))
    assert [path.name for path in result.save_dir.iterdir()] == ["check.html"]
    text = (result.save_dir / "check.html").read_text(encoding="utf-8")
    assert text.count("data:image/jpeg;base64,") == 1 + 1 + 2 + 1 + 2  # a twin is shown beside its other
    assert text.count("cannot be read<") == 1
    for code, *_ in result.findings:
        assert code in text


def test_errors_end_with_exit_code_3_and_warnings_alone_with_0(faulty, tiny_yolo, capsys):
    assert main(["check", f"data={faulty}", "imgsz=64"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("FAILED: 3 errors of 3 kinds, 3 warnings of 3 kinds; see ")
    assert Path(lines[-1].rpartition("see ")[2]).is_file()
    root = tiny_yolo(8, folder="odd").parent
    (root / "labels" / "train" / "000.txt").write_text("0 1.02 .5 .4 .4\n", encoding="utf-8")
    assert main(["check", f"data={root}", "imgsz=64"]) == 0
    assert "PASSED: no errors, 1 warning of 1 kind; see " in capsys.readouterr().out


def test_what_makes_data_unfit_for_training_is_told_and_fails(tiny_yolo, capsys):
    root = tiny_yolo(8).parent
    for path in (root / "labels" / "train").iterdir():
        path.write_text("0 320 240 50 50\n", encoding="utf-8")
    assert main(["check", f"data={root}", "imgsz=64"]) == 3
    assert "unfit for training: train: 8 of 8 rows hold pixels" in capsys.readouterr().out


def test_what_cannot_be_read_at_all_ends_with_exit_code_2_and_without_a_folder(tmp_path, capsys):
    assert main(["check", f"data={tmp_path / 'gone.yaml'}"]) == 2
    assert "no such file or folder" in capsys.readouterr().err
    assert list(Path.cwd().iterdir()) == []


def test_json_is_one_document_and_nothing_else(faulty, capsys):
    assert main(["check", f"data={faulty}", "imgsz=64", "json=True"]) == 3
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    assert not document["passed"]
    assert {error["code"] for error in document["errors"]} == {"image-unreadable", "image-in-splits", "row-not-numbers"}
    (row,) = [error for error in document["errors"] if error["code"] == "row-not-numbers"]
    assert row == {
        "code": "row-not-numbers",
        "split": "train",
        "count": 1,
        "text": CODES["row-not-numbers"].says,
        "examples": [{"file": str(faulty / "labels" / "train" / "000.txt"), "line": 2, "text": "'0 a b c d'"}],
    }
    assert document["splits"]["train"]["images"] == 7
    assert set(document["splits"]["val"]["classes"]) == {"red", "green"}
    assert Path(document["page"]).is_file()


def test_the_terminal_shows_splits_classes_and_places(faulty, capsys):
    main(["check", f"data={faulty}", "imgsz=64"])
    printed = capsys.readouterr().out
    assert "train  val" in printed
    assert "  green" in printed
    assert f"error: train: 1 {CODES['row-not-numbers'].says} [row-not-numbers]" in printed
    assert f"    {faulty / 'labels' / 'train' / '000.txt'}:2 (" in printed
    main(["check", f"data={faulty}", "imgsz=64", "quiet=True"])
    captured = capsys.readouterr()
    assert captured.out.startswith("error: ")
    assert captured.err == ""


def test_processes_find_the_same(faulty):
    assert found(checked(data=str(faulty), workers=2)) == found(checked(data=str(faulty), workers=0))


def test_boxes_below_a_stride_depend_on_the_image_size(tiny_yolo):
    data = str(tiny_yolo(8))
    assert found(checked(data=data)) == {}
    tiny = checked(data=data, imgsz=16).findings
    assert tiny.count("box-tiny") == 16
    assert "at imgsz 16, stride 8" in tiny.examples("box-tiny")[0].text


def test_images_of_more_pixels_than_allowed_are_told(tiny_yolo):
    data = tiny_yolo(8)
    with Image.open(data.parent / "images" / "train" / "005.png") as image:
        image.resize((65, 64)).save(data.parent / "images" / "train" / "005.png")
    assert found(checked(data=str(data), max_pixels=65 * 64)) == {}
    assert found(checked(data=str(data), max_pixels=64 * 64)) == {("image-too-large", "train"): [("005.png", None)]}


def test_classes_can_be_treated_as_one(tiny_yolo):
    assert checked(data=str(tiny_yolo(8)), single_cls=True).document["names"] == ["object"]


@pytest.mark.parametrize("key", ["save_dir", "project"])
def test_the_page_is_never_written_among_the_images(tiny_yolo, key):
    folder = tiny_yolo(8).parent / "images" / "train"
    with pytest.raises(ConfigError, match="a folder of the data set, which check never writes into"):
        checked(data=str(folder.parents[1]), **{key: str(folder / "check")})
    assert not (folder / "check").exists()


def test_keys_that_have_no_effect_on_it_are_refused():
    with pytest.raises(ConfigError, match="val_fraction"):
        load_config("check", python={"val_fraction": 0.1})


@pytest.mark.parametrize("task", ["detect", "classify"])
def test_the_bundled_sample_is_clean(capsys, task):
    assert main([task, "check", "quiet=True", "workers=0"]) == 0
    assert "PASSED: nothing found" in capsys.readouterr().out
    assert [path.name for path in Path(f"runs/{task}/check").iterdir()] == ["check.html"]


def test_the_document_of_codes_has_them_all(repository):
    text = (repository / "docs" / "check.md").read_text(encoding="utf-8")
    rows = [row.split(" | ") for row in text.splitlines() if row.startswith("| `")]
    assert {(code.strip("| `"), severity, says) for code, severity, says, *_ in rows} == {
        (code, kind.severity, kind.says) for code, kind in CODES.items()
    }


def test_an_empty_split_is_no_fault(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError):
        checked(data=str(tmp_path))


@pytest.fixture
def class_folders(tmp_path):
    """Three pictures of each of two classes to train and one of one class to validate."""
    rng = np.random.default_rng(0)
    for split, name, count in (("train", "a", 3), ("train", "b", 3), ("val", "a", 1)):
        folder = tmp_path / "classes" / split / name
        folder.mkdir(parents=True)
        for index in range(count):
            Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    return tmp_path / "classes"


def test_images_of_classes_are_checked_as_well(class_folders):
    (class_folders / "train" / "a" / "1.png").write_bytes(b"cut")
    shutil.copy(class_folders / "train" / "b" / "0.png", class_folders / "val" / "a" / "1.png")
    result = checked(data=str(class_folders), imgsz=32)
    assert found(result).keys() == {("image-unreadable", "train"), ("image-in-splits", "val"), ("class-missing", "val")}
    assert result.findings.count("class-missing") == 1
    assert result.save_dir.parent.name == "classify"
    train = result.document["splits"]["train"]
    assert train["boxes"] is None
    assert train["classes"] == {"a": {"images": 2, "labels": 2}, "b": {"images": 3, "labels": 3}}
    assert "0.png: b" in (result.save_dir / "check.html").read_text(encoding="utf-8")


@pytest.fixture
def odd_set(test_data, tmp_path):
    """The odd images as a data set, each with one box in its upper left quarter."""
    truth = json.loads((test_data / "odd_images" / "expected.json").read_text(encoding="utf-8"))
    root = tmp_path / "odd"
    for folder in ("images", "labels"):
        (root / folder).mkdir(parents=True)
    for one in truth:
        shutil.copyfile(test_data / "odd_images" / one["file"], root / "images" / one["file"])
        label = root / "labels" / f"{Path(one['file']).stem}.txt"
        label.write_text("0 0.25 0.25 0.5 0.5\n", encoding="utf-8")
    (root / "data.yaml").write_text("path: .\ntrain: images\nnames: [thing]\n", encoding="utf-8")
    return root, truth


def test_odd_images_are_told_as_what_they_are(odd_set):
    root, truth = odd_set
    result = checked(data=str(root), imgsz=640)

    def files(*codes):
        return {Path(one.file).name for code in codes for one in result.findings.examples(code)}

    damaged = {one["file"] for one in truth if one["verdict"] == "corrupt"}
    either = {one["file"] for one in truth if one["verdict"] == "either"}
    assert damaged <= files("image-unreadable") <= damaged | either
    assert files("image-too-large") == {one["file"] for one in truth if one["verdict"] == "refuse"}
    turned = {one["file"] for one in truth if one["orientation"] != 1}
    assert result.findings.count("image-turned") == len(turned)
    assert files("image-turned") < turned
    assert {kind for kind, *_ in result.findings} == {
        "image-unreadable",
        "image-too-large",
        "image-turned",
        "image-same",  # one file is there under two names
    }
    page = (result.save_dir / "check.html").read_text(encoding="utf-8")
    assert "Blüte – 花の写真 (1).webp" in page
    assert page.count("cannot be read<") == result.findings.count("image-unreadable") + 1


def test_real_data_sets_are_as_their_descriptions_tell(test_data):
    assert found(checked(data=str(test_data / "aquarium_yolo"), imgsz=640)).keys() == {
        ("box-without-area", "test"),
        ("box-tiny", "test"),
        ("class-unused", "train"),
    }
    assert found(checked(data=str(test_data / "chess_coco"), imgsz=640)).keys() == {("class-unused", "train")}


@pytest.mark.slow
def test_a_clean_real_data_set_gives_no_finding(test_data):
    result = checked(data=str(test_data / "bccd" / "data.yaml"), imgsz=640)
    assert found(result) == {}
    train = result.document["splits"]["train"]
    assert train["classes"]["WBC"]["labels"] == 214
    assert (train["images"], train["labels"]) == (205, 2804)
    assert np.sum(train["boxes"]["area"]["counts"]) == 2804
