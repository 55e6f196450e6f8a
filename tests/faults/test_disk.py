"""A disk that takes no more, a folder that may not be written or is gone: one sentence, and nothing saved is lost."""

from __future__ import annotations

import os
import re
import resource
import shutil
import tempfile
from pathlib import Path

import pytest

from visiontrain.cli import main
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import UserError
from visiontrain.run.record import Recorder
from visiontrain.run.saving import Checkpoints

pytestmark = pytest.mark.slow
SETTINGS = {"epochs": 3, "warmup_epochs": 0, "workers": 0, "val": False, "save_minutes": 1e-9}
WINDOWS = 6


@pytest.fixture
def room():
    """A function after which no file may grow beyond so many bytes: a write that fails as on a full disk.

    None gives the room back.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(num_bytes: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if num_bytes is None else num_bytes, hard))

    yield limit
    limit(None)


@pytest.fixture
def behind_window(monkeypatch):
    """A function that has something done once a window (from 0) was trained on."""
    plain = Recorder.window

    def arm(index, act):
        def window(self, loaded, *rest):
            plain(self, loaded, *rest)
            if loaded.planned.index == index:
                act()

        monkeypatch.setattr(Recorder, "window", window)

    return arm


@pytest.mark.parametrize("index", range(1, WINDOWS, 2))
def test_a_disk_that_is_full_from_any_window_on_leaves_the_checkpoint_before(
    run_training, behind_window, room, tmp_path, capsys, monkeypatch, index
):
    behind_window(index, lambda: room(100_000))
    with pytest.raises(UserError, match=r"last\.pt: the run has ended and could not be saved; make room"):
        run_training(**SETTINGS)
    room(None)
    monkeypatch.undo()
    told = capsys.readouterr().out
    assert re.search(r"last\.pt: cannot be written \(File too large\); it takes \d+\.\d MB; training goes on", told)
    assert "Traceback" not in told
    last = tmp_path / "run" / "weights" / "last.pt"
    assert load_checkpoint(last)["plan"]["window"] == index  # the save behind this window was the first to fail
    assert list(last.parent.glob(".*")) == []
    assert main(["train", f"resume={tmp_path / 'run'}"]) == 0
    assert load_checkpoint(last)["plan"]["window"] == WINDOWS


def test_a_disk_that_has_room_again_is_written_to_again(run_training, room, tmp_path, capsys, monkeypatch):
    plain = Checkpoints._save_last

    def save(self, values, state):
        room(100_000 if state.window == 1 else None)
        plain(self, values, state)

    monkeypatch.setattr(Checkpoints, "_save_last", save)
    run_training(**SETTINGS)
    assert "cannot be written (File too large)" in capsys.readouterr().out
    assert load_checkpoint(tmp_path / "run" / "weights" / "last.pt")["plan"]["window"] == WINDOWS


def test_a_disk_that_is_full_behind_the_last_checkpoint_ends_in_a_sentence_and_results_follow(
    run_training, room, tmp_path, capsys, monkeypatch
):
    plain = Checkpoints.check_saved

    def check_saved(self, state):
        plain(self, state)
        room(0)

    monkeypatch.setattr(Checkpoints, "check_saved", check_saved)
    with pytest.raises(UserError, match=r"results\.json: cannot be written \(File too large\); make room"):
        run_training(**SETTINGS, plots=True)
    room(None)
    monkeypatch.undo()
    assert "no pictures (File too large); the run goes on without them" in capsys.readouterr().out
    assert main(["train", f"resume={tmp_path / 'run'}"]) == 0
    assert (tmp_path / "run" / "results.json").is_file()


def test_a_file_in_the_place_of_the_run_folder_is_a_sentence_and_the_moved_checkpoint_is_whole(
    run_training, behind_window, tmp_path
):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def replace():
        folder.rename(moved)
        folder.write_text("in the way")

    behind_window(3, replace)
    with pytest.raises(UserError, match=r"last\.pt: the run has ended and could not be saved"):
        run_training(**SETTINGS)
    assert load_checkpoint(moved / "weights" / "last.pt")["plan"]["window"] == 3
    assert folder.read_text() == "in the way"


@pytest.mark.parametrize("index", [0, 2, WINDOWS - 1])
def test_a_run_folder_that_is_deleted_in_mid_run_is_made_again(run_training, behind_window, tmp_path, capsys, index):
    behind_window(index, lambda: shutil.rmtree(tmp_path / "run"))
    run_training(**SETTINGS, plots=True)
    assert load_checkpoint(tmp_path / "run" / "weights" / "last.pt")["plan"]["window"] == WINDOWS
    assert "Traceback" not in capsys.readouterr().out


READ_ONLY = """
import os, pathlib, sys
from visiontrain.cli import main
from visiontrain.run.record import Recorder

plain = Recorder.window
run = pathlib.Path(sys.argv[1])

def window(self, loaded, *rest):
    plain(self, loaded, *rest)
    if loaded.planned.index == 2:
        for folder in (run / "weights", run):
            folder.chmod(0o555)
        for path in run.iterdir():
            if path.is_file():
                path.chmod(0o444)
        if os.geteuid() == 0:  # whom no right binds: become nobody
            os.setegid(65534)
            os.seteuid(65534)

Recorder.window = window
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def open_folder():
    """A folder that every user may write into."""
    folder = Path(tempfile.mkdtemp(prefix="visiontrain-"))
    folder.chmod(0o777)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o777)
    shutil.rmtree(folder)


@pytest.mark.skipif(os.name == "nt", reason="rights of files are those of POSIX")
def test_a_run_folder_that_becomes_read_only_ends_in_a_sentence_with_its_checkpoint_whole(
    program, open_folder, tiny_yolo, small_network
):
    shutil.copytree(tiny_yolo(8).parent, open_folder / "data")
    shutil.copy(small_network, open_folder / "small.yaml")
    (open_folder / "program.py").write_text(READ_ONLY)
    for path in open_folder.rglob("*"):
        path.chmod(0o777)
    run = open_folder / "run"
    words = [f"data={open_folder / 'data' / 'data.yaml'}", f"model={open_folder / 'small.yaml'}", "plots=False"]
    words += [f"save_dir={run}", "imgsz=64", "batch=2", "nbs=4", *(f"{key}={value}" for key, value in SETTINGS.items())]
    ended = program(
        open_folder / "program.py",
        run,
        "train",
        *words,
        cwd=open_folder,
        environment={"VISIONTRAIN_CACHE": str(open_folder / "cache")},
    )
    assert ended.code == 2, ended
    assert re.search(r"last\.pt: cannot be written \(Permission denied\); it takes", ended.out)
    assert "the run has ended and could not be saved" in ended.err
    assert "Traceback" not in ended.out + ended.err
    assert load_checkpoint(run / "weights" / "last.pt")["plan"]["window"] == 2


def test_a_folder_in_which_no_run_can_be_made_is_refused(tiny_yolo, small_network, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    words = ["train", f"data={tiny_yolo(2)}", f"model={small_network}", "imgsz=64", "batch=2", "nbs=2"]
    assert main([*words, f"save_dir={tmp_path / 'file' / 'run'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "choose another place with project= or save_dir=" in line
