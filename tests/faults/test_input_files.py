"""Whatever a file holds that is read, the answer is an exit code of 0, 2 or 3 and sentences."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from visiontrain.cli import main

pytestmark = pytest.mark.slow
WORDS = (
    *(b"", b" ", b"\t", b"\n\n", b"\r", b"nan", b"inf", b"-1", b"1e400", b"9" * 400, b"0.5 " * 500, b"[", b"]", b"{"),
    *(
        b"}",
        b": ",
        b"- ",
        b"&a ",
        b"*a",
        b"!!python/object/apply:os.system [ls]",
        b"!!binary x",
        b"<<: *a",
        b"? ",
        b"| ",
    ),
    *(
        b"path: /",
        b"names: 3",
        b"nc: 99",
        b"train: 7",
        b"val: ../..",
        b"~",
        b"null",
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
    ),
    *(
        "\u2028".encode(),
        "é".encode("latin-1"),
        b'"',
        b"'",
        b"#",
        b",",
        b";",
        b"<a>",
        b"</annotation>",
        b"&lt;",
        b"&x;",
    ),
)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Some bytes, words or lines of a file changed, dropped, doubled or moved."""
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        place = rng.randrange(len(content) + 1)
        end = min(len(content), place + rng.choice([1, 2, 8, 40]))
        kind = rng.randrange(7)
        lines = content.splitlines(keepends=True)
        if kind == 0:
            content = content[:place] + rng.choice(WORDS) + content[place:]
        elif kind == 1:
            content = content[:place] + rng.choice(WORDS) + content[end:]
        elif kind == 2:
            content = content[:place] + content[end:]
        elif kind == 3:
            content = content[:place] + rng.randbytes(rng.randint(1, 6)) + content[end:]
        elif kind == 4:
            rng.shuffle(lines)
            content = b"".join(lines)
        elif kind == 5 and lines:
            content = b"".join([*lines, rng.choice(lines)])
        else:
            numbers = list(re.finditer(rb"[\d.]+", content))
            if numbers:
                found = rng.choice(numbers)
                content = content[: found.start()] + rng.choice(WORDS) + content[found.end() :]
    return content


@pytest.fixture
def answers(tmp_path, monkeypatch, capsys, files_below, emptied) -> Callable[..., int]:
    """A function that runs a command and gives its exit code, once that and its words are as they must be."""
    folder = tmp_path / "cwd"
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)

    def run(*words: str) -> int:
        before = files_below(tmp_path)
        code = main([*words])
        told = capsys.readouterr()
        assert code in (0, 2, 3), (words, told)
        assert "Traceback" not in told.out + told.err
        if code == 2:
            faults = [line for line in told.err.splitlines() if line.startswith("visiontrain ")]
            assert faults, told
            assert files_below(tmp_path) == before
        emptied(folder)
        return code

    return run


def write_coco(root: Path) -> Path:
    images = [{"id": number, "file_name": f"{number:03d}.png", "width": 64, "height": 64} for number in range(2)]
    boxes = [{"id": number, "image_id": number, "category_id": 1, "bbox": [8, 8, 20, 20]} for number in range(2)]
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "red"}]}
    path = root / "annotations" / "train.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return path


def write_voc(root: Path) -> Path:
    for number in range(2):
        path = root / "Annotations" / f"{number:03d}.xml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f"<annotation>\n<filename>{number:03d}.png</filename>\n<size><width>64</width><height>64</height></size>\n"
            "<object><name>red</name><bndbox><xmin>8</xmin><ymin>8</ymin><xmax>28</xmax><ymax>28</ymax></bndbox>"
            "</object>\n</annotation>\n"
        )
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "ImageSets" / "Main" / "train.txt").write_text("000\n001\n")
    return path


def write_table(root: Path) -> Path:
    path = root / "labels.csv"
    path.write_text("path,label,split\nimages/000.png,red,train\nimages/001.png,green,train\n")
    return path


def write_folders(root: Path) -> Path:
    for place, name in (("train", "red"), ("val", "red"), ("train", "green")):
        shutil.copytree(root / "images", root / place / name)
    path = root / "data.yaml"
    path.write_text("path: .\ntrain: train\nval: val\nnames: [red, green]\n")
    return path


