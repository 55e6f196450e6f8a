"""What breaks off leaves no folder of its own, and nothing of anybody else's is touched."""

from __future__ import annotations

import pytest

from visiontrain.config.load import load_config
from visiontrain.errors import DataError, Stopped
from visiontrain.run.new_folder import new_folder


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def half_made(error, keys):
    with new_folder(load_config("val", python={"model": "best.pt", **keys})) as folder:
        (folder / "half").touch()
        raise error


def broken_off(error, **keys):
    with pytest.raises(type(error)):
        half_made(error, keys)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Stopped(15), DataError("x")])
@pytest.mark.parametrize("keys", [{}, {"name": "a"}, {"save_dir": "deep/in"}, {"project": "p"}, {"exist_ok": True}])
def test_the_new_folder_is_taken_away(tmp_path, error, keys):
    broken_off(error, **keys)
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir() or path.name in ("val", "a", "in")]


def test_a_folder_that_was_there_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    broken_off(KeyboardInterrupt(), save_dir="mine")
    (tmp_path / "runs" / "detect" / "val").mkdir(parents=True)
    (tmp_path / "runs" / "detect" / "val" / "old").touch()
    broken_off(KeyboardInterrupt(), exist_ok=True)
    broken_off(KeyboardInterrupt())  # val2
    assert (tmp_path / "mine").is_dir()
    assert [path.name for path in (tmp_path / "runs" / "detect").iterdir()] == ["val"]
    assert (tmp_path / "runs" / "detect" / "val" / "old").exists()


def test_what_is_whole_stays_and_so_does_what_an_error_of_ours_leaves(tmp_path):
    with new_folder(load_config("val", python={"model": "best.pt"})) as folder:
        (folder / "whole").touch()
    assert (folder / "whole").exists()
    broken_off(RuntimeError("ours"), save_dir="kept")
    assert (tmp_path / "kept" / "half").exists()
