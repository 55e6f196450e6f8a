import numpy as np
import pytest

from visiontrain.errors import ConfigError
from visiontrain.predict.window import WITHOUT_SCREEN, show_image

IMAGE = np.zeros((40, 80, 3), np.uint8)
IMAGE[..., 0] = 200  # blue


@pytest.fixture
def plt():
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    return pyplot


def test_without_a_display_it_is_refused_and_nothing_is_left_open(plt):
    with pytest.raises(ConfigError, match=r"show: there is no display to show a picture on; use save\(\) or plot\(\)"):
        show_image(IMAGE, title="a")
    assert plt.get_fignums() == []


@pytest.mark.parametrize("backend", sorted(WITHOUT_SCREEN))
def test_a_backend_that_writes_files_is_no_display(backend, plt, monkeypatch):
    monkeypatch.setattr(plt, "get_backend", lambda: backend.upper())
    with pytest.raises(ConfigError, match="there is no display"):
        show_image(IMAGE, title="a")


def test_the_picture_is_shown_in_its_colors_under_its_name_and_closed_afterwards(plt, monkeypatch):
    shown = []

    def show():
        figure = plt.gcf()
        (axes,) = figure.axes
        shown.append((figure.get_label(), np.array(axes.images[0].get_array())))

    monkeypatch.setattr(plt, "get_backend", lambda: "QtAgg")
    monkeypatch.setattr(plt, "show", show)
    show_image(IMAGE, title="cells $x_1$")
    ((title, pixels),) = shown
    assert title == "cells $x_1$"
    np.testing.assert_array_equal(pixels, IMAGE[..., ::-1])
    assert plt.get_fignums() == []
