"""The wheel and the editable install: what they hold and that both find their files from any folder.

Both are built offline by the build system itself, from a copy of the checkout.
"""

from __future__ import annotations

import configparser
import email
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

BUILD = """
import contextlib, sys, warnings
warnings.simplefilter("ignore")  # the build system's own
from setuptools import build_meta
with contextlib.redirect_stdout(sys.stderr):
    name = getattr(build_meta, sys.argv[1])(sys.argv[2])
print(name)
"""

LOCATE = """
import json, site, sys
for folder in sys.argv[1:]:
    site.addsitedir(folder)  # reads the .pth file of an editable install
from importlib.resources import files
from importlib.util import find_spec
import visiontrain, visiontrain.bundled, visiontrain.cfg
print(json.dumps({
    "package": visiontrain.__file__,
    "version": visiontrain.__version__,
    "model": files("visiontrain.cfg").joinpath("models", "det.yaml").is_file(),
    "data": files("visiontrain.bundled").joinpath("shapes", "data.yaml").is_file(),
    "bundled_is_not_code": visiontrain.bundled.__file__ != find_spec("visiontrain.data").origin,
}))
"""

MAPPED = {"visiontrain": "visiontrain", "cfg": "visiontrain/cfg", "data": "visiontrain/bundled"}
"""Folders of the repository and where the wheel has them."""


def run_python(*arguments: str, cwd: Path) -> str:
    """The last line that Python prints when it is run in `cwd`."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def locate(site_folder: Path, *, cwd: Path) -> dict[str, object]:
    """What a Python finds to which `site_folder` is all that is installed (`-S`: the tests' own packages are not)."""
    return json.loads(run_python("-S", "-c", LOCATE, str(site_folder), cwd=cwd))


@pytest.fixture(scope="module")
def copied(repository, tmp_path_factory) -> Path:
    """A copy of what the packages are built from."""
    copy = tmp_path_factory.mktemp("copy") / "visiontrain-checkout"
    copy.mkdir()
    for folder in MAPPED:
        shutil.copytree(repository / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for file in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(repository / file, copy / file)
    return copy


@pytest.fixture(scope="module")
def wheel(copied, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return folder / run_python("-c", BUILD, "build_wheel", str(folder), cwd=copied)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the wheel's content."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_every_package_of_the_tree_is_listed(repository):
    settings = configparser.ConfigParser()
    settings.read(repository / "setup.cfg", encoding="utf-8")
    listed = settings["options"]["packages"].split()
    found = [
        ".".join(path.parent.relative_to(repository).parts)
        for path in (repository / "visiontrain").rglob("__init__.py")
    ]
    assert sorted(listed) == sorted([*found, "visiontrain.cfg", "visiontrain.bundled"])


def test_every_folder_of_code_is_a_package(repository):
    folders = {path.parent for path in (repository / "visiontrain").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_wheel_holds_exactly_the_tree(wheel, copied):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        f"{target}/{path.relative_to(copied / folder).as_posix()}"
        for folder, target in MAPPED.items()
        for path in (copied / folder).rglob("*")
        if path.is_file()
    }
    assert held == expected


def test_the_wheel_carries_license_script_and_requirements(wheel):
    with zipfile.ZipFile(wheel) as archive:
        by_name = {name.rpartition("/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = email.message_from_bytes(archive.read(by_name["METADATA"]))
        scripts = archive.read(by_name["entry_points.txt"]).decode()
    assert (metadata["Name"], metadata["License"], metadata["Requires-Python"]) == ("visiontrain", "MIT", ">=3.10")
    assert "LICENSE" in by_name
    assert "visiontrain = visiontrain.cli:main" in scripts
    required = {line.split(">=")[0] for line in metadata.get_all("Requires-Dist") if "extra ==" not in line}
    assert required == {
        *("torch", "torchvision", "numpy", "opencv-python", "pyyaml", "pillow"),
        *("faster-coco-eval", "rich", "matplotlib"),
    }
    assert {"export", "tensorboard", "mlflow", "wandb", "dev"} == set(metadata.get_all("Provides-Extra"))


def test_an_installed_wheel_finds_its_files_from_any_folder(installed, tmp_path):
    found = locate(installed, cwd=tmp_path)
    assert Path(found.pop("package")).is_relative_to(installed)
    version = found.pop("version")
    assert (installed / f"visiontrain-{version}.dist-info").is_dir()
    assert found == {"model": True, "data": True, "bundled_is_not_code": True}


def test_an_editable_install_finds_the_checkout_from_any_folder(copied, tmp_path):
    folder = tmp_path / "editable"
    folder.mkdir()
    name = run_python("-c", BUILD, "build_editable", str(folder), cwd=copied)
    with zipfile.ZipFile(folder / name) as archive:
        archive.extractall(folder)
    found = locate(folder, cwd=tmp_path)
    assert Path(found.pop("package")) == copied / "visiontrain" / "__init__.py"
    found.pop("version")
    assert found == {"model": True, "data": True, "bundled_is_not_code": True}


@pytest.mark.slow
def test_the_wheel_trains_an_epoch_from_an_empty_folder(installed, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "visiontrain", "train", "epochs=1", "batch=8", "fraction=0.25", "plots=False"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "detect" / "train" / "weights" / "last.pt").is_file()
    # A set that is part of the installation is not to be written to.
    with_cache = [path for path in (installed / "visiontrain" / "bundled").rglob("*") if path.suffix == ".cache"]
    assert with_cache == []
