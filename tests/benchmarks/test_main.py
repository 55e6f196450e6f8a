from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as command


def test_without_names_all_are_measured_but_those_that_take_minutes(monkeypatch, capsys):
    measured = dict.fromkeys(command.BENCHMARKS, lambda arguments: {"files": arguments.files})
    monkeypatch.setattr(command, "BENCHMARKS", measured)
    command.main(["--repeats", "1"])
    assert set(json.loads(capsys.readouterr().out)) == {"repeats", *measured} - {"labels"}
    command.main(["labels", "--files", "7"])
    assert json.loads(capsys.readouterr().out)["labels"] == {"files": 7}


def test_an_unknown_name_is_refused_with_those_that_are_known(capsys):
    with pytest.raises(SystemExit):
        command.main(["speed"])
    assert "unknown: speed; known are startup" in capsys.readouterr().err
