"""Run folders: the first free number, exact places, and what is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from visiontrain.errors import ConfigError
from visiontrain.folders import make_run_folder, with_home


def make(root, **keys):
    return make_run_folder(**{"task": "detect", "name": "train", "project": str(root / "runs"), **keys})


def test_a_run_lies_below_runs_and_its_task_unless_a_project_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_run_folder(task="detect", name="train").resolve() == tmp_path / "runs" / "detect" / "train"
    assert make_run_folder(task="detect", name="train", project="mine").resolve() == tmp_path / "mine" / "train"


def test_a_taken_name_gets_the_first_free_number_from_two(tmp_path):
    assert [make(tmp_path).name for _ in range(3)] == ["train", "train2", "train3"]
    (tmp_path / "runs" / "train2").rmdir()
    assert make(tmp_path).name == "train2"


def test_a_name_may_hold_slashes(tmp_path):
    assert make(tmp_path, name="a/b") == tmp_path / "runs" / "a" / "b"
    assert make(tmp_path, name="a/b") == tmp_path / "runs" / "a" / "b2"


def test_exist_ok_takes_the_folder_that_is_there(tmp_path):
    assert make(tmp_path) == make(tmp_path, exist_ok=True)


def test_runs_that_start_together_get_different_folders(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: make(tmp_path), range(24)))
    assert len(set(folders)) == 24


def test_save_dir_names_the_folder_exactly(tmp_path):
    folder = tmp_path / "deep" / "here"
    assert make(tmp_path, save_dir=str(folder)) == folder
    assert make(tmp_path, save_dir=str(folder)) == folder  # still empty
    assert not (tmp_path / "runs").exists()


def test_a_save_dir_that_is_not_empty_is_refused_unless_it_may_exist(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigError, match=r"save_dir = .*: is not empty; name a new folder, or add exist_ok=True"):
        make(tmp_path, save_dir=str(tmp_path))
    assert make(tmp_path, save_dir=str(tmp_path), exist_ok=True) == tmp_path


@pytest.mark.parametrize("keys", [{}, {"exist_ok": True}, {"save_dir": "runs/x"}])
def test_a_file_in_the_way_is_an_error_that_names_the_folder(tmp_path, keys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").touch()
    with pytest.raises(ConfigError, match=r"runs.*: the run folder cannot be made \(.+\); choose another place"):
        make(tmp_path, **keys)


def test_a_link_that_leads_nowhere_is_an_error_and_not_an_endless_search(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match="the run folder cannot be made"):
        make(tmp_path)


def test_a_tilde_is_the_home_folder_and_that_of_nobody_is_a_name_like_others(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert with_home("~/a") == tmp_path / "a"
    assert with_home("b/~/a").as_posix() == "b/~/a"
    for unknown in ('~"', "~no body of this name/a"):
        assert with_home(unknown) == Path(unknown)
