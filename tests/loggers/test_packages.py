"""A tracker that is not installed is told with the command that installs it, before anything is made."""

import subprocess
import sys

import pytest

from visiontrain.cli import main
from visiontrain.errors import ConfigError
from visiontrain.loggers import packages
from visiontrain.loggers.packages import TRACKERS, require_packages


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(packages, "find_spec", lambda name: None)


def test_what_is_installed_passes():
    require_packages(["json", "sqlite3"])
    require_packages([])


def test_all_that_is_missing_is_named_with_the_command(nothing_installed):
    with pytest.raises(ConfigError) as caught:
        require_packages(TRACKERS)
    assert len(caught.value.faults) == 3
    assert caught.value.faults[0] == (
        "logger = tensorboard: needs the package tensorboard, which is not installed; "
        "pip install 'visiontrain[tensorboard]'"
    )


def test_a_folder_of_the_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "planted_tracker").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="needs the package planted_tracker, which is not installed"):
        require_packages(["planted_tracker"])


def test_the_command_line_says_so_in_one_line_and_makes_nothing(nothing_installed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "logger=tensorboard,mlflow", "epochs=1"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "visiontrain train: logger = mlflow: needs the package mlflow" in shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["comet", "tensorboard,", ",", "tensorboard;mlflow", "tensorboard mlflow", "1", ""])
def test_another_name_is_refused_with_those_there_are(value, capsys):
    assert main(["train", f"logger={value}"]) == 2
    assert "is not tensorboard, mlflow or wandb, or several with commas between them" in capsys.readouterr().err


def test_nothing_of_a_tracker_is_imported_unless_asked_for():
    code = (
        "import sys; import visiontrain.run.train, visiontrain.loggers, visiontrain.model;"
        "assert not {'tensorboard', 'mlflow', 'wandb'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
