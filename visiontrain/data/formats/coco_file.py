"""One JSON file of the COCO detection format: what it holds, and where its images lie.

`images` (id, file_name, width, height), `categories` (id, name) and `annotations` (image_id, category_id, bbox as
x, y, width, height in pixels, area, iscrowd). Ids may be any whole numbers or texts: sparse, from 0, in any order.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.data.formats.description import SPLIT_KEYS
from visiontrain.data.formats.files import Place, Remarks, folder_listing, is_file
from visiontrain.data.formats.pixels import LabelledImage, PixelBox, first_of, missing_fault, number_row
from visiontrain.errors import DataError
from visiontrain.findings import Tally

PEEK_BYTES = 1 << 16
PROBES = 20
"""Images by which the folder that holds them is guessed."""
LARGEST_AREA = 1e10
"""Square pixels, of COCO's range of all areas."""
PREFIX = "instances_"
"""Of the names of files that hold boxes, beside those of captions and key points."""


@dataclass(frozen=True)
class CocoFile:
    """A JSON file, loaded, with sound ids. Made by `load_coco`."""

    path: Path
    category_names: Mapping[Any, str]
    """Id → name, in the order of the ids."""
    images: Sequence[Mapping[str, Any]]
    annotations: Sequence[Any]

    @property
    def names(self) -> tuple[str, ...]:
        """All category names in the order of their ids, whether boxes use them or not."""
        return tuple(self.category_names.values())


def looks_like_coco(path: Path) -> bool:
    """Whether the beginning of a JSON file speaks of images, annotations or categories."""
    try:
        with path.open("rb") as file:
            beginning = file.read(PEEK_BYTES)
    except OSError:
        return False
    return any(key in beginning for key in (b'"images"', b'"annotations"', b'"categories"'))


