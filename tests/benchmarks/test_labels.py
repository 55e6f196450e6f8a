from __future__ import annotations

from benchmarks.labels import BOXES, FILES_OF_A_FOLDER, labels_figures, make_data_set, measure


def test_both_readings_see_every_file_and_the_second_finds_a_cache():
    figures = labels_figures(40)
    assert figures["boxes"] == 40 * BOXES
    for reading in ("without_cache", "with_cache"):
        assert figures[reading]["records"] == 40
        assert figures[reading]["seconds"] > 0


def test_the_data_set_has_as_many_images_as_asked_for_with_all_their_boxes(tmp_path, monkeypatch):
    monkeypatch.setenv("VISIONTRAIN_CACHE", str(tmp_path / "cache"))
    description = make_data_set(tmp_path / "data", 3)
    assert len(list((tmp_path / "data" / "labels").rglob("*.txt"))) == 3 < FILES_OF_A_FOLDER
    assert measure(description)["records"] == 3
    assert any((tmp_path / "cache").rglob("*.npz"))
