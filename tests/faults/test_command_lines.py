"""Whatever is typed, the answer is an exit code of 0, 2 or 3 and sentences: no traceback, no hang, nothing left."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from visiontrain import cli
from visiontrain.cli import main
from visiontrain.config.schema import MODES, SETTINGS, settings_of
from visiontrain.models.build import build_network

pytestmark = pytest.mark.slow
SECONDS_FOR_A_LINE = 60
NASTY = (
    *("", " ", "=", "==", "'", '"', "\\", "/", ".", "..", "~", "*", "-", "--", "---", "None", "null", "True", "False"),
    *("nan", "inf", "-inf", "1e400", "-1", "0", "1", "2", "3.5", "1e-9", "9" * 5000, "0x10", "1_000", "٣", "½", "[]"),
    *(
        "[1,2",
        "(1,)",
        "1,,2",
        "{a: 1}",
        "!!python/object/apply:os.system [ls]",
        "\0",
        "\n",
        "a\nb",
        "\ud800",
        "é" * 300,
    ),
    *("a" * 5000, "%s%s%n", "$(ls)", "`ls`", "; ls", "| ls", "/dev/null", "/dev/zero", "/proc/self/mem", "auto"),
)
STRAY = ("help", "--help", "-h", "version", "--version", "train", "detect", "classify", "segment", "report", "=", "--")
# Left at what they are: they decide how long an honest line takes, not whether it is read right.
COSTLY = {"imgsz", "workers", "epochs", "model", "data"}


class Lines:
    """Random command lines: from utter nonsense to those with one word that is wrong, or none."""

    def __init__(self, seed: int, files: Sequence[str], honest: Sequence[str]) -> None:
        self._rng = random.Random(seed)
        self._files = files
        self._honest = list(honest)

    def line(self) -> list[str]:
        rng = self._rng
        if rng.random() < 0.05:
            return [rng.choice([*NASTY, *STRAY, *MODES]) for _ in range(rng.randint(0, 4))]
        mode = rng.choice(["plan", "plan", "train", *MODES]) if rng.random() < 0.97 else self._misspelled("train")
        words = [mode]
        if rng.random() < 0.1:
            words.insert(0, rng.choice(["detect", "classify", "segment", *NASTY]))
        if rng.random() < 0.3 and mode in ("plan", "train"):
            words += self._honest
        words += [word for _ in range(rng.randint(0, 3)) for word in self._setting(mode)]
        return words

    def _setting(self, mode: str) -> list[str]:
        rng = self._rng
        keys = list(settings_of(mode)) if mode in MODES and rng.random() < 0.8 else list(SETTINGS)
        key = rng.choice([key for key in keys if key not in COSTLY or rng.random() < 0.3])
        value = self._value(key)
        key = self._misspelled(key) if rng.random() < 0.1 else key
        forms = ([f"{key}={value}"], [f"--{key}", value], [f"--{key}={value}"], [key, "=", value], [f"--{key}"], [key])
        return rng.choice([*forms, forms[0], forms[0], forms[0], [f"--{key.replace('_', '-')}={value}"]])

    def _value(self, key: str) -> str:
        rng, rules = self._rng, SETTINGS[key].rules
        likely = [*rules.choices, *rules.later, str(SETTINGS[key].default)]
        ends = [rules.least, rules.most, rules.above, rules.below]
        likely += [f"{end:.15g}" for end in ends if end is not None and key not in COSTLY]
        likely += self._files
        if key in COSTLY:
            return rng.choice([*NASTY, *self._files])
        return rng.choice(likely) if rng.random() < 0.6 else rng.choice(NASTY)

    def _misspelled(self, word: str) -> str:
        place = self._rng.randrange(len(word))
        return word[:place] + self._rng.choice(["", "x", word[place] * 2, "-", " ", "É"]) + word[place + 1 :]


@contextmanager
def seconds_at_most(seconds: int, line: object):
    def hang(signum, frame):
        pytest.fail(f"{line!r} hangs", pytrace=True)

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def lines(tmp_path, tiny_yolo, small_network, write_weights, monkeypatch):
    """A function that gives the source of command lines of a seed; the working folder is an empty one."""
    data = tiny_yolo(4)
    weights = write_weights(build_network({"task": "detect", "layers": TWO_LEVELS}, ("red", "green")), data=data)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "keys.yaml").write_text("epochs: 3\nbatch: 2\n")
    (tmp_path / "wrong.yaml").write_text("epochs: many\nbatchh: 2\nlr0: [1, 2]\n")
    files = [data, small_network, weights, data.parent, data.parent / "images" / "val", tmp_path / "missing.yaml"]
    files += [tmp_path / name for name in ("empty", "binary.yaml", "keys.yaml", "wrong.yaml")]
    (tmp_path / "cwd").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "cwd")
    honest = [f"data={data}", f"model={small_network}", "imgsz=64", "batch=2", "nbs=4"]
    return lambda seed: Lines(seed, list(map(str, files)), honest)


TWO_LEVELS = [
    [-1, 1, "Conv", [8, 3, 4]],
    [-1, 1, "Conv", [16, 3, 2]],
    [-1, 1, "Conv", [16, 3, 2]],
    [[1, 2], 1, "Detect", [4]],
]


def planned_only(monkeypatch):
    """`train` and `verify` go as far as `plan`: what takes long is not what is typed."""
    from visiontrain.run.session import open_session

    plain = cli._command
    commands = dict.fromkeys(("train", "verify"), lambda config: open_session(config) and None)
    monkeypatch.setattr(cli, "_command", lambda mode: commands.get(mode) or plain(mode))


def test_fuzzed_command_lines_end_in_sentences(lines, dose, monkeypatch, capsys, tmp_path, files_below, emptied):
    planned_only(monkeypatch)
    source, codes = lines(7), {0: 0, 2: 0, 3: 0}
    folder = tmp_path / "cwd"
    before = files_below(tmp_path)
    for number in range(dose(500, full=20_000)):
        line = source.line()
        with seconds_at_most(SECONDS_FOR_A_LINE, line):
            try:
                code = main(line)
            except BaseException as error:
                raise AssertionError(f"line {number}: {line!r}") from error
        told = capsys.readouterr()
        assert code in codes, (line, told)
        codes[code] += 1
        assert "Traceback" not in told.out + told.err, (line, told)
        if code == 2:
            assert told.err.strip() or '"errors"' in told.out, line
            assert files_below(tmp_path) == before, line
        emptied(folder)
        new = files_below(tmp_path) - before
        asked = [Path(word.rpartition("=")[2]) for word in line]  # a place that was named by its whole path
        strange = {
            path for path in new if not any(map((tmp_path / path).is_relative_to, filter(Path.is_absolute, asked)))
        }
        assert not strange, (line, strange)
        for path in sorted(new, reverse=True):  # what is inside comes first
            (tmp_path / path).rmdir() if (tmp_path / path).is_dir() else (tmp_path / path).unlink()
    assert codes[0] > 0
    assert codes[2] > codes[0]


def test_fuzzed_command_lines_end_in_sentences_as_programs_too(lines, dose, program, tmp_path, files_below):
    source, before = lines(8), files_below(tmp_path)
    for _ in range(dose(3, full=200)):
        line = source.line()
        while any("\0" in word or not is_encodable(word) for word in line) or {"train", "verify"} & set(line[:2]):
            line = source.line()
        ended = program("-m", "visiontrain", *line, timeout=SECONDS_FOR_A_LINE * 3)
        assert ended.code in (0, 2, 3), (line, ended)
        assert "Traceback" not in ended.out + ended.err, (line, ended)
        if ended.code == 2:
            assert files_below(tmp_path) == before, line
        before = files_below(tmp_path)


def is_encodable(word: str) -> bool:
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        return False
    return True
