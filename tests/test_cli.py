import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import visiontrain
from visiontrain import cli
from visiontrain.config.schema import MODES
from visiontrain.errors import ConfigError, DataError

ROOT = str(Path(visiontrain.__file__).parents[1])


def run(*words, cwd):
    """The command line in a process of its own; its last line on standard error says whether torch was loaded."""
    code = (
        "import sys; from visiontrain.cli import main; code = main(sys.argv[1:])\n"
        "heavy = {'torch', 'torchvision', 'numpy', 'cv2', 'yaml', 'rich', 'matplotlib'} & set(sys.modules)\n"
        "print('loaded:', *sorted(heavy), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )


def answer(capsys, *words):
    code = cli.main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def command(monkeypatch):
    """Put a function in the place of the mode `plan`."""

    def install(function):
        module = types.ModuleType("visiontrain_command_of_a_test")
        module.command = function
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(cli, "COMMANDS", {**cli.COMMANDS, "plan": f"{module.__name__}:command"})

    return install


def test_four_faults_are_four_lines_and_nothing_is_loaded_or_written(tmp_path):
    done = run("train", "nbs=0", "epoch=3", "batch=x", "imgsz=-1", cwd=tmp_path)
    *faults, summary, loaded = done.stderr.splitlines()
    assert done.returncode == 2
    assert done.stdout == ""
    assert [fault.split()[2].rstrip(":") for fault in faults] == ["nbs", "epoch", "batch", "imgsz"]
    assert all(fault.startswith("visiontrain train: ") for fault in faults)
    assert faults[1].endswith("the nearest is epochs")
    assert "4 faults; nothing was done" in summary
    assert loaded == "loaded:"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("help",),
        ("help", "train"),
        ("train", "--help"),
        ("version",),
        ("export",),
        ("trian",),
        ("batch=8", "train"),
        ("plan", "nbs=0", "json=True"),
        ("plan", "accumulate=4"),
        ("val", "epochs=3"),
        ("check", "workers=-1", "imgsz"),
        ("predict", "conf=7"),
        ("compare", "a.pt", "b.pt", "c.pt"),
        ("report", "run=a", "project=b"),
        ("classify", "train", "batch=auto", "batch=8"),
    ],
    ids=" ".join,
)
def test_help_version_and_errors_load_nothing_heavy(tmp_path, words):
    assert run(*words, cwd=tmp_path).stderr.splitlines()[-1] == "loaded:"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "loads"),
    [
        (("train", "cfg=wrong.yaml"), {"yaml"}),
        (("plan", "model=det-k"), {"yaml"}),
        (("train", "model=data.yaml"), {"yaml"}),
        (("val", "model=resnet19"), {"yaml"}),
        (("verify", "data=gone.yaml", "model=det-k"), {"yaml", "numpy", "cv2"}),
        (("check", "data=gone.yaml"), {"yaml", "numpy", "cv2"}),
        (("report",), {"numpy", "cv2"}),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_is_misspelled_or_missing_is_told_without_torch(tmp_path, words, loads):
    (tmp_path / "wrong.yaml").write_text("epochs: many\n")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [a]\n")
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert set(done.stderr.splitlines()[-1].split()[1:]) <= loads
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.yaml", "wrong.yaml"]


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",), ("detect",)])
def test_help_names_the_modes(capsys, words):
    code, out, err = answer(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith("usage: visiontrain MODE")


@pytest.mark.parametrize("mode", MODES)
def test_help_of_a_mode_has_all_customary_spellings(capsys, mode):
    texts = {
        answer(capsys, *words)
        for words in (
            ("help", mode),
            (mode, "--help"),
            (mode, "-h"),
            (mode, "help"),
            (mode, "nbs=0", "--help"),
            ("detect", mode, "-h"),
            ("help", "detect", mode),
        )
    }
    ((code, out, err),) = texts
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: visiontrain {mode} ")


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_version_is_printed(capsys, word):
    assert answer(capsys, word) == (0, f"visiontrain {visiontrain.__version__}\n", "")


def test_an_unknown_mode_is_answered_with_the_nearest(capsys):
    code, out, err = answer(capsys, "trian", "batch=8")
    assert (code, out) == (2, "")
    assert "trian: is not a mode; the nearest is train" in err


@pytest.mark.parametrize("words", [("batch=8", "train"), ("--batch", "8")])
def test_a_setting_before_the_mode_is_explained(capsys, words):
    code, _, err = answer(capsys, *words)
    assert code == 2
    assert f"{words[0]}: comes before the mode" in err


def test_a_task_may_come_first(capsys, command):
    seen = []
    command(seen.append)
    assert answer(capsys, "detect", "plan", "batch=8") == (0, "", "")
    assert (seen[0].task, seen[0].mode, seen[0].batch) == ("detect", "plan", 8)


def test_the_task_may_stand_before_the_mode(capsys, command):
    seen = []
    command(seen.append)
    for words in (("classify", "plan"), ("plan", "task=classify")):
        assert answer(capsys, *words)[0] == 0
    assert [config.task for config in seen] == ["classify"] * 2


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (3, 3)])
def test_the_exit_code_is_that_of_the_command(capsys, command, returned, code):
    command(lambda config: returned)
    assert answer(capsys, "plan")[0] == code


def test_what_the_user_got_wrong_in_a_run_is_a_line_for_each_fault(capsys, command):
    def fail(config):
        raise DataError(["a.txt:1: bad", "a.txt:2: worse"])

    command(fail)
    code, out, err = answer(capsys, "plan")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "visiontrain plan: a.txt:1: bad",
        "visiontrain plan: a.txt:2: worse",
        "visiontrain plan: 2 faults",
    ]


def test_faults_are_one_json_document_where_json_was_asked_for(capsys, command):
    def fail(config):
        raise ConfigError("imgsz: é")

    command(fail)
    assert answer(capsys, "plan", "--json") == (2, '{"errors": ["imgsz: é"]}\n', "")
    code, out, err = answer(capsys, "plan", "json=True", "nbs=0", "epoch=1")
    assert (code, err) == (2, "")
    assert len(json.loads(out)["errors"]) == 2


def test_an_interrupt_is_one_line_and_its_own_exit_code(capsys, command):
    def interrupted(config):
        raise KeyboardInterrupt

    command(interrupted)
    assert answer(capsys, "plan") == (130, "", "visiontrain plan: stopped\n")


def test_termination_clears_away_what_is_half_made(capsys, command):
    before, cleared = signal.getsignal(signal.SIGTERM), []

    def end(config):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("goes on")
        finally:
            cleared.append(True)

    command(end)
    assert answer(capsys, "plan") == (143, "", "")
    assert cleared == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_under_torchrun_termination_stays_with_the_system(capsys, command, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    before, inside = signal.getsignal(signal.SIGTERM), []
    command(lambda config: inside.append(signal.getsignal(signal.SIGTERM)))
    assert answer(capsys, "plan")[0] == 0
    assert inside == [before]


def test_our_own_error_keeps_its_traceback(command):
    def broken(config):
        raise RuntimeError("ours")

    command(broken)
    with pytest.raises(RuntimeError, match="ours"):
        cli.main(["plan"])


def test_a_reader_who_leaves_early_is_no_error_message(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "visiontrain", "help", "train"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_terminal_that_lacks_a_letter_does_not_stop_the_answer(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "visiontrain", "plan", "--json", "données=1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert b"donn" in done.stdout
    assert b"Traceback" not in done.stderr
