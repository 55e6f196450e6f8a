"""The YOLO text format: a `data.yaml`, folders of images, and one text file of boxes for each image.

This file finds the images of each split; `description` reads the YAML, `yolo_labels` the label files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from visiontrain.data.formats.description import (
    described_format,
    entries_of,
    key_notes,
    load_yaml,
    read_names,
    refuse_image_folders,
    root_of,
    yaml_of,
)
from visiontrain.data.formats.files import (
    SHOWN,
    Remarks,
    exists,
    find_images,
    folder_listing,
    is_file,
    is_folder,
    note_repeats,
    read_sizes,
    read_splits,
)
from visiontrain.data.formats.yolo_labels import LabelFinder, LabelReader
from visiontrain.data.images import MAX_PIXELS
from visiontrain.data.label_cache import Reading, cached_records
from visiontrain.errors import DataError
from visiontrain.findings import Findings
from visiontrain.sample import DataSet, Record, Records


class YoloReader:
    """Reads the YOLO text format. A `Reader`."""

    def recognizes(self, source: Path) -> bool:
        return described_format(source) == "yolo"

    def read(self, source: Path, splits: Sequence[str], *, max_pixels: int = MAX_PIXELS) -> DataSet:
        """Read those of `splits` that the YAML names.

        Args:
            source: The YAML, or a folder that holds it.
            splits: Of `train`, `val`, `test`.
            max_pixels: A larger image is left out.

        Raises:
            DataError: If the YAML is wrong, or no split can be read; all faults at once.
        """
        yaml_path = yaml_of(source)
        description = load_yaml(yaml_path)
        names = read_names(description, yaml_path)
        refuse_image_folders(description, yaml_path)
        root, notes = root_of(description, yaml_path), key_notes(description, yaml_path)

        def read_split(remarks: Remarks) -> Records | None:
            entries = entries_of(description, remarks.split, yaml_path)
            return _read_split(entries, root, names, remarks, max_pixels) if entries else None

        found, findings, faults = read_splits(splits, read_split)
        if not found:
            raise DataError(
                faults
                or f"{yaml_path}: names no images for {' or '.join(splits)}; give the key a folder that holds images"
            )
        return DataSet(source, names, found, tuple(notes), findings, tuple(faults))


def _read_split(
    entries: list[tuple[str, Path]], root: Path, names: tuple[str, ...], remarks: Remarks, max_pixels: int
) -> Records | None:
    """The images and labels of one split; None where it is empty and may be (not `train`), or for noted faults."""
    faults: list[str] = []
    paths: list[Path] = []
    for what, entry in entries:
        try:
            images = _images_of(what, entry, root, remarks)
        except DataError as error:
            faults.extend(error.faults)
            continue
        paths.extend(images)
    if faults:
        raise DataError(faults)
    if not paths:
        if remarks.split == "train" and not remarks.faults:
            raise DataError([f"{what}: holds no images; name a folder that does" for what, _ in entries])
        return None
    note_repeats(paths, remarks)
    finder = LabelFinder(paths)
    finder.check(remarks)
    finder.check_leftovers(remarks)
    labels = [finder.find(path) for path in paths]
    reading = cached_records(
        paths,
        labels,
        lambda: _read_labels(remarks.split, paths, labels, len(names), max_pixels),
        key_parts=["yolo", max_pixels, *names],
        slot=f"yolo {entries[0][0]} {remarks.split}",
    )
    remarks.findings.update(reading.findings)
    remarks.faults.extend(reading.faults)
    if not reading.records:
        raise DataError(f"{remarks.split}: none of the {len(paths)} images can be read; the first is {paths[0]}")
    return Records(reading.records)


def _read_labels(
    split: str, paths: list[Path], labels: list[Path | None], num_classes: int, max_pixels: int
) -> Reading:
    """The records of the images that can be read, and what there is to say of them."""
    remarks = Remarks(split, Findings())
    reader = LabelReader(num_classes, remarks)
    records: list[Record] = []
    sizes = read_sizes(paths, remarks, max_pixels=max_pixels)
    for path, label_path, size in zip(paths, labels, sizes, strict=True):
        if size is not None:
            boxes, classes = reader.read(label_path, path) if label_path else reader.nothing()
            records.append(Record(path, *size, boxes, classes))
    reader.check()
    return Reading(records, remarks.findings, tuple(remarks.faults))


def _images_of(what: str, entry: Path, root: Path, remarks: Remarks) -> list[Path]:
    """The images that one entry of a split stands for."""
    tried = [Path(os.path.normpath(root / entry))]
    inside = [part for part in entry.parts if part != ".."]
    if entry.parts[:1] == ("..",) and inside:  # written by exporters for a reader that starts one folder deeper
        tried.append(root.joinpath(*inside))
    path = next((path for path in tried if exists(path)), None)
    if path is None:
        raise DataError(
            f"{what}: there is no {' and no '.join(map(str, tried))}; "
            f"it is relative to `path` or else to the folder of the YAML; {folder_listing(tried[0].parent)}"
        )
    if is_folder(path):
        found = find_images(path, remarks)
    elif path.suffix.lower() == ".txt":
        found = _listed_images(what, path, root, remarks)
    else:
        raise DataError(f"{what}: {path} is a file; it should be a folder or a .txt file of image paths")
    if not found:
        remarks.add("split-empty", path, text=what)
    return found


def _listed_images(what: str, list_file: Path, root: Path, remarks: Remarks) -> list[Path]:
    """The images that a list file names, one a line, relative to its own folder or to the root."""
    try:
        lines = list_file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{what}: {list_file} cannot be read ({error}); save it as UTF-8 text") from error
    found: list[Path] = []
    missing: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        places = [Path(os.path.normpath(folder / text)) for folder in (list_file.parent, root)]
        path = next((place for place in places if is_file(place)), None)
        if path is None:
            remarks.add("image-missing", list_file, number, repr(text))
            missing.append(f"{list_file}:{number}: {text!r}, looked for as {' and '.join(map(str, places))}")
        else:
            found.append(path)
    if missing:
        shown = "; ".join(missing[:SHOWN]) + ("; …" if len(missing) > SHOWN else "")
        remarks.faults.append(f"{what}: {len(missing)} of the images listed do not exist: {shown}; correct the list")
    return found
