"""Prediction from the command and from Python."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visiontrain import Model
from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError, DataError
from visiontrain.run.predict import predict


def pictures_of(trained):
    from visiontrain.engine.checkpoint import load_checkpoint

    data = load_checkpoint(trained.best)["args"]["values"]["data"]
    return str(data).replace("data.yaml", "images/val")


def test_every_picture_is_drawn_and_labelled(trained, tmp_path, capsys):
    keys = {
        "model": str(trained.best),
        "source": pictures_of(trained),
        "save_dir": str(tmp_path / "p"),
        "save_txt": True,
    }
    predict(load_config("predict", python={**keys, "conf": 0.01}))
    assert len(list((tmp_path / "p").glob("*.jpg"))) == 8
    assert len(list((tmp_path / "p" / "labels").glob("*.txt"))) == 8
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1/8 ")
    assert lines[-1].startswith("results in ")


@pytest.mark.slow
def test_every_form_of_a_picture_gives_the_same_boxes(trained):
    folder = pictures_of(trained)
    path = f"{folder}/000.png"
    model = Model(trained.best)
    by_path = model.predict(path, conf=0.001)[0].boxes.data
    by_array = model.predict(cv2.imread(path), conf=0.001)[0].boxes.data
    assert len(by_path)
    np.testing.assert_allclose(by_array.numpy(), by_path.numpy(), atol=1e-5)
    streamed = model.predict(folder, conf=0.001, stream=True)
    assert [result.path.rpartition("/")[2] for result in streamed] == [f"{index:03d}.png" for index in range(8)]


def test_wrong_sources_leave_nothing_behind(trained, tmp_path):
    keys = {"model": str(trained.best), "save_dir": str(tmp_path / "p")}
    with pytest.raises(ConfigError, match="source: is not given"):
        predict(load_config("predict", python=keys))
    with pytest.raises(DataError, match="no such file"):
        predict(load_config("predict", python={**keys, "source": str(tmp_path / "none.jpg")}))
    with pytest.raises(ConfigError, match=r"classes: \[5\] are no classes of the model; it has 0 to 1"):
        predict(load_config("predict", python={**keys, "source": pictures_of(trained), "classes": [5]}))
    assert not (tmp_path / "p").exists()
