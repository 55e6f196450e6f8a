from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from visiontrain.data.cache_files import cache_folder, digest_of, made_whole, settled_stamp_of, stamp_of


def test_the_variable_names_the_folder_before_anything_else(monkeypatch, tmp_path):
    monkeypatch.setenv("VISIONTRAIN_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.setenv("VISIONTRAIN_CACHE", "~/mine")
    assert cache_folder() == Path("~/mine").expanduser()


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, "home/.cache/visiontrain"),
        ("linux", {"XDG_CACHE_HOME": "{}/xdg"}, "xdg/visiontrain"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/visiontrain"),
        ("darwin", {}, "home/Library/Caches/visiontrain"),
        ("win32", {}, "home/AppData/Local/visiontrain/Cache"),
        ("win32", {"LOCALAPPDATA": "{}/local"}, "local/visiontrain/Cache"),
    ],
)
def test_every_platform_has_its_customary_folder(monkeypatch, tmp_path, platform, variables, folder):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    for name in ("VISIONTRAIN_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert cache_folder() == tmp_path / folder


def test_an_account_without_a_home_has_a_folder_too(monkeypatch):
    def homeless():
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(Path, "home", homeless)
    for name in ("VISIONTRAIN_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert cache_folder().is_absolute()


def test_a_digest_tells_parts_and_their_borders_apart():
    parts = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [], ["ab", "d"], [1, 23], [12, 3], ["\udce9"]]
    assert len({digest_of(each) for each in parts}) == len(parts)
    assert digest_of(["ab", "c"]) == digest_of(iter(("ab", "c")))


def test_a_stamp_changes_with_the_size_and_with_the_time_of_a_file(tmp_path):
    path = tmp_path / "file"
    stamps = [stamp_of(path)]
    for text, mtime in [("abc", 10**18), ("abcd", 10**18), ("abcd", 10**18 + 1_000_000)]:
        path.write_text(text)
        os.utime(path, ns=(mtime, mtime))
        stamps.append(stamp_of(path))
        assert settled_stamp_of(path) == stamps[-1] == stamp_of(str(path))
    assert len(set(stamps)) == 4


def test_a_file_written_just_now_has_no_settled_stamp(tmp_path):
    path = tmp_path / "file"
    path.write_text("abc")
    stamps = []
    for _ in range(2):
        stamps.append(settled_stamp_of(path))
        time.sleep(0.001)
    assert stamps[0] != stamps[1]


def test_a_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "deep" / "file"
    with made_whole(path) as part:
        part.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    with pytest.raises(FileNotFoundError), made_whole(path) as part:
        (part.parent / "missing").rename(part)
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_run_left_half_written_is_swept_after_a_day(tmp_path):
    old, young = tmp_path / "a-1.part", tmp_path / "a-2.part"
    for part, age in ((old, 25 * 3600), (young, 3600)):
        part.touch()
        os.utime(part, (time.time() - age,) * 2)
    with made_whole(tmp_path / "b"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-2.part", "b"]