def load_coco(path: Path) -> CocoFile:
    """Load a file and check its ids and names.

    Raises:
        DataError: If the file is no COCO JSON, or ids or names are missing or not unique; all faults at once.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}); mend the file") from error
    if not isinstance(document, dict):
        raise DataError(
            f"{path}: holds a {type(document).__name__}, not the keys images, annotations and categories; "
            "a list of detections has no images"
        )
    faults = [
        f"{path}: {key} is {'missing' if key not in document else 'no list'}; a COCO file of boxes has the lists "
        "images, annotations and categories"
        for key in ("images", "annotations", "categories")
        if not isinstance(document.get(key), list)
    ]
    if faults:
        raise DataError(faults)
    faults = [
        *_entry_faults(path, document, "images", "file_name"),
        *_entry_faults(path, document, "categories", "name"),
    ]
    if faults:
        raise DataError(faults)
    ordered = sorted(document["categories"], key=lambda category: _order(category["id"]))
    names = {category["id"]: category["name"] for category in ordered}
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        raise DataError(f"{path}: categories have the same name: {first_of(twice)}; each needs its own")
    return CocoFile(path, names, document["images"], document["annotations"])


def _entry_faults(path: Path, document: Mapping[str, Any], key: str, text_key: str) -> list[str]:
    """What is wrong with the ids and names of the entries under a key."""
    unsound = [
        place
        for place, entry in enumerate(document[key])
        if not (isinstance(entry, dict) and _is_id(entry.get("id")) and _is_text(entry.get(text_key)))
    ]
    if unsound:
        return [
            f"{path}: {len(unsound)} entries of {key} lack an id (whole number or text) or a {text_key} (text): number "
            f"{first_of(list(map(str, unsound)))}, counted from 0; mend or delete them"
        ]
    twice = [str(value) for value, count in Counter(entry["id"] for entry in document[key]).items() if count > 1]
    return [f"{path}: {key} have the same id: {first_of(twice)}; each needs its own"] if twice else []


def _is_id(value: Any) -> bool:
    return type(value) in (int, str)  # not True, which is an int to Python


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _order(identifier: int | str) -> tuple[bool, int, str]:
    """Whole numbers by value, texts behind them by the alphabet."""
    is_text = isinstance(identifier, str)
    return is_text, 0 if isinstance(identifier, str) else identifier, str(identifier)


def label_images(file: CocoFile, folder: Path | None, remarks: Remarks) -> list[LabelledImage]:
    """The images of a file that exist, each with its boxes.

    Args:
        file: What was loaded.
        folder: What `file_name` is relative to; None guesses it.
        remarks: Told which annotations are left out, and why; which images do not exist, and which categories the file
            lacks.
    """
    try:
        folder = folder or _guess_folder(remarks.split, file)
    except DataError as error:
        remarks.faults.extend(error.faults)
        return []
    paths = image_paths(file, folder, remarks.split)
    boxes_of, crowds_of = _boxes(file, paths, remarks)
    labelled: list[LabelledImage] = []
    missing: list[str] = []
    for image in file.images:
        path = paths[image["id"]]
        if is_file(path):
            boxes, crowds = boxes_of.get(image["id"], ()), crowds_of.get(image["id"], ())
            labelled.append(LabelledImage(path, boxes, _told_size(image), crowds))
        else:
            missing.append(f"{image['file_name']!r} (image id {image['id']})")
            remarks.add("image-missing", file.path, text=missing[-1])
    if missing:
        remedy = (
            f"they were looked for below {folder}; fetch them, take them out of {file.path.name}, or give "
            f"their folder as `{remarks.split}_images` in a YAML"
        )
        remarks.faults.append(f"{file.path}: {remarks.split}: {missing_fault(missing, len(file.images), remedy)}")
    return labelled


def image_paths(file: CocoFile, folder: Path | None, split: str) -> dict[Any, Path]:
    """Where each image of a file lies, by its id.

    Args:
        file: What was loaded.
        folder: What `file_name` is relative to; None guesses it.
        split: That the file is of.

    Raises:
        DataError: If the folder cannot be guessed.
    """
    folder = folder or _guess_folder(split, file)
    return {image["id"]: _path_of(folder, image["file_name"]) for image in file.images}


def _told_size(image: Mapping[str, Any]) -> tuple[int, int] | None:
    height, width = image.get("height"), image.get("width")
    return (height, width) if isinstance(height, int) and isinstance(width, int) and height * width > 0 else None


def _boxes(
    file: CocoFile, paths: Mapping[Any, Path], remarks: Remarks
) -> tuple[dict[Any, list[PixelBox]], dict[Any, list[PixelBox]]]:
    """The boxes and the crowd regions of each image, by its id, in the order of the file."""
    boxes_of: dict[Any, list[PixelBox]] = {}
    crowds_of: dict[Any, list[PixelBox]] = {}
    seen: dict[tuple[Any, ...], list[Any]] = {}
    unknown = Tally()
    for number, annotation in enumerate(file.annotations):
        if not isinstance(annotation, dict):
            remarks.add("row-no-box", file.path, text=f"annotation number {number} is not keys with values")
            continue
        image, category = annotation.get("image_id"), annotation.get("category_id")
        told = f"annotation {annotation.get('id', f'number {number}')}"
        if not _is_id(image) or image not in paths:
            remarks.add("row-no-image", file.path, text=f"{told}, image {image!r}")
            continue
        place = Place(file.path, None, f"{told} of {paths[image].name}", paths[image])
        row = annotation.get("bbox")
        numbers = number_row(row) if isinstance(row, list) else None
        if not _is_id(category) or category not in file.category_names:
            unknown.add(place._replace(text=f"{place.text}, category {category!r}").finding())
        elif annotation.get("iscrowd"):
            place.note("box-crowd", remarks)
            if numbers is not None:
                crowds_of.setdefault(image, []).append(_pixel_box(file, annotation, numbers, place))
        elif numbers is None:
            place.note("row-no-box", remarks, f"{row!r:.40}")
        elif _is_repeated(seen.setdefault((image, category, numbers), []), annotation.get("segmentation")):
            place.note("row-twice", remarks)
        else:
            boxes_of.setdefault(image, []).append(_pixel_box(file, annotation, numbers, place))
    if unknown.count:
        remarks.findings.put("class-unknown", remarks.split, unknown)
        remarks.refuse(
            f"{unknown.count} annotations have a category that {file.path} does not list: {unknown}; "
            f"its ids are {first_of(list(map(str, file.category_names)))}; add the category or correct the annotations"
        )
    return boxes_of, crowds_of


def _pixel_box(file: CocoFile, annotation: Mapping[str, Any], numbers: tuple[float, ...], place: Place) -> PixelBox:
    x, y, width, height = numbers
    told = annotation.get("area")
    area = float(told) if isinstance(told, int | float) and 0 <= told <= LARGEST_AREA else math.nan
    return PixelBox((x, y, x + width, y + height), file.category_names[annotation["category_id"]], place, area)


def _is_repeated(outlines: list[Any], outline: Any) -> bool:
    """Whether an outline was met before with this image, category and box; notes it if not."""
    if outline in outlines:
        return True
    outlines.append(outline)
    return False


def _path_of(folder: Path, file_name: str) -> Path:
    """Some programs write the folders of `file_name` with backslashes."""
    return Path(os.path.normpath(folder / file_name.replace("\\", "/")))


def _guess_folder(split: str, file: CocoFile) -> Path:
    """The folder, of those where images lie by custom, that holds most of a few images.

    Raises:
        DataError: If none holds any.
    """
    step = max(1, len(file.images) // PROBES)
    probes = [image["file_name"] for image in file.images[::step]]
    if not probes:
        raise DataError(f"{file.path}: lists no images; name a file that does")
    folders = _customary_folders(split, file.path)
    hits = [sum(is_file(_path_of(folder, name)) for name in probes) for folder in folders]
    if not any(hits):
        tried = ", ".join(map(str, (folder for folder in folders if folder.is_dir())))
        raise DataError(
            f"{file.path}: none of {len(probes)} images tried of {len(file.images)} was found, such as {probes[0]!r}; "
            f"it was looked for below {tried}; put the images there, or give the folder as `{split}_images` in a YAML "
            f"whose `{split}` is this file; {folder_listing(file.path.parent)}"
        )
    return folders[hits.index(max(hits))]


def _customary_folders(split: str, path: Path) -> list[Path]:
    words = list(dict.fromkeys([path.stem.removeprefix(PREFIX), *SPLIT_KEYS.get(split, (split,))]))
    folders: list[Path] = []
    for base in (path.absolute().parent, path.absolute().parent.parent):
        inside = [f"images/{word}" for word in words] + words + [f"{word}/images" for word in words]
        folders += [base, base / "images", *(base / name for name in inside)]
    return folders
