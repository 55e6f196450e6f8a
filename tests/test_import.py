import os
import subprocess
import sys
from pathlib import Path

import pytest

import visiontrain


def python(code, *, cwd):
    root = str(Path(visiontrain.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_an_import_loads_writes_sets_and_starts_nothing(tmp_path):
    done = python(
        "import os, sys, threading\n"
        "before = dict(os.environ)\n"
        "import visiontrain\n"
        "heavy = {'torch', 'torchvision', 'numpy', 'cv2', 'PIL', 'yaml', 'rich', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert dict(os.environ) == before\n"
        "assert threading.active_count() == 1\n",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_plan_needs_no_torch(tmp_path):
    code = "import sys; from visiontrain import plan_windows; assert not {'torch', 'numpy'} & set(sys.modules)"
    assert python(code, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("name", visiontrain.__all__)
def test_every_public_name_is_there_and_listed(name):
    assert getattr(visiontrain, name) is not None
    assert name in dir(visiontrain)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = visiontrain.nothing
