"""A small network and short runs, so that whole runs can be tested in seconds."""

from __future__ import annotations

import pytest
import yaml

from visiontrain.config.load import load_config
from visiontrain.run.train import train_run


@pytest.fixture(scope="session")
def small_network(tmp_path_factory, repository):
    """The default detector's YAML at an eighth of its width."""
    description = yaml.safe_load((repository / "cfg" / "models" / "det.yaml").read_text(encoding="utf-8"))
    description["scales"] = {"t": [0.25, 0.0625, 1024]}
    path = tmp_path_factory.mktemp("network") / "small.yaml"
    path.write_text(yaml.safe_dump(description), encoding="utf-8")
    return path


@pytest.fixture
def run_training(tmp_path, small_network, tiny_yolo):
    """A function that trains the small network on eight small images and returns the result."""

    def run(**settings):
        keys = {
            "model": str(small_network),
            "imgsz": 64,
            "epochs": 2,
            "batch": 2,
            "nbs": 4,
            "quiet": True,
            "plots": False,
            "save_dir": str(tmp_path / "run"),
            **settings,
        }
        if "data" not in keys:
            keys["data"] = str(tiny_yolo(8))
        return train_run(load_config("train", python=keys))

    return run
