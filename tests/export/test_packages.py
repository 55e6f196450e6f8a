"""What is missing is named, with what to install."""

from __future__ import annotations

import pytest

from visiontrain.errors import ConfigError
from visiontrain.export.packages import require


def test_what_is_there_passes():
    require(("json", "pathlib"), "format = onnx")


def test_all_that_is_missing_is_named_with_what_to_install():
    with pytest.raises(ConfigError, match=r"format = onnx: needs nope1, nope2, which are not installed; pip install"):
        require(("nope1", "json", "nope2"), "format = onnx")
    with pytest.raises(ConfigError, match=r"needs nope1, which is not installed; pip install 'visiontrain\[export\]'"):
        require(("nope1",), "format = onnx")
