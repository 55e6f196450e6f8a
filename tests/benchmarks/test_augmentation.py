from __future__ import annotations

from benchmarks import augmentation


def test_samples_are_counted_with_and_without_a_cache_at_every_size(monkeypatch):
    monkeypatch.setattr(augmentation, "SAMPLES", 3)
    monkeypatch.setattr(augmentation, "MOST_IMAGES", 3)
    figures = augmentation.augmentation_figures(1, data=None, sizes=(32, 64))
    for name in ("augmented_samples_per_second", "read_and_augmented_samples_per_second"):
        assert list(figures[name]) == ["32", "64"]
        assert all(rate > 0 for rate in figures[name].values())
