"""How long one image takes from its file to its boxes: `predict` with one image at a time."""

from __future__ import annotations

import statistics
import sys
from contextlib import redirect_stdout
from importlib.resources import as_file, files
from itertools import islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory

MODEL = "det-n"
SIZES = (320, 640)
PARTS = ("preprocess", "inference", "postprocess")


def predicting_figures(repeats: int, *, data: Path | None = None) -> dict[str, object]:
    """Milliseconds of an image, half of them and 95 of 100 below, by size; the parts as `Results.speed` tells them."""
    from visiontrain import Model

    with TemporaryDirectory(prefix="visiontrain-predicting-") as folder, as_file(files("visiontrain.bundled")) as sets:
        keys = {"epochs": 1, "imgsz": 64, "plots": False, "quiet": True, "save_dir": str(Path(folder) / "run")}
        model = Model(MODEL)
        with redirect_stdout(sys.stderr):  # what is printed here is one document
            model.train(data=str(data or sets / "shapes" / "data.yaml"), **keys)
        images = sorted((sets / "shapes").rglob("*.jpg"))
        return {"model": MODEL, **{str(size): _latency(model, images, size, 10 * repeats) for size in SIZES}}


def _latency(model: object, images: list[Path], imgsz: int, count: int) -> dict[str, float]:
    source = [str(path) for path in islice((path for paths in repeat(images) for path in paths), count + 1)]
    found = model.predict(source, imgsz=imgsz, conf=0.25, stream=True)  # type: ignore[attr-defined]
    next(found)  # the first one loads libraries
    rows = [result.speed for result in found]
    whole = sorted(sum(row[part] for part in PARTS) for row in rows)
    return {
        "p50_ms": round(statistics.median(whole), 2),
        "p95_ms": round(whole[int(0.95 * (len(whole) - 1))], 2),
        **{f"{part}_ms": round(statistics.median(row[part] for row in rows), 2) for part in PARTS},
    }