@pytest.fixture
def victims(tiny_yolo) -> list[tuple[Path, str]]:
    """Each file that is fuzzed, and the data set it is of: YOLO, COCO, VOC, CSV and folders, two images each."""
    yolo = tiny_yolo(2, splits=("train",), folder="yolo")
    found = [(yolo, str(yolo)), (yolo.parent / "labels" / "train" / "000.txt", str(yolo))]
    pictures = sorted((yolo.parent / "images" / "train").iterdir())
    for name, write, folder in (
        ("coco", write_coco, "images/train"),
        ("voc", write_voc, "JPEGImages"),
        ("table", write_table, "images"),
        ("folders", write_folders, "images"),
    ):
        root = yolo.parent.parent / name
        (root / folder).mkdir(parents=True)
        for picture in pictures:
            shutil.copy(picture, root / folder)
        path = write(root)
        found.append((path, str(path if name == "table" else root)))
    return found


def test_fuzzed_data_files_end_in_sentences(victims, answers, dose):
    rng, codes = random.Random(0), []
    for _, data in victims:
        assert answers("check", f"data={data}", "imgsz=64", "workers=0") in (0, 3)
    for number in range(dose(100, full=5_000)):
        path, data = victims[0 if number % 5 == 0 else 1 if number % 5 < 3 else 2 + number // 5 % (len(victims) - 2)]
        plain = path.read_bytes()
        content = mutated(plain, rng)
        path.write_bytes(content)
        try:
            codes.append(answers("check", f"data={data}", "imgsz=64", "workers=0"))
        except BaseException as error:
            raise AssertionError(f"{number}: {path.name}: {content!r}") from error
        finally:
            path.write_bytes(plain)
    assert {0, 2, 3} >= set(codes)
    assert len(set(codes)) > 1


def make_missing(path):
    path.unlink()


def make_empty(path):
    path.write_bytes(b"")


def make_folder(path):
    path.unlink()
    path.mkdir()


def make_binary(path):
    path.write_bytes(random.Random(0).randbytes(5000))


def make_huge(path):
    """Of 5 GB, of which the disk holds nothing."""
    with path.open("r+b") as file:
        file.truncate(5 * 2**30)


def make_broken_link(path):
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


FATES = (make_missing, make_empty, make_folder, make_binary, make_broken_link)


@pytest.mark.parametrize("fate", FATES)
def test_every_file_of_a_data_set_may_be_anything(victims, answers, fate):
    for path, data in victims:
        plain = path.read_bytes()
        fate(path)
        assert answers("check", f"data={data}", "imgsz=64", "workers=0") in (0, 2, 3)
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(plain)


@pytest.mark.parametrize("fate", FATES)
def test_every_file_that_a_setting_names_may_be_anything(answers, tiny_yolo, small_network, tmp_path, fate):
    data, image = tiny_yolo(2), tmp_path / "image.png"
    shutil.copy(data.parent / "images" / "train" / "000.png", image)
    for name in ("cfg.yaml", "model.yaml", "model.pt", "pretrained.pt", "data.yaml"):
        path, key = tmp_path / name, name.partition(".")[0]
        path.write_text("")
        fate(path)
        words = {"data": str(data), "model": str(small_network), "imgsz": "64", key: str(path)}
        code = answers("plan", *(f"{name}={value}" for name, value in words.items()))
        assert code == 2 or (key == "cfg" and fate is make_empty)
    for key in ("weights", "mapping"):
        words = {"weights": str(image), key: str(tmp_path / f"{key}.pt")}
        Path(words[key]).write_text("")
        fate(Path(words[key]))
        assert answers("convert", *(f"{name}={value}" for name, value in words.items())) == 2
    fate(image)
    assert answers("predict", f"source={image}", f"model={tmp_path / 'missing.pt'}") == 2


@pytest.mark.parametrize("fate", FATES)
def test_every_file_of_a_run_that_goes_on_may_be_anything(run_training, tmp_path, capsys, fate):
    whole = tmp_path / "run"
    run_training(epochs=1, warmup_epochs=0, workers=0, val=False)
    names = ["args.yaml", "results.csv", "plan.json", "results.json", "train.log"]
    names += ["weights/last.pt", "weights/best.pt"]
    for number, name in enumerate(names):
        folder = tmp_path / f"run{number}"
        shutil.copytree(whole, folder)
        fate(folder / name)
        code = main(["train", f"resume={folder}", "epochs=2"])
        told = capsys.readouterr()
        assert code in (0, 2), (name, told)
        assert "Traceback" not in told.out + told.err
        assert len(told.err.splitlines()) == (0 if code == 0 else 1), (name, told)


def test_a_checkpoint_beyond_the_memory_is_a_sentence(answers, tmp_path):
    path = tmp_path / "huge.pt"
    path.write_bytes(b"PK\x03\x04")
    make_huge(path)
    assert answers("val", f"model={path}") == 2
