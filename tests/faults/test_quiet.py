"""Training, scoring and predicting need no network, start no program and write into the run and cache folders only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

WATCHED = Path(__file__).with_name("watched.py")
LOUD = """
import os, pathlib, socket, subprocess, sys
pathlib.Path(sys.argv[1], "outside").write_text("")
subprocess.run([sys.executable, "-c", ""])
try:
    socket.create_connection(("127.0.0.1", 9))
except OSError as error:
    print(error)
"""
# torch with CUDA asks the system for its libraries when it is imported.
OF_LIBRARIES = {"subprocess.Popen ['/sbin/ldconfig', '-p']"}
MODES = """
import json, sys
from visiontrain.cli import main

if __name__ == "__main__":
    print("exit codes", [main(words) for words in json.loads(sys.argv[1])])
"""


@pytest.fixture
def watch(program, tmp_path):
    """A function that runs a program and returns how it ended and what it did that is not quiet."""
    hook, log = tmp_path / "hook", tmp_path / "watch.txt"
    hook.mkdir()
    shutil.copy(WATCHED, hook / "sitecustomize.py")

    def run(text: str, *words: object, allowed: tuple[Path, ...]):
        (hook / "program.py").write_text(text)
        log.write_text("")
        environment = {
            "PYTHONPATH": str(hook),
            "PYTHONDONTWRITEBYTECODE": "1",
            "WATCH_LOG": str(log),
            "WATCH_ALLOWED": ":".join(map(str, allowed)),
        }
        ended = program(hook / "program.py", *words, environment=environment)
        return ended, log.read_text().splitlines()

    return run


@pytest.mark.slow
def test_the_watch_sees_a_write_a_program_and_a_connection(watch, tmp_path):
    ended, seen = watch(LOUD, tmp_path, allowed=(tmp_path / "elsewhere",))
    assert ended.code == 0, ended
    assert ended.out.strip() == "the network is blocked"
    assert [line.split()[0] for line in seen] == ["open", "subprocess.Popen", "socket.getaddrinfo"]


@pytest.mark.slow
def test_a_whole_train_val_and_predict_is_quiet(watch, program, tiny_yolo, small_network, tmp_path, monkeypatch):
    data = tiny_yolo(8)
    before = {path: path.stat().st_mtime_ns for path in [data.parent, *data.parent.rglob("*")]}
    for path in before:
        path.chmod(path.stat().st_mode & ~0o222)
    pictures = data.parent / "images" / "val"
    run, cache = tmp_path / "runs", tmp_path / "cache"
    matplotlib, temporary = tmp_path / "matplotlib", tmp_path / "temporary"  # for fonts, and the workers' own sockets
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("MPLCONFIGDIR", str(matplotlib))
    assert program("-c", "import matplotlib.font_manager").code == 0  # its list of fonts is made once, by a program
    monkeypatch.setenv("VISIONTRAIN_CACHE", str(cache))
    weights = f"model={run / 'first' / 'weights' / 'best.pt'}"
    training = [f"model={small_network}", "imgsz=64", "batch=4", "nbs=4", "epochs=1", "workers=2", "cache=disk"]
    modes = [
        ["train", f"data={data}", *training, f"save_dir={run / 'first'}"],
        ["val", f"data={data}", weights, f"save_dir={run / 'val'}", "workers=1"],
        [
            "predict",
            weights,
            f"source={pictures}",
            f"save_dir={run / 'predict'}",
            "save_txt=True",
        ],
    ]
    try:
        ended, seen = watch(MODES, json.dumps(modes), allowed=(run, cache, matplotlib, temporary))
    finally:
        for path in before:
            path.chmod(path.stat().st_mode | 0o200)
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1] == "exit codes [0, 0, 0]", ended
    assert [line for line in seen if line not in OF_LIBRARIES and "torchinductor_" not in line] == []
    assert [path for path in temporary.iterdir() if "torchinductor_" not in path.name] == []
    assert {path: path.stat().st_mtime_ns for path in [data.parent, *data.parent.rglob("*")]} == before
    assert not list((tmp_path / "cwd").iterdir())


@pytest.mark.slow
def test_at_home_only_caches_are_written_and_of_matplotlibs_only_where_something_is_drawn(
    program, tiny_yolo, small_network, tmp_path, monkeypatch, files_below
):
    home, run = tmp_path / "home", tmp_path / "runs"
    home.mkdir()
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "VISIONTRAIN_CACHE", "TORCH_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    keys = [f"data={tiny_yolo(4)}", f"model={small_network}", "imgsz=64", "batch=4", "nbs=4", "epochs=1", "workers=0"]
    for plots, caches in ((False, {"visiontrain"}), (True, {"visiontrain", "matplotlib"})):
        words = [*keys, "cache=disk", f"plots={plots}", f"save_dir={run / str(plots)}"]
        ended = program("-m", "visiontrain", "train", *words)
        assert ended.code == 0, ended
        written = {path for path in files_below(home) if (home / path).is_file()}
        assert {path.split("/")[1] for path in written if path.startswith(".cache/")} == caches
        assert [path for path in written if not path.startswith(".cache/")] == []
    assert not list((tmp_path / "cwd").iterdir())
