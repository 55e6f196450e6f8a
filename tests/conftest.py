"""What tests of several packages share. torch is imported by the tests that need it, not here."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest

# The same examples in every run: a change is judged by what it changes, never by chance. Look for new ones with
# `pytest --hypothesis-profile=search`, and write down what it finds as an @example.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("search", max_examples=2_000, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items):
    needs_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not needs_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in needs_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _few_threads():
    """Small tensors are slower on many threads, and test runs share the machine."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Nothing is left in the cache folder of whoever runs the tests."""
    monkeypatch.setenv("VISIONTRAIN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _offline(request):
    if request.node.get_closest_marker("offline"):
        request.getfixturevalue("no_network")


@pytest.fixture
def no_network(monkeypatch):
    """Fail the test when it opens a connection or looks up a host; sockets between processes of one machine may be."""

    def refuse(*arguments, **_):
        pytest.fail(f"the network was used: {arguments!r}")

    def refuse_unless_local(connect):
        def connect_locally(self, address):
            if self.family in (socket.AF_INET, socket.AF_INET6):
                refuse(address)
            return connect(self, address)

        return connect_locally

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse_unless_local(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", refuse_unless_local(socket.socket.connect_ex))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout that holds these tests."""
    return REPOSITORY


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real data sets, from VISIONTRAIN_TEST_DATA or beside the checkout."""
    folder = Path(os.environ.get("VISIONTRAIN_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set VISIONTRAIN_TEST_DATA to the folder that holds bccd/")
    return folder


@pytest.fixture
def tiny_yolo(tmp_path) -> Callable[..., Path]:
    """A function that writes a small data set in YOLO form and returns the path of its `data.yaml`."""

    def write(
        num_images: int = 8,
        *,
        size: int = 64,
        splits: Sequence[str] = ("train", "val"),
        folder: str | Path = "tiny",
        seed: int = 0,
        box_counts: Sequence[int] = (1,),
    ) -> Path:
        """Write `num_images` pictures of `size` pixels for each split, with red and green squares in them.

        The squares of a picture are as many as `box_counts` says, over and over.
        """
        return write_tiny_yolo(
            tmp_path / folder, num_images, size=size, splits=splits, seed=seed, box_counts=box_counts
        )

    return write


COLORS = {"red": (230, 40, 40), "green": (40, 200, 60)}
"""Class names and their colors, RGB."""


def write_tiny_yolo(
    root: Path, num_images: int, *, size: int, splits: Sequence[str], seed: int, box_counts: Sequence[int]
) -> Path:
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(seed)
    for split in splits:
        images, labels = root / "images" / split, root / "labels" / split
        images.mkdir(parents=True, exist_ok=True)
        labels.mkdir(parents=True, exist_ok=True)
        for index in range(num_images):
            count = box_counts[index % len(box_counts)]
            squares = []
            for number in range(index, index + count):
                side = int(rng.integers(size // 4, size // 2))
                x, y = (int(value) for value in rng.integers(0, size - side, 2))
                squares.append((number % 2, x, y, side))
            pixels = rng.integers(90, 140, (size, size, 3), dtype=np.uint8)
            rows = []
            for label, x, y, side in squares:
                pixels[y : y + side, x : x + side] = list(COLORS.values())[label]
                center_x, center_y = (x + side / 2) / size, (y + side / 2) / size
                rows.append(f"{label} {center_x:.6f} {center_y:.6f} {side / size:.6f} {side / size:.6f}\n")
            Image.fromarray(pixels).save(images / f"{index:03d}.png")
            (labels / f"{index:03d}.txt").write_text("".join(rows), encoding="utf-8")
    lines = ["path: .", *(f"{split}: images/{split}" for split in splits), f"names: [{', '.join(COLORS)}]"]
    (root / "data.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root / "data.yaml"


@pytest.fixture(scope="session")
def small_network(tmp_path_factory, repository):
    """The default detector's YAML at an eighth of its width."""
    import yaml

    description = yaml.safe_load((repository / "cfg" / "models" / "det.yaml").read_text(encoding="utf-8"))
    description["scales"] = {"t": [0.25, 0.0625, 1024]}
    path = tmp_path_factory.mktemp("network") / "small.yaml"
    path.write_text(yaml.safe_dump(description), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory, small_network):
    """The result of one epoch of the small network on eight small images; nobody writes into its folder."""
    from visiontrain.config.load import load_config
    from visiontrain.run.train import train_run

    root = tmp_path_factory.mktemp("trained")
    data = write_tiny_yolo(root / "tiny", 8, size=64, splits=("train", "val"), seed=0, box_counts=(1,))
    keys = {"model": str(small_network), "data": str(data), "imgsz": 64, "epochs": 1, "batch": 2, "nbs": 4}
    save_dir = str(root / "run")
    return train_run(load_config("train", python={**keys, "quiet": True, "plots": False, "save_dir": save_dir}))


@pytest.fixture
def trained(trained_once, tmp_path):
    """A copy of that run for the test alone."""
    folder = tmp_path / "run"
    shutil.copytree(trained_once.save_dir, folder)
    weights = folder / "weights"
    return replace(trained_once, save_dir=folder, best=weights / "best.pt", last=weights / "last.pt")


@pytest.fixture
def run_training(tmp_path, small_network, tiny_yolo):
    """A function that trains the small network on eight small images and returns the result.

    In fp32, whatever the machine has: half precision takes numbers that are not finite for its own fault at first.
    """
    from visiontrain.config.load import load_config
    from visiontrain.run.train import train_run

    def run(**settings):
        keys = {
            "model": str(small_network),
            "imgsz": 64,
            "epochs": 2,
            "batch": 2,
            "nbs": 4,
            "amp": False,
            "quiet": True,
            "plots": False,
            "save_dir": str(tmp_path / "run"),
            **settings,
        }
        if "data" not in keys:
            keys["data"] = str(tiny_yolo(8))
        return train_run(load_config("train", python=keys))

    return run


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory) -> Callable[..., Path]:
    """A function that writes small image folders and returns their root."""

    def write(
        num_images: int = 4,
        *,
        classes: Sequence[str] = ("green", "red"),
        size: int = 40,
        splits: Sequence[str] = ("train", "val"),
        root: Path | None = None,
        seed: int = 0,
    ) -> Path:
        """Write `num_images` pictures of each class for each split, below `root` or a new folder.

        The split "" is a single folder of classes.
        """
        root = root or tmp_path_factory.mktemp("folders")
        write_tiny_folders(root, num_images, classes=classes, size=size, splits=splits, seed=seed)
        return root

    return write


def write_tiny_folders(
    root: Path, num_images: int, *, classes: Sequence[str], size: int, splits: Sequence[str], seed: int
) -> None:
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(seed)
    for split in splits:
        for name in classes:
            (root / split / name).mkdir(parents=True, exist_ok=True)
            for index in range(num_images):
                pixels = rng.integers(90, 140, (size, size + 8, 3), dtype=np.uint8)
                y, x = rng.integers(0, size // 2, 2).tolist()
                pixels[y : y + size // 2, x : x + size // 2] = COLORS.get(name, (40, 60, 220))
                Image.fromarray(pixels).save(root / split / name / f"{index:03d}.png")


@pytest.fixture(scope="session")
def small_classifier(tmp_path_factory, repository):
    """The default classifier's YAML at a sixteenth of its width."""
    import yaml

    description = yaml.safe_load((repository / "cfg" / "models" / "cls.yaml").read_text(encoding="utf-8"))
    description["scales"] = {"t": [0.25, 0.0625, 1024]}
    path = tmp_path_factory.mktemp("classifier") / "small.yaml"
    path.write_text(yaml.safe_dump(description), encoding="utf-8")
    return path


@pytest.fixture
def write_weights(tmp_path):
    """A function that writes the weights of a network that looks at its images, without training it."""
    import torch

    from visiontrain.engine.checkpoint import save_checkpoint, weights_of
    from visiontrain.models.norm import set_momentum_
    from visiontrain.tasks import TASKS

    def write(network, *, data: Path | None = None, imgsz: int = 64, folder: str | Path = "weights") -> Path:
        """Write `best.pt` of a Network, whose statistics become those of noise, and whose outputs grow."""
        generator = torch.Generator().manual_seed(0)
        set_momentum_(network, 0.5)
        with torch.no_grad():
            for _ in range(4):
                network.train()(torch.rand(4, 3, imgsz, imgsz, generator=generator))
            for branch in getattr(getattr(network, "layers", [None])[-1], "class_branches", []):
                branch[-1].weight *= 50
                branch[-1].bias.fill_(-2)
        values = {} if data is None else {"data": str(data)}
        path = tmp_path / folder / "best.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        contents = {
            "task": TASKS[network.task].name,
            "model": weights_of(network.eval()),
            "ema": None,
            "args": {"values": {"imgsz": imgsz, **values}, "origins": {}},
            "names": list(network.names),
            "network": network.description,
        }
        save_checkpoint(path, contents)
        return path

    return write


@pytest.fixture
def two_level_detector():
    """A detector of a few layers, for what takes long on every layer."""
    from visiontrain.models.build import build_network

    layers = [
        [-1, 1, "Conv", [8, 3, 4]],
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [[1, 2], 1, "Detect", [4]],
    ]
    return build_network({"task": "detect", "layers": layers}, tuple(COLORS))
