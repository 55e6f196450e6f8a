"""Image folders: a folder of images for each class, whose name is the class.

`data=` takes

* a folder that holds `train`, and where there are any `val` (`valid`, `validation`) and `test`, each with a folder for
  each class;
* one folder of class folders: all of it is train;
* a YAML that names such folders: `train: …`, `val: …`, and `names` where the order of classes matters.

Classes are sorted as texts, as `torchvision.datasets.ImageFolder` does: `10` comes before `2`. Images may lie at any
depth below the folder of their class; those that lie beside class folders have no class.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from visiontrain.data.formats.class_labels import Listed, read_layout
from visiontrain.data.formats.description import (
    SPLIT_KEYS,
    YAML_NAMES,
    YAML_SUFFIXES,
    entries_of,
    given_names,
    key_notes,
    load_yaml,
    refuse_image_folders,
    root_of,
    yaml_of,
)
from visiontrain.data.formats.files import (
    COMPANION_SUFFIXES,
    Remarks,
    exists,
    find_images,
    folder_listing,
    is_folder,
    visible_files,
)
from visiontrain.data.images import IMAGE_SUFFIXES, MAX_PIXELS
from visiontrain.errors import DataError
from visiontrain.sample import DataSet

SPLIT_OF = {name: split for split, names in SPLIT_KEYS.items() for name in names}
"""The split of a folder or file, by its name in lower case."""
LIST_SUFFIXES = (".csv", ".json", ".txt")
"""Of files that a YAML of another format names."""
DETECTION_FOLDERS = ({"images", "labels"}, {"annotations"}, {"jpegimages"})
"""Folders that lie side by side in data sets of detection (lower case)."""


class ImageFolderReader:
    """Reads image folders. A `Reader`."""

    def recognizes(self, source: Path) -> bool:
        try:
            layout, _, _ = _describe(source)
        except DataError:
            return source.is_dir() or is_described(source)  # this reader tells what is wrong
        entries = [entry for of_split in layout.folders.values() for entry in of_split]
        if not any(exists(entry) for entry in entries):
            return bool(entries) and not any(entry.suffix.lower() in LIST_SUFFIXES for entry in entries)
        folders = [entry for entry in entries if is_folder(entry)]
        return not any(map(_is_of_detection, folders)) and any(map(_holds_classes, folders))

    def read(self, source: Path, splits: Sequence[str], *, max_pixels: int = MAX_PIXELS) -> DataSet:
        """Read those of `splits` that there are.

        Args:
            source: A folder or a YAML.
            splits: Of `train`, `val`, `test`.
            max_pixels: A larger image is left out.

        Raises:
            DataError: If no split can be read; all faults at once.
        """
        layout, names, notes = _describe(source)
        return read_layout(source, layout, splits, given_names=names, notes=notes, max_pixels=max_pixels)


@dataclass(frozen=True)
class _FolderLayout:
    """A `Layout`."""

    folders: Mapping[str, Sequence[Path]]
    """Of each split: those that hold class folders."""

    @property
    def splits(self) -> Sequence[str]:
        return tuple(self.folders)

    def place_of(self, split: str) -> Path:
        return self.folders[split][0]

    def classes_of(self, split: str) -> tuple[str, ...]:
        return tuple(sorted({folder.name for folder in self._class_folders(split)}))

    def images_of(self, split: str, remarks: Remarks) -> list[Listed]:
        listed: list[Listed] = []
        for folder in self._class_folders(split):
            images = find_images(folder, remarks)
            if not images:
                remarks.add("split-empty", folder)
            listed.extend(Listed(image, (folder.name,), folder) for image in images)
        for folder in self.folders[split]:
            _note_files_without_class(folder, remarks)
        return listed

    def _class_folders(self, split: str) -> list[Path]:
        """In the order of their names, which is the order of the records."""
        faults = [
            f"{folder}: {'is no folder' if exists(folder) else 'does not exist'}; it should hold a folder of images "
            f"for each class; {folder_listing(folder.parent)}"
            for folder in self.folders[split]
            if not is_folder(folder)
        ]
        faults += [
            f"{folder}: holds images, but no folders; make one for each class; {folder_listing(folder)}"
            for folder in self.folders[split]
            if is_folder(folder) and not visible_folders(folder) and visible_files(folder, *IMAGE_SUFFIXES)
        ]
        if faults:
            raise DataError(faults)
        found = [inner for folder in self.folders[split] for inner in visible_folders(folder)]
        return sorted(found, key=lambda folder: folder.name)


def is_described(source: Path) -> bool:
    """Whether there is a YAML to read."""
    if source.is_dir():
        return any((source / name).is_file() for name in YAML_NAMES)
    return source.suffix.lower() in YAML_SUFFIXES


def visible_folders(folder: Path) -> list[Path]:
    """The folders in a folder, in the order of their names, without those whose name starts with a dot."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def by_split(entries: Sequence[Path], source: Path) -> dict[str, Path]:
    """Those of some files or folders whose name, without its suffix, is that of a split.

    Raises:
        DataError: If two of them are the same split.
    """
    found: dict[str, Path] = {}
    for split in SPLIT_KEYS:
        of_split = [
            entry for entry in entries if SPLIT_OF.get((entry.name if entry.is_dir() else entry.stem).lower()) == split
        ]
        if len(of_split) > 1:
            raise DataError(
                f"{source}: {' and '.join(entry.name for entry in of_split)} mean the same split; keep one of them"
            )
        found.update((split, entry) for entry in of_split)
    return found


