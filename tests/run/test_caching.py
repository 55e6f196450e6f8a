"""Runs with cached images: the same bits, and nothing left behind but the cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.run import caching


@pytest.mark.parametrize("cache", ["ram", pytest.param("disk", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_run_with_cached_images_ends_with_the_same_bits_and_says_what_it_keeps(run_training, tmp_path, cache):
    keys = {"epochs": 1, "val": False}
    plain = run_training(save_dir=str(tmp_path / "plain"), **keys)
    cached = run_training(save_dir=str(tmp_path / "cached"), cache=cache, **keys)
    weights = [load_checkpoint(result.last)["model"] for result in (cached, plain)]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    log = (cached.save_dir / "train.log").read_text(encoding="utf-8")
    assert "\ncache: 8 images in 0.1 MB" in log
    kept = list(Path(os.environ["VISIONTRAIN_CACHE"]).rglob("*.bin"))
    assert len(kept) == (cache == "disk")


def test_a_cache_that_does_not_fit_is_refused_before_anything_is_made(run_training, monkeypatch, tmp_path):
    monkeypatch.setattr(caching, "free_memory", lambda device: 1000)
    with pytest.raises(ConfigError, match="cache"):
        run_training(cache="ram")
    assert not (tmp_path / "run").exists()
