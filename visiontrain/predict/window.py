"""Show a picture on the screen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from visiontrain.errors import ConfigError

# Source: matplotlib's guide "Backends", those that only write files.
WITHOUT_SCREEN = frozenset({"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})
_WIDTH_INCHES = 8.0


def show_image(image_bgr: NDArray[np.uint8], *, title: str) -> None:
    """Show (H, W, 3) uint8 BGR in a window or in the notebook; a window is waited for until it is closed.

    Raises:
        ConfigError: If there is no display.
    """
    import matplotlib.pyplot as plt  # it finds the screen or the notebook by itself, and opens nothing yet

    if str(plt.get_backend()).lower() in WITHOUT_SCREEN:
        raise ConfigError("show: there is no display to show a picture on; use save() or plot()")
    height, width = image_bgr.shape[:2]
    figure, axes = plt.subplots(
        num=title, clear=True, figsize=(_WIDTH_INCHES, max(1.0, _WIDTH_INCHES * height / width)), layout="constrained"
    )
    axes.imshow(image_bgr[..., ::-1])
    axes.set_axis_off()
    plt.show()
    plt.close(figure)
