"""The same picture more than once: in one split it counts double, in two it makes scores look better than they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from visiontrain.data.check.looks import Look, image_paths
from visiontrain.data.check.prints import PRINT_BYTES, find_alike
from visiontrain.findings import Findings
from visiontrain.sample import DataSet


def twin_findings(data: DataSet, looks: Mapping[str, Look]) -> Findings:
    """Equal files within a split and across splits, and pictures that look like one of another split.

    A finding's `image` is the other picture. Of two splits it is the later one, in the order of `data.splits`, whose
    images are reported; equal files are not reported as alike again.
    """
    findings = Findings()
    holders: dict[bytes, dict[str, str]] = {}
    rest: list[tuple[int, str, bytes]] = []
    splits = list(data.splits)
    for place, split in enumerate(splits):
        for path in image_paths(data.splits[split]):
            look = looks[path]
            if look.digest is None:
                continue
            held = holders.setdefault(look.digest, {})
            if split in held:
                findings.add("image-same", split, path, text=f"as {held[split]}", image=held[split])
            elsewhere = next((other for other in held if other != split), None)
            if elsewhere is not None:
                where = f"{elsewhere}: {held[elsewhere]}"
                findings.add("image-in-splits", split, path, text=where, image=held[elsewhere])
            elif look.print is not None:
                rest.append((place, path, look.print))
            held.setdefault(split, path)
    _add_alike(findings, rest, splits)
    return findings


def _add_alike(findings: Findings, pictures: list[tuple[int, str, bytes]], splits: list[str]) -> None:
    """Args:
    findings: Added to.
    pictures: Place of the split, path and print of each.
    splits: Names.
    """
    prints = np.frombuffer(b"".join(picture[2] for picture in pictures), np.uint8).reshape(-1, PRINT_BYTES)
    places = np.array([picture[0] for picture in pictures], np.int64)
    alike = find_alike(prints, places)
    for index in np.flatnonzero(alike >= 0).tolist():
        place, path, _ = pictures[index]
        other_place, other, _ = pictures[int(alike[index])]
        findings.add("image-alike", splits[place], path, text=f"{splits[other_place]}: {other}", image=other)
