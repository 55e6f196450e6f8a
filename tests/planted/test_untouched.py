"""User data are never written to, by any mode: nothing in them changes, and nothing is even tried.

The data are read-only. Since that binds no superuser, all that Python does to files is watched as well, in the process
and in those it starts; what other libraries do would show in the times of the folders.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

WATCH = """
import os, sys

_root, _log = os.environ["WATCHED_FOLDER"], os.environ["WATCH_LOG"]
_writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_changes = {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.setxattr",
            "os.symlink", "os.truncate", "os.utime", "sqlite3.connect"}


def _watch(event, arguments):
    is_writing = event == "open" and isinstance(arguments[2], int) and arguments[2] & _writing
    if not is_writing and event not in _changes:
        return
    for path in arguments[: 1 if event == "open" else 2]:
        if isinstance(path, (str, bytes)) and os.path.abspath(os.fsdecode(path)).startswith(_root + os.sep):
            with open(_log, "a", encoding="utf-8") as log:
                log.write(f"{event} {os.fsdecode(path)}\\n")


sys.addaudithook(_watch)
"""
"""Run by every Python process at its start; notes each attempt to change something in the watched folder."""

MODES = """
import json, sys
from visiontrain.cli import main

if __name__ == "__main__":
    print("exit codes", [main(words) for words in json.loads(sys.argv[1])])
"""


@pytest.fixture
def watched(tmp_path) -> Callable[..., tuple[list[str], str]]:
    """A function that runs a Python program and returns what it tried to change in a folder, and what it printed."""

    def run(program: str, *arguments: str, folder: Path) -> tuple[list[str], str]:
        hook, log = tmp_path / "hook", tmp_path / "changes.txt"
        hook.mkdir(exist_ok=True)
        (hook / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
        (hook / "program.py").write_text(program, encoding="utf-8")
        log.touch()
        paths = [str(hook), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, str(hook / "program.py"), *arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "WATCHED_FOLDER": str(folder),
                "WATCH_LOG": str(log),
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stderr
        return log.read_text(encoding="utf-8").splitlines(), done.stdout

    return run


@pytest.fixture
def read_only():
    """A function that takes the right to write from a folder and all in it, until the test ends."""
    taken: list[Path] = []

    def take(folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
            taken.append(path)

    yield take
    for path in taken:
        path.chmod(path.stat().st_mode | 0o200)


def contents(folder):
    paths = sorted([folder, *folder.rglob("*")])
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in paths
    }


def test_the_watch_sees_every_way_to_change_a_folder_from_any_process(tmp_path, watched):
    (tmp_path / "data").mkdir()
    program = """
import multiprocessing, os, pathlib, sys
root = pathlib.Path(sys.argv[1])
def write(path): path.write_text("")
if __name__ == "__main__":
    (root / "a").write_text("")
    (root / "a").read_text()
    os.rename(root / "a", root / "b")
    (root / "c").mkdir()
    os.utime(root / "b")
    (root.parent / "outside").write_text("")
    os.rename(root.parent / "outside", root / "d")
    child = multiprocessing.get_context("spawn").Process(target=write, args=(root / "e",))
    child.start()
    child.join()
"""
    changes, _ = watched(program, str(tmp_path / "data"), folder=tmp_path / "data")
    seen = [(line.split()[0], Path(line.split()[1]).name) for line in changes]
    assert seen == [
        ("open", "a"),
        ("os.rename", "a"),
        ("os.rename", "b"),
        ("os.mkdir", "c"),
        ("os.utime", "b"),
        ("os.rename", "d"),
        ("open", "e"),
    ]


def plant_odd_files(root):
    """What trainers have "restored" in place: a turned picture, bytes behind a picture's end, a picture cut short."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, split, options, tail in (
        ("1", "train", {"exif": exif}, b""),
        ("2", "train", {}, b"more"),
        ("6", "val", {}, None),
    ):
        path, file = root / "images" / split / f"{name}.png", io.BytesIO()
        with Image.open(path) as image:
            image.save(file, "JPEG", **options)
        data = file.getvalue()
        path.unlink()
        path.with_suffix(".jpg").write_bytes(data[:-200] if tail is None else data + tail)


@pytest.mark.slow
def test_no_mode_changes_a_detection_set_or_tries_to(
    yolo, small_network, tmp_path, watched, read_only, repository, monkeypatch
):
    plant_odd_files(yolo)
    read_only(yolo)
    before = contents(yolo)
    run = tmp_path / "runs" / "first"
    data, network = f"data={yolo}", f"model={small_network}"
    training = ["imgsz=64", "batch=2", "nbs=4", "epochs=1", "warmup_epochs=0"]
    weights = f"model={run / 'weights' / 'best.pt'}"
    monkeypatch.setenv("PYTHONPATH", str(repository))
    modes = [
        ["check", data, "imgsz=64", "workers=1"],
        ["plan", data, network, *training],
        ["train", data, network, *training, "cache=disk", "workers=1", f"save_dir={run}"],
        ["train", data, network, *training, "cache=ram", "workers=0", "plots=False"],
        ["val", data, weights],
        ["predict", weights, f"source={yolo / 'images' / 'val'}", "save_txt=True", "conf=0.001"],
        ["show", data, "imgsz=64", "index=1"],
    ]
    changes, printed = watched(MODES, json.dumps(modes), folder=yolo)
    assert printed.splitlines()[-1] == "exit codes [3, 0, 0, 0, 0, 0, 0]"  # check finds the picture that is cut short
    assert changes == []
    assert contents(yolo) == before
    assert list((tmp_path / "runs").rglob("labels/5.txt"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["coco", "voc", "folders", "table"])
def test_no_format_is_written_to_by_checking_training_and_scoring(
    request, kind, small_network, small_classifier, tmp_path, watched, read_only, repository, monkeypatch
):
    root = request.getfixturevalue(kind)
    read_only(root)
    before = contents(root)
    data = f"data={root / 'labels.csv' if kind == 'table' else root}"
    network = f"model={small_classifier if kind in ('folders', 'table') else small_network}"
    run = tmp_path / "runs" / "first"
    monkeypatch.setenv("PYTHONPATH", str(repository))
    modes = [
        ["check", data, "imgsz=64"],
        ["train", data, network, "imgsz=64", "batch=2", "nbs=4", "epochs=1", "workers=0", f"save_dir={run}"],
        ["val", data, f"model={run / 'weights' / 'last.pt'}", "workers=0"],
    ]
    changes, printed = watched(MODES, json.dumps(modes), folder=root)
    assert printed.splitlines()[-1] == "exit codes [0, 0, 0]"
    assert changes == []
    assert contents(root) == before
