"""What the formats of classification share: one class list for all splits, and records of images that have labels.

A format says where its splits lie and which labels stand beside which image (`Layout`); this file makes a data set of
it. Classes are known by their names: those of train, in alphabetical order, unless the data set names them itself. So
the index of a class is the same in every split, whatever classes a split lacks or adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from visiontrain.data.formats.files import SHOWN, Remarks, note_repeats, read_sizes, read_splits
from visiontrain.data.label_cache import Reading, cached_records
from visiontrain.errors import DataError
from visiontrain.findings import Findings
from visiontrain.sample import DataSet, Record, Records

NO_BOXES = np.zeros((0, 4), np.float32)


class Listed(NamedTuple):
    """An image and its labels, as a format holds them."""

    image: Path
    labels: tuple[str, ...]
    """Each once; none is background."""
    file: Path
    """What tells the labels: a CSV file, or a folder."""
    line: int | None = None
    """Of `file`."""


class Layout(Protocol):
    """Where the splits of a data set lie, and what they hold."""

    @property
    def splits(self) -> Sequence[str]:
        """Those that there are."""

    def place_of(self, split: str) -> Path:
        """The folder, or the file that holds the labels."""

    def classes_of(self, split: str) -> tuple[str, ...]:
        """Every class that a split names, in alphabetical order, also those without an image."""

    def images_of(self, split: str, remarks: Remarks) -> list[Listed]:
        """Every image of a split; `remarks` is told of what is left out."""


def read_layout(
    source: Path,
    layout: Layout,
    splits: Sequence[str],
    *,
    given_names: tuple[str, ...] | None,
    notes: Sequence[str],
    max_pixels: int,
) -> DataSet:
    """Read those of `splits` that there are.

    Args:
        source: The file or folder that the user named.
        layout: What it holds.
        splits: Of `train`, `val`, `test`.
        given_names: The class list, where the data set brings one; a label that is not in it is a fault.
        notes: What was guessed on the way here.
        max_pixels: A larger image is left out.

    Raises:
        DataError: If no split can be read; all faults at once.
    """
    wanted = [split for split in splits if split in layout.splits]
    if not wanted:
        raise DataError(
            f"{source}: has no images for {' or '.join(splits)}; it has {', '.join(layout.splits) or 'no split at all'}"
        )
    first = "train" if "train" in layout.splits else layout.splits[0]
    names = given_names or layout.classes_of(first)
    if not names:
        raise DataError(f"{layout.place_of(first)}: holds no class; each image of {first} needs a label")
    if first != "train":
        notes = [*notes, f"{source}: has no train split, so the classes are those of {first}"]

    def read_split(remarks: Remarks) -> Records | None:
        listed = layout.images_of(remarks.split, remarks)
        known = _with_known_labels(listed, names, remarks, is_given=given_names is not None)
        if remarks.split != first and known:
            _note_missing_classes(known, names, layout.place_of(remarks.split), remarks)
        return _read_records(known, names, layout.place_of(remarks.split), remarks, max_pixels)

    found, findings, faults = read_splits(wanted, read_split)
    if not found:
        raise DataError(faults or f"{source}: holds no images for {' or '.join(splits)}; check what it names")
    return DataSet(source, names, found, tuple(notes), findings, tuple(faults))


def _with_known_labels(
    listed: list[Listed], names: tuple[str, ...], remarks: Remarks, *, is_given: bool
) -> list[Listed]:
    """The images all of whose labels are classes; each class that is none is noted once."""
    known = set(names)
    strange: dict[str, list[Listed]] = {}
    for entry in listed:
        for label in entry.labels:
            if label not in known:
                strange.setdefault(label, []).append(entry)
    for label, entries in sorted(strange.items()):
        code = "class-unknown" if is_given else "class-extra"
        count = f"{len(entries)} image{'s' * (len(entries) != 1)}"
        remarks.add(code, entries[0].file, entries[0].line, f"{label}: {count}")
    if not strange:
        return listed
    if is_given:
        shown = ", ".join(map(repr, sorted(strange)[:SHOWN])) + ", …" * (len(strange) > SHOWN)
        remarks.refuse(
            f"{shown}: not among the names ({', '.join(names[: 2 * SHOWN])}{', …' * (len(names) > 2 * SHOWN)}); "
            "correct the labels, or add the class to names"
        )
    return [entry for entry in listed if known.issuperset(entry.labels)]


def _note_missing_classes(listed: list[Listed], names: tuple[str, ...], place: Path, remarks: Remarks) -> None:
    present = {label for entry in listed for label in entry.labels}
    for name in names:
        if name not in present:
            remarks.add("class-missing", place, text=name)


def _read_records(
    listed: list[Listed], names: tuple[str, ...], place: Path, remarks: Remarks, max_pixels: int
) -> Records | None:
    """The records of a split; None where it is empty and may be (not `train`), or for noted faults."""
    split = remarks.split
    if not listed:
        if remarks.faults:
            return None
        if split == "train":
            raise DataError(f"{place}: holds no images for train; name a place that does")
        remarks.add("split-empty", place)
        return None
    paths = [entry.image for entry in listed]
    note_repeats(paths, remarks)
    reading = cached_records(
        paths,
        [],  # the labels are in the key themselves: the same file or folder may mean others
        lambda: _read_images(listed, names, split, max_pixels),
        key_parts=["classes", max_pixels, *names, "labels", *(entry.labels for entry in listed)],
        slot=f"classes {place.absolute()} {split}",
    )
    remarks.findings.update(reading.findings)
    if not reading.records:
        raise DataError(f"{split}: none of the {len(paths)} images can be read; the first is {paths[0]}")
    return Records(reading.records)


def _read_images(listed: list[Listed], names: tuple[str, ...], split: str, max_pixels: int) -> Reading:
    """The records of the images that can be read, and what there is to say of the others."""
    remarks = Remarks(split, Findings())
    index_of = {name: index for index, name in enumerate(names)}
    records = []
    sizes = read_sizes([entry.image for entry in listed], remarks, max_pixels=max_pixels)
    for entry, size in zip(listed, sizes, strict=True):
        if size is not None:
            classes = np.array([index_of[label] for label in entry.labels], np.int64)
            records.append(Record(entry.image, *size, NO_BOXES, classes))
    return Reading(records, remarks.findings)
