"""Clean data sets of every format, into which the tests of this folder plant one fault each, and what `check` says.

All hold the same seven pictures of 64 × 48 pixels, each with a box of class `a` and one of class `b`: 0 to 4 are train,
5 and 6 are val. Of classification 0 to 4 and 5 to 9 are the train of `a` and `b`, 10 and 11 their val.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain.cli import main
from visiontrain.findings import CODES

WIDTH, HEIGHT = 64, 48
BOXES = {"a": (8, 8, 40, 32), "b": (24, 16, 56, 40)}
"""xyxy, pixels: no side is below a stride of 8 at imgsz 64."""
SPLITS = {"train": range(5), "val": range(5, 7)}


@dataclass(frozen=True)
class Verdict:
    """What one run of `visiontrain check` ended with."""

    exit_code: int
    found: Sequence[str]
    """Sorted, one for each place: `split code file:line`, the file relative to the data set; `×N` behind it where N
    were counted, more than there are places; for files without lines of their own the text behind a colon."""
    stops: tuple[str, ...] = ()
    """Why training refuses the data set."""
    notes: tuple[str, ...] = ()
    """What was guessed or not used."""
    refused: tuple[str, ...] = ()
    """Why nothing could be read."""


@pytest.fixture(scope="session")
def pictures() -> Sequence[bytes]:
    """Twelve PNG files that do not look alike, with large and small shapes as photographs have them."""
    rng = np.random.default_rng(0)

    def octave(number: int) -> np.ndarray:
        noise = rng.normal(0, 48 / number, (3 * 2 ** (number - 1), 4 * 2 ** (number - 1), 3))
        return cv2.resize(noise, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)

    drawn = [np.clip(128 + sum(map(octave, range(1, 6))), 0, 255).astype(np.uint8) for _ in range(12)]
    return [cv2.imencode(".png", picture)[1].tobytes() for picture in drawn]


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """The folder of the data set; runs are made elsewhere."""
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def yolo(root, pictures) -> Path:
    """`data.yaml`, `images/<split>/N.png`, `labels/<split>/N.txt`."""
    rows = "0 0.375 0.416667 0.5 0.5\n1 0.625 0.583333 0.5 0.5\n"
    for split, numbers in SPLITS.items():
        for number in numbers:
            write(root / "images" / split / f"{number}.png", pictures[number])
            write(root / "labels" / split / f"{number}.txt", rows)
    write(root / "data.yaml", "path: .\ntrain: images/train\nval: images/val\nnames: [a, b]\n")
    return root


@pytest.fixture
def coco(root, pictures) -> Path:
    """`annotations/<split>.json`, `images/<split>/N.png`; ids of images are N, of the annotations 10 N and 10 N + 1."""
    for split, numbers in SPLITS.items():
        for number in numbers:
            write(root / "images" / split / f"{number}.png", pictures[number])
        images = [{"id": number, "file_name": f"{number}.png", "width": WIDTH, "height": HEIGHT} for number in numbers]
        annotations = [
            {
                "id": 10 * number + label,
                "image_id": number,
                "category_id": label + 1,
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "iscrowd": 0,
            }
            for number in numbers
            for label, (x1, y1, x2, y2) in enumerate(BOXES.values())
        ]
        categories = [{"id": label, "name": name} for label, name in enumerate(BOXES, 1)]
        document = {"images": images, "annotations": annotations, "categories": categories}
        write(root / "annotations" / f"{split}.json", json.dumps(document))
    return root


@pytest.fixture
def voc(root, pictures) -> Path:
    """`Annotations/N.xml`, `JPEGImages/N.png`, `ImageSets/Main/<split>.txt`; objects start on lines 5 and 14."""
    sides = ("xmin", "ymin", "xmax", "ymax")
    for split, numbers in SPLITS.items():
        for number in numbers:
            write(root / "JPEGImages" / f"{number}.png", pictures[number])
            lines = ["<annotation>", f"<filename>{number}.png</filename>"]
            lines += [f"<size><width>{WIDTH}</width>", f"<height>{HEIGHT}</height></size>"]
            for name, box in BOXES.items():
                lines += ["<object>", f"<name>{name}</name>", "<bndbox>"]
                lines += [f"<{side}>{value}</{side}>" for side, value in zip(sides, box, strict=True)]
                lines += ["</bndbox>", "</object>"]
            write(root / "Annotations" / f"{number}.xml", "\n".join([*lines, "</annotation>\n"]))
        write(root / "ImageSets" / "Main" / f"{split}.txt", "".join(f"{number}\n" for number in numbers))
    return root


@pytest.fixture
def folders(root, pictures) -> Path:
    """`<split>/<class>/N.png`."""
    for number, place in enumerate(_places()):
        write(root / place[0] / place[1] / f"{number}.png", pictures[number])
    return root


@pytest.fixture
def table(root, pictures) -> Path:
    """`labels.csv` with the columns path, label, split, and `images/N.png`; image N stands on line N + 2."""
    rows = ["path,label,split"]
    for number, (split, name) in enumerate(_places()):
        write(root / "images" / f"{number}.png", pictures[number])
        rows.append(f"images/{number}.png,{name},{split}")
    write(root / "labels.csv", "\n".join(rows) + "\n")
    return root


def _places() -> list[tuple[str, str]]:
    return [*[("train", "a")] * 5, *[("train", "b")] * 5, ("val", "a"), ("val", "b")]


@pytest.fixture
def check(capsys) -> Callable[..., Verdict]:
    """A function that runs `visiontrain check` on a data set of this folder."""

    def run(root: Path, *words: str, data: str = "") -> Verdict:
        """
        Args:
            root: The data set.
            words: More of the command line.
            data: What is checked, relative to `root`.
        """
        before = fingerprint(root)
        exit_code = main(["check", f"data={root / data}", "imgsz=64", "json=True", "exist_ok=True", *words])
        assert fingerprint(root) == before, "the data set was written to"
        document = json.loads(capsys.readouterr().out)
        if exit_code == 2:
            return Verdict(2, [], refused=tuple(document["errors"]))
        severities = [("error", one) for one in document["errors"]] + [("warning", one) for one in document["warnings"]]
        assert all(CODES[one["code"]].severity == severity for severity, one in severities)
        assert document["passed"] == (not document["errors"] and not document["faults"])
        assert exit_code == (0 if document["passed"] else 3)
        found = sorted(line for _, one in severities for line in _places_of(one, root))
        return Verdict(exit_code, found, stops=tuple(document["faults"]), notes=tuple(document["notes"]))

    return run


def _places_of(found: dict, root: Path) -> list[str]:
    lines = []
    for example in found["examples"]:
        file = Path(example["file"]).relative_to(root).as_posix() if str(root) in example["file"] else example["file"]
        where = file if example["line"] is None else f"{file}:{example['line']}"
        if found["count"] > len(found["examples"]):
            where += f" ×{found['count']}"
        if Path(file).suffix == ".json":
            where += f": {example['text']}"
        lines.append(f"{found['split']} {found['code']} {where}")
    return lines


def fingerprint(folder: Path) -> list[tuple[str, int, str]]:
    """Name, time of the last change and SHA-256 of everything in a folder. A file that came and went shows, too: the
    time of its folder is another."""
    paths = sorted([folder, *folder.rglob("*")])
    return [
        (str(path), path.lstat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        for path in paths
    ]