def _describe(source: Path) -> tuple[_FolderLayout, tuple[str, ...] | None, list[str]]:
    """Where the splits lie, the class list if there is one, and what there is to note.

    Raises:
        DataError: If the YAML is wrong, or `source` is neither a folder nor a YAML.
    """
    if is_described(source):
        return _described(yaml_of(source))
    if not source.is_dir():
        raise DataError(f"{source}: is no folder; give the folder that holds a folder of images for each class")
    folders = visible_folders(source)
    splits = by_split(folders, source)
    if not splits:
        note = f"{source}: holds no folder train, so its folders are the classes and all images are train"
        return _FolderLayout({"train": [source]}), None, [note]
    others = [folder.name for folder in folders if folder not in splits.values()]
    notes = [f"{source}: {', '.join(others)} beside {', '.join(splits)}: not used"] if others else []
    return _FolderLayout({split: [folder] for split, folder in splits.items()}), None, notes


def _described(yaml_path: Path) -> tuple[_FolderLayout, tuple[str, ...] | None, list[str]]:
    description = load_yaml(yaml_path)
    names = given_names(description, yaml_path)
    refuse_image_folders(description, yaml_path)
    root = root_of(description, yaml_path)
    folders = {
        split: [Path(os.path.normpath(root / entry)) for _, entry in entries_of(description, split, yaml_path)]
        for split in SPLIT_KEYS
    }
    layout = _FolderLayout({split: entries for split, entries in folders.items() if entries})
    return layout, names, key_notes(description, yaml_path)


def _is_of_detection(folder: Path) -> bool:
    names = {inner.name.lower() for inner in visible_folders(folder)}
    return any(parts <= names for parts in DETECTION_FOLDERS)


def _holds_classes(folder: Path) -> bool:
    """Whether a folder holds a folder with an image somewhere in it."""
    inside = (os.walk(inner) for inner in visible_folders(folder))
    return any(Path(name).suffix.lower() in IMAGE_SUFFIXES for walk in inside for _, _, files in walk for name in files)


def _note_files_without_class(folder: Path, remarks: Remarks) -> None:
    """Note what lies beside class folders."""
    for path in sorted(folder.iterdir()):
        suffix = path.suffix.lower()
        if path.name.startswith(".") or not path.is_file():
            continue
        if suffix in IMAGE_SUFFIXES:
            remarks.add("image-unlisted", path, text="in no class folder")
        elif suffix not in COMPANION_SUFFIXES:
            remarks.add("image-suffix", path)
