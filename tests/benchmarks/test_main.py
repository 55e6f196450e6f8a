from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as command


def test_without_names_all_are_measured_but_those_that_take_minutes(monkeypatch, capsys):
    measured = dict.fromkeys(command.BENCHMARKS, lambda arguments: {"files": arguments.files})
    monkeypatch.setattr(command, "BENCHMARKS", measured)
    command.main(["--repeats", "1"])
    assert set(json.loads(capsys.readouterr().out)) == {*command.machine(), "repeats", *measured} - {"labels", "growth"}
    command.main(["labels", "--files", "7"])
    assert json.loads(capsys.readouterr().out)["labels"] == {"files": 7}


def test_an_unknown_name_is_refused_with_those_that_are_known(capsys):
    with pytest.raises(SystemExit):
        command.main(["speed"])
    assert "unknown: speed; known are startup" in capsys.readouterr().err


def test_another_command_is_run_in_turn_with_ours(tmp_path, capsys):
    log = tmp_path / "log"
    command.main(["--repeats", "2", "--versus", f"sh -c 'echo B >> {log}'", "--ours", f"sh -c 'echo A >> {log}'"])
    assert log.read_text().split() == ["A", "B", "A", "B"]
    figures = json.loads(capsys.readouterr().out)["versus"]
    assert figures["other_to_ours"]["seconds"] > 0
    assert figures["ours"]["peak_mb"] > 0


def test_a_command_that_fails_ends_the_comparison_with_what_it_said(capsys):
    with pytest.raises(SystemExit, match=r"ended with 3:\nnothing here"):
        command.main(["--repeats", "1", "--versus", "sh -c 'echo nothing here; exit 3'", "--ours", "true"])
