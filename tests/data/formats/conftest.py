"""Small data sets in COCO and Pascal VOC form."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from PIL import Image

CATEGORIES = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.fixture
def write_images() -> Callable[..., None]:
    """A function that writes pictures of 64×48 pixels."""

    def write(folder: Path, *names: str, size=(64, 48)):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", size, (90, 120, 150)).save(folder / name)

    return write


@pytest.fixture
def write_coco() -> Callable[..., Path]:
    """A function that writes a COCO file and returns its path."""

    def write(path: Path, boxes: Sequence = (), *, images: Sequence = ("1.png",), categories=CATEGORIES, **more):
        """`boxes`: (image id, category id, bbox), or whole annotations; `images`: names, which get ids from 1 on."""
        annotations = [
            box
            if not isinstance(box, tuple)
            else {"id": number, "image_id": box[0], "category_id": box[1], "bbox": list(box[2]), "iscrowd": 0}
            for number, box in enumerate(boxes, 10)
        ]
        listed = [
            image if isinstance(image, dict) else {"id": number, "file_name": image, "width": 64, "height": 48}
            for number, image in enumerate(images, 1)
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"images": listed, "annotations": annotations, "categories": categories, **more}
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return write


@pytest.fixture
def one_json(tmp_path, write_images, write_coco) -> Callable[..., Path]:
    """A function that writes a folder `set` of pictures and one JSON of the boxes given; returns the folder."""

    def write(boxes=((1, 1, (8, 12, 16, 24)),), *, images=("1.png",)):
        write_images(tmp_path / "set", *(image if isinstance(image, str) else image["file_name"] for image in images))
        write_coco(tmp_path / "set" / "labels.json", boxes, images=images)
        return tmp_path / "set"

    return write


@pytest.fixture
def write_voc() -> Callable[..., Path]:
    """A function that writes an XML file of boxes and returns its path."""

    def write(path: Path, *objects: tuple[str, Sequence[object]], size=(64, 48), file_name: str | None = None):
        """`objects`: class name and xmin, ymin, xmax, ymax."""
        sides = ("xmin", "ymin", "xmax", "ymax")
        rows = "".join(
            f"<object><name>{name}</name><difficult>1</difficult><bndbox>"
            + "".join(f"<{side}>{value}</{side}>" for side, value in zip(sides, box, strict=True))
            + "</bndbox></object>"
            for name, box in objects
        )
        told = "" if size is None else f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"<annotation><filename>{file_name or path.stem + '.png'}</filename>{told}{rows}</annotation>",
            encoding="utf-8",
        )
        return path

    return write
