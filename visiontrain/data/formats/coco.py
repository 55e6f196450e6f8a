"""The COCO detection format: one JSON file of boxes for each split, and folders of images.

This file finds the JSON files of each split; `coco_file` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.data.formats.coco_file import (
    PREFIX,
    CocoFile,
    image_paths,
    label_images,
    load_coco,
    looks_like_coco,
)
from visiontrain.data.formats.description import (
    SPLIT_KEYS,
    described_entries,
    described_format,
    given_names,
    key_notes,
    load_yaml,
    yaml_of,
)
from visiontrain.data.formats.files import Remarks, folder_listing, is_file, visible_files
from visiontrain.data.formats.pixels import LabelledImage, class_list, make_splits
from visiontrain.data.images import IMAGE_SUFFIXES, MAX_PIXELS
from visiontrain.errors import DataError
from visiontrain.findings import Findings
from visiontrain.sample import DataSet

ANNOTATION_FOLDERS = ("annotations", "Annotations")
EXPORTED_NAME = "_annotations.coco.json"
"""What a widely used labelling service calls the file in the folder of each split."""
SPLIT_OF_WORD = {word: split for split, words in SPLIT_KEYS.items() for word in words}
SPLIT_WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(SPLIT_OF_WORD, key=len, reverse=True))})(?![a-z])")


@dataclass(frozen=True)
class Layout:
    """The JSON files of each split, each with its folder of images or None, and the class list if one was given."""

    files: Mapping[str, Sequence[tuple[Path, Path | None]]]
    names: tuple[str, ...] | None = None
    notes: Sequence[str] = ()


class CocoReader:
    """Reads the COCO detection format. A `Reader`."""

    def recognizes(self, source: Path) -> bool:
        described = described_format(source)
        if described is not None:
            return described == "coco"
        return bool(_found_files(source)) if source.is_dir() else source.suffix.lower() == ".json"

    def read(self, source: Path, splits: Sequence[str], *, max_pixels: int = MAX_PIXELS) -> DataSet:
        """Read those of `splits` that there are files for.

        The class list is that of train (of the first split there is), in the order of its ids, and the other splits
        are matched to it by name.

        Args:
            source: A JSON file; a YAML that names some; or a folder: `annotations/` with `instances_train*.json` and
                the like, `train/`, `valid/`, `test/` with a JSON among the images, or one JSON file.
            splits: Of `train`, `val`, `test`.
            max_pixels: A larger image is left out.

        Raises:
            DataError: If no split can be read, or their categories differ; all faults at once.
        """
        layout = _find_layout(source)
        wanted = [split for split in SPLIT_KEYS if split in splits and split in layout.files]
        if not wanted:
            raise DataError(
                f"{source}: has {' and '.join(layout.files)}, but no {' or '.join(splits)}; choose another split, or "
                "name the files in a YAML"
            )
        leading = next(split for split in SPLIT_KEYS if split in layout.files)
        loaded, faults = _load(layout, {leading, *wanted})
        findings = Findings()
        remarks_of = {split: Remarks(split, findings, faults) for split in wanted}
        images_of = {
            split: [image for file, folder in loaded[split] for image in label_images(file, folder, remarks_of[split])]
            for split in wanted
        }
        if not any(images_of.values()):
            raise DataError(faults)
        if layout.names is None:
            names_of = {
                split: _unique(name for file, _ in files for name in file.names) for split, files in loaded.items()
            }
        else:  # categories that no box uses may be left out of the list
            names_of = {
                split: _unique(box.name for image in images for box in image.boxes)
                for split, images in images_of.items()
            }
        names_of = {split: found for split, found in names_of.items() if loaded[split]}
        try:
            names = class_list(names_of, layout.names, source, word="categories")
        except DataError as error:
            raise DataError([*faults, *error.faults]) from error
        if set(wanted) == set(layout.files):  # else the images of the other splits would seem to be in none
            _note_unlisted(images_of, remarks_of)
        images_of = {split: images for split, images in images_of.items() if images}
        found = make_splits(images_of, names, remarks_of, are_sizes=True, max_pixels=max_pixels)
        if not found:
            raise DataError(faults)
        return DataSet(source, names, found, tuple(layout.notes), findings, tuple(faults))


@dataclass(frozen=True)
class CocoIds:
    """The ids, whole numbers or texts, that a data set's own files give."""

    images: Mapping[Path, Any]
    """By the path of the record."""
    categories: Mapping[str, Any]
    """By name."""


def coco_ids(source: Path, split: str) -> CocoIds:
    """The ids of a split's images and categories; those of all splits where there is no such one.

    Raises:
        DataError: If a file cannot be read.
    """
    layout = _find_layout(source)
    images: dict[Path, Any] = {}
    categories: dict[str, Any] = {}
    for name in (split,) if split in layout.files else tuple(layout.files):
        for path, folder in layout.files[name]:
            file = load_coco(path)
            for identifier, place in image_paths(file, folder, name).items():
                images.setdefault(place, identifier)
            for identifier, category in file.category_names.items():
                categories.setdefault(category, identifier)
    return CocoIds(images, categories)


