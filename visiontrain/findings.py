"""What is wrong, odd or worth knowing in a data set: stable codes, with a count and a few places of each.

Readers, `check` and training speak of faults by these codes, so a script can rely on them and each message is written
once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

Severity = Literal["error", "warning"]
MOST_EXAMPLES = 5
"""Places kept of each code and split; the count is always told."""


@dataclass(frozen=True)
class Code:
    """A kind of finding."""

    severity: Severity
    """`error`: something is lost or wrong, and `check` exits with 3. `warning`: it is used as it is, or put right."""
    says: str
    """What was met and what training does with it, as it follows a number: `3 rows that are not numbers, dropped`."""


CODES: Mapping[str, Code] = {
    # image files
    "image-unreadable": Code("error", "images that cannot be read, left out"),
    "image-too-large": Code("error", "images of more pixels than max_pixels, left out"),
    "image-missing": Code("error", "listed images that do not exist"),
    "image-turned": Code("warning", "images with an orientation tag, turned upright"),
    "image-size": Code(
        "warning", "images that are not as large as their labels tell, boxes taken as pixels of the image itself"
    ),
    "image-listed-twice": Code("warning", "images that are listed more than once, used as often as they are listed"),
    "image-unlisted": Code("warning", "images beside the listed ones that are not listed, not used"),
    "image-suffix": Code("warning", "files whose suffix is no known image format, left out"),
    "image-same": Code("warning", "images that are the same file as another one of their split"),
    "image-in-splits": Code("error", "images that another split holds, too: what it measures means little"),
    "image-alike": Code("warning", "images that look like one of another split"),
    # label files
    "label-missing": Code("warning", "images without a label file, used as background"),
    "label-missing-folder": Code("warning", "folders in which no image has a label file, all used as background"),
    "label-missing-all": Code("error", "images, none of which has a label file"),
    "label-without-image": Code("warning", "label files without an image, not used"),
    "label-unreadable": Code("error", "label files that cannot be read"),
    # rows of labels
    "row-not-numbers": Code("error", "rows that are not numbers, dropped"),
    "row-wrong-length": Code("error", "rows of neither a box (5 or 6 numbers) nor a polygon, dropped"),
    "row-not-finite": Code("error", "rows with NaN or infinity, dropped"),
    "row-no-box": Code("error", "labels without a box of four finite numbers, dropped"),
    "row-no-name": Code("error", "objects without a name, dropped"),
    "row-no-image": Code("error", "labels of images that are not listed, dropped"),
    "row-twice": Code("warning", "rows that repeat another one exactly, dropped"),
    "box-without-area": Code("error", "boxes without area inside the image, dropped"),
    "box-outside": Code("error", "rows far outside the image (in pixels?), dropped"),
    "box-clipped": Code("warning", "boxes reaching beyond the image, clipped"),
    "box-crowd": Code(
        "warning", "crowd regions, which are no single objects, left out: scoring passes over what is found in them"
    ),
    "box-tiny": Code("warning", "boxes smaller than a stride of the network once their image is reduced"),
    # what makes a whole split unusable: training stops
    "class-unknown": Code("error", "labels whose class is not one of the names"),
    "class-from-one": Code("error", "labels whose classes count from 1, not from 0"),
    "box-in-pixels": Code("error", "rows that hold pixels where fractions are wanted"),
    "box-in-fractions": Code("error", "boxes that hold fractions where pixels are wanted"),
    "box-as-corners": Code("error", "boxes that hold two corners where corner, width and height are wanted"),
    # classes and splits
    "class-unused": Code("warning", "classes without a label in train"),
    "class-rare": Code("warning", "classes with far fewer labels in train than the most frequent one"),
    "class-missing": Code("warning", "classes that train has and this split lacks"),
    "class-extra": Code("error", "classes that train lacks, their images left out"),
    "split-empty": Code("warning", "folders or lists that hold no images"),
}


@dataclass(frozen=True)
class Finding:
    """One place where something was found."""

    file: str
    """The file to look at."""
    line: int | None = None
    """From 1; None where the whole file is meant, or it has no lines to speak of."""
    text: str = ""
    """What stands there, where it helps."""
    image: str | None = None
    """The image that it is about, where `file` is a label file; the other one, where `file` is one of two images."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place} ({self.text})" if self.text else place


@dataclass
class Tally:
    """How often a code was met in a split, and where first."""

    count: int = 0
    examples: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding, count: int = 1) -> None:
        """Note one place, which stands for `count`."""
        self.count += count
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(finding)

    def update(self, other: Tally) -> None:
        """Add what another one holds."""
        self.count += other.count
        self.examples += other.examples[: MOST_EXAMPLES - len(self.examples)]

    def __str__(self) -> str:
        return ", ".join(map(str, self.examples)) + (", …" if self.count > len(self.examples) else "")


class Findings:
    """Everything found in a data set. Grows with the codes and splits, not with the faults."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tally] = {}

    def add(
        self,
        code: str,
        split: str,
        file: object,
        line: int | None = None,
        text: str = "",
        *,
        image: object = None,
        count: int = 1,
    ) -> None:
        """Note one place.

        Args:
            code: A key of `CODES`.
            split: The split, or "" for the whole set.
            file: The file to look at.
            line: In it, from 1.
            text: What stands there.
            image: The image that it is about, where `file` is not the image itself.
            count: How many there are at this place.
        """
        self.put(code, split, Tally(count, [Finding(str(file), line, text, None if image is None else str(image))]))

    def put(self, code: str, split: str, tally: Tally) -> None:
        """Add what was tallied elsewhere; nothing where it is empty."""
        assert code in CODES, code
        if tally.count:
            self._tallies.setdefault((code, split), Tally()).update(tally)

    def update(self, other: Findings) -> None:
        """Add what another one holds."""
        for code, split, tally in other:
            self.put(code, split, tally)

    def __iter__(self) -> Iterator[tuple[str, str, Tally]]:
        """Code, split and tally: errors first, then in the order of `CODES`, then of the splits as they came."""
        order = {code: (CODES[code].severity != "error", place) for place, code in enumerate(CODES)}
        for (code, split), tally in sorted(self._tallies.items(), key=lambda item: order[item[0][0]]):
            yield code, split, tally

    def count(self, code: str, split: str | None = None) -> int:
        """How often `code` was met, in one split or in all."""
        return sum(tally.count for c, s, tally in self if c == code and split in (None, s))

    def examples(self, code: str, split: str | None = None) -> list[Finding]:
        """The places kept of `code`, in one split or in all."""
        return [finding for c, s, tally in self if c == code and split in (None, s) for finding in tally.examples]

    @property
    def has_errors(self) -> bool:
        """Whether anything is lost or wrong."""
        return any(CODES[code].severity == "error" for code, _, _ in self)

    def to_json(self) -> str:
        """As a text, from which `from_json` makes the same."""
        return json.dumps([(code, split, asdict(tally)) for code, split, tally in self])

    @classmethod
    def from_json(cls, text: str) -> Findings:
        """What `to_json` wrote."""
        findings = cls()
        for code, split, tally in json.loads(text):
            findings.put(code, split, Tally(tally["count"], [Finding(**example) for example in tally["examples"]]))
        return findings

    def lines(self) -> list[str]:
        """One line for each code and split, with the first places."""
        return [describe(code, split, tally) for code, split, tally in self]


def describe(code: str, split: str, tally: Tally) -> str:
    """One line that tells what was met how often, and where first."""
    return f"{split + ': ' if split else ''}{tally.count} {CODES[code].says}: {tally} [{code}]"
