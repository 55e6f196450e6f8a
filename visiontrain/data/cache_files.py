"""Files that spare a later run work: where they lie, what they are named after, and that they are whole or absent.

They never lie in a data set, which may be read-only and is not ours to write into.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from visiontrain.folders import with_home

FOLDER_VARIABLE = "VISIONTRAIN_CACHE"
PART_SUFFIX = ".part"
ABANDONED_SECONDS = 24 * 3600
"""A half-written file not touched for longer than this belongs to no run any more."""
RESTLESS_NS = 2 * 10**9
"""A file written this little ago, nanoseconds, may be written again within the same tick of a coarse clock (FAT has
two seconds), which would not show in its time."""


def cache_folder() -> Path:
    """The folder for caches: what `VISIONTRAIN_CACHE` says, else the platform's own. It may not exist yet."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return with_home(named).absolute()
    try:
        return _platform_folder()
    except RuntimeError:  # an account without a home, as in containers
        return Path(tempfile.gettempdir()) / "visiontrain"


def _platform_folder() -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "visiontrain" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "visiontrain"
    named = os.environ.get("XDG_CACHE_HOME", "")
    is_valid = Path(named).is_absolute()  # others are to be ignored (XDG Base Directory Specification 0.8)
    return (Path(named) if is_valid else Path.home() / ".cache") / "visiontrain"


def digest_of(parts: Iterable[object]) -> str:
    """32 hexadecimal digits that differ where the texts of `parts` or their borders do."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode("utf-8", "surrogatepass")  # names of files need not be valid Unicode
        digest.update(b"%d:" % len(text) + text)
    return digest.hexdigest()[:32]


def stamp_of(path: Path | str) -> str:
    """A text that changes when the file does: path, size and time of its last change; also for a missing file."""
    absolute = os.path.abspath(path)  # noqa: PTH100 (pathlib takes four times as long, for 100,000 files)
    try:
        status = os.stat(absolute)  # noqa: PTH116
    except OSError:
        return f"{absolute} is not there"
    return f"{absolute} {status.st_size} {status.st_mtime_ns}"


def settled_stamp_of(path: Path | str) -> str:
    """As `stamp_of`; a file written just now gets one that never comes again, since it may still be changing."""
    stamp, now = stamp_of(path), time.time_ns()
    changed = stamp.rpartition(" ")[2]
    is_restless = changed.isdigit() and abs(now - int(changed)) < RESTLESS_NS
    return f"{stamp} {now}" if is_restless else stamp


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """A new file beside `path` to be written; it takes that name when the block ends, and is gone if the block fails.

    Raises:
        OSError: If the folder cannot be made or written into.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent)
    handle, name = tempfile.mkstemp(prefix=f"{path.stem}-", suffix=PART_SUFFIX, dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())  # else a loss of power may leave the name without the content
        part.replace(path)
    finally:
        with suppress(PermissionError):  # Windows keeps a file that an error's traceback still maps; it is swept later
            part.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what runs that were killed left half written."""
    for part in folder.glob(f"*{PART_SUFFIX}"):
        with suppress(OSError):  # another run does the same, or Windows has it open
            if time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
                part.unlink()