def _note_unlisted(images_of: Mapping[str, Sequence[LabelledImage]], remarks_of: Mapping[str, Remarks]) -> None:
    """Note images that lie beside the listed ones and are in no split."""
    listed = {image.path for images in images_of.values() for image in images}
    folders_seen: set[Path] = set()
    for split, images in images_of.items():
        for folder in dict.fromkeys(image.path.parent for image in images):
            if folder not in folders_seen:
                folders_seen.add(folder)
                for path in visible_files(folder, *IMAGE_SUFFIXES):
                    if path not in listed:
                        remarks_of[split].add("image-unlisted", path)


def _load(layout: Layout, splits: set[str]) -> tuple[dict[str, list[tuple[CocoFile, Path | None]]], list[str]]:
    """The files of some splits with their folders of images, train first, and what is wrong with them."""
    loaded: dict[str, list[tuple[CocoFile, Path | None]]] = {}
    faults: list[str] = []
    for split in (split for split in SPLIT_KEYS if split in splits):
        loaded[split] = []
        for path, folder in layout.files[split]:
            try:
                loaded[split].append((load_coco(path), folder))
            except DataError as error:
                faults.extend(error.faults)
    return loaded, faults


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _find_layout(source: Path) -> Layout:
    if source.is_file() and source.suffix.lower() == ".json":
        return Layout({_split_of(source) or "train": [(source, None)]})
    if described_format(source) == "coco":
        return _described_layout(yaml_of(source))
    if not source.is_dir():
        raise DataError(f"{source}: names no JSON files; `train: annotations/instances_train.json` would name one")
    found = _found_files(source)
    if not found:
        raise DataError(
            f"{source}: holds no COCO JSON, neither itself nor in annotations/, train/, valid/ or test/, or several "
            f"whose names do not tell their split; name them in a YAML; {folder_listing(source)}"
        )
    faults = [
        f"{source}: {' and '.join(path.name for path in paths)} are all of {split}; keep one, or name those that are "
        f"meant in a YAML (`{split}: [first.json, second.json]`)"
        for split, paths in found.items()
        if len(paths) > 1
    ]
    if faults:
        raise DataError(faults)
    return Layout({split: [(path, None) for path in paths] for split, paths in found.items()})


def _described_layout(path: Path) -> Layout:
    """What a YAML names."""
    description = load_yaml(path)
    names = given_names(description, path)
    entries, faults = described_entries(description, path)
    files: dict[str, list[tuple[Path, Path | None]]] = {}
    for split, what, file, folder in entries:
        if file.suffix.lower() != ".json":
            faults.append(f"{what}: is no JSON file, as other entries are; all splits need the same format")
        elif not is_file(file):
            faults.append(f"{what}: there is no {file}; {folder_listing(file.parent)}")
        else:
            files.setdefault(split, []).append((file, folder))
    if faults:
        raise DataError(faults)
    return Layout(files, names, key_notes(description, path))


def _found_files(folder: Path) -> dict[str, list[Path]]:
    """The JSON files of each split in a folder without YAML, from the first place of three that has any."""
    folder = folder.absolute()
    for name in ANNOTATION_FOLDERS:
        if found := _by_split(folder / name):
            return found
    exported = {split: _of_split_folder(folder, words) for split, words in SPLIT_KEYS.items()}
    return {split: paths for split, paths in exported.items() if paths} or _by_split(folder)


def _of_split_folder(folder: Path, words: Sequence[str]) -> list[Path]:
    """The JSON files that lie among the images of a split."""
    found: list[Path] = []
    for word in words:
        if (folder / word / EXPORTED_NAME).is_file():
            found.append(folder / word / EXPORTED_NAME)
        else:
            found += _coco_files(folder / word)
    return found


def _by_split(folder: Path) -> dict[str, list[Path]]:
    """The COCO files of a folder by the split that their names tell; one alone needs no such name."""
    paths = _coco_files(folder)
    paths = [path for path in paths if path.name.startswith(PREFIX)] or paths
    if len(paths) == 1:
        return {_split_of(paths[0]) or "train": paths}
    found: dict[str, list[Path]] = {}
    for path in paths:
        split = _split_of(path)
        if split is not None:
            found.setdefault(split, []).append(path)
    return found


def _coco_files(folder: Path) -> list[Path]:
    paths = visible_files(folder, ".json")
    is_for_labels = folder.name in ANNOTATION_FOLDERS  # a damaged file must not be passed over there
    return [path for path in paths if (is_for_labels and SPLIT_WORD.search(path.stem.lower())) or looks_like_coco(path)]


def _split_of(path: Path) -> str | None:
    """The split that the name of a file, or else of its folder, tells."""
    match = SPLIT_WORD.search(path.stem.lower())
    return SPLIT_OF_WORD[match[1]] if match else SPLIT_OF_WORD.get(path.absolute().parent.name.lower())
