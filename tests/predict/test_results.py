import io
import json

import cv2
import numpy as np
import pytest
import torch

from visiontrain.errors import ConfigError
from visiontrain.predict import results as module
from visiontrain.predict.boxes import Boxes
from visiontrain.predict.parts import Frame
from visiontrain.predict.probs import Probs
from visiontrain.predict.results import Results

NAMES = {0: "RBC", 1: "WBC", 2: "a/b: \u00fc"}
DATA = torch.tensor([[4.0, 6.0, 24.0, 16.0, 0.9, 0.0], [0.0, 0.0, 64.0, 48.0, 0.8, 1.0], [8, 8, 9, 9, 0.25, 0]])
PROBS = torch.tensor([0.05, 0.7, 0.25])


@pytest.fixture
def results(picture):
    image = np.ascontiguousarray(picture()[..., ::-1])
    return Results(
        image, path="some/where/cells.png", names=NAMES, boxes=Boxes(DATA, (48, 64)), speed={"inference": 1.0}
    )


@pytest.fixture
def nothing(results):
    return results[:0]


@pytest.fixture
def classified(results):
    return Results(results.orig_img, path=results.path, names=NAMES, probs=Probs(PROBS, (48, 64)))


def test_numpy_boxes_hold_the_same_numbers(results):
    as_numpy = results.numpy()
    for name in ("data", "xyxy", "xywh", "xyxyn", "xywhn", "conf", "cls"):
        values = getattr(as_numpy.boxes, name)
        assert isinstance(values, np.ndarray)
        np.testing.assert_array_equal(values, getattr(results.boxes, name).numpy())
    assert as_numpy.verbose() == results.verbose()
    assert as_numpy.summary() == results.summary()
    assert as_numpy.cpu().numpy().boxes.data is as_numpy.boxes.data
    assert as_numpy.to(torch.float64).boxes.data.dtype == torch.float64


@pytest.mark.parametrize(
    ("index", "scores"),
    [
        (1, [0.8]),
        (-1, [0.25]),
        (slice(0, 2), [0.9, 0.8]),
        ([2, 0], [0.25, 0.9]),
        (torch.tensor([True, False, True]), [0.9, 0.25]),
        ([], []),
    ],
)
def test_an_index_picks_detections_of_the_same_image(results, index, scores):
    picked = results[index]
    torch.testing.assert_close(picked.boxes.conf, torch.tensor(scores))
    assert picked.boxes.shape == (len(scores), 6)
    assert (picked.path, picked.names, picked.orig_shape) == (results.path, results.names, results.orig_shape)


def test_results_and_boxes_are_walked_one_by_one(results):
    assert [round(float(one.boxes.conf), 2) for one in results] == [0.9, 0.8, 0.25]
    assert [one.shape for one in results.boxes] == [(1, 6)] * 3
    with pytest.raises(IndexError):
        results.boxes[3]


def test_what_was_not_looked_for_is_none(results, classified):
    assert (results.masks, results.obb, results.keypoints, results.probs) == (None, None, None, None)
    assert (classified.masks, classified.obb, classified.keypoints, classified.boxes) == (None, None, None, None)


def test_results_hold_either_boxes_or_probabilities(results, classified):
    with pytest.raises(ValueError, match="either boxes or probs; give one of them"):
        Results(results.orig_img, path="a.png", names=NAMES)
    with pytest.raises(ValueError, match="either boxes or probs; give one of them"):
        Results(results.orig_img, path="a.png", names=NAMES, boxes=results.boxes, probs=classified.probs)


def test_a_classification_counts_as_one_whatever_the_index(classified):
    assert len(classified) == 1
    assert [one.probs for one in classified] == [classified.probs]
    assert classified[0].probs is classified[-1].probs is classified[:0].probs


def test_verbose_counts_by_class(results, nothing):
    assert results.verbose() == "2 RBC, 1 WBC"
    assert nothing.verbose() == "no detections"
    assert "cells.png: 64 × 48, 2 RBC, 1 WBC" in repr(results)


def test_json_holds_every_detection(results, nothing):
    assert json.loads(results.to_json()) == results.summary()
    assert results.summary()[0] == {
        "name": "RBC",
        "class": 0,
        "confidence": 0.9,
        "box": {"x1": 4.0, "y1": 6.0, "x2": 24.0, "y2": 16.0},
    }
    assert results.summary(normalize=True)[1]["box"] == {"x1": 0.0, "y1": 0.0, "x2": 1.0, "y2": 1.0}
    assert json.loads(nothing.to_json()) == []


def test_a_dictionary_of_results_is_plain(results):
    values = results.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert (values["path"], values["height"], values["width"]) == ("some/where/cells.png", 48, 64)
    assert values["speed"] == {"inference": 1.0}
    assert len(values["detections"]) == 3


def test_a_frame_of_a_video_is_named_and_counted(results, tmp_path):
    assert "frame" not in results.to_dict()
    frame = Results(
        results.orig_img, path="x/street.mp4", names=NAMES, boxes=results.boxes, frame=Frame(12, 25.0), speed={}
    )
    assert frame.to_dict()["frame"] == 12
    assert (frame.path, frame[:1].frame, frame.numpy().frame) == ("x/street.mp4", frame.frame, frame.frame)
    assert "street.mp4, frame 12: 64 × 48" in repr(frame)
    assert frame.save(folder=tmp_path).name == "results_street_frame_12.jpg"
    assert {path.name for path in frame[1:].save_crop(tmp_path)} == {"street_frame_12.jpg"}  # each in its class


def test_results_know_the_folder_that_they_were_written_to(results, tmp_path):
    written = results.in_folder(tmp_path)
    assert (results.save_dir, written.save_dir, written[:1].save_dir) == (None, tmp_path, tmp_path)
    assert written.boxes is results.boxes
    assert written.speed == results.speed


def test_a_table_has_a_row_for_each_detection(results, nothing, classified):
    header, first, *others = results.to_csv().splitlines()
    assert (header, first) == ("name,class,confidence,x1,y1,x2,y2", "RBC,0,0.9,4.0,6.0,24.0,16.0")
    assert len(others) == 2
    assert results.to_csv(normalize=True).splitlines()[2] == "WBC,1,0.8,0.0,0.0,1.0,1.0"
    assert nothing.to_csv() == "name,class,confidence,x1,y1,x2,y2\n"
    assert classified.to_csv(decimals=2).splitlines() == [
        "name,class,confidence",
        "WBC,1,0.7",
        "a/b: ü,2,0.25",
        "RBC,0,0.05",
    ]


def test_a_data_frame_is_the_same_table(results, nothing, classified):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for given in (results, classified):
        pandas.testing.assert_frame_equal(
            given.to_df(), pandas.read_csv(io.StringIO(given.to_csv())), check_dtype=False
        )
    assert nothing.to_df().shape == (0, 7)


def test_detections_are_counted_by_class(results, nothing, classified):
    assert (results.tally(), nothing.tally(), classified.tally()) == ({0: 2, 1: 1}, {}, {1: 1})


def test_what_is_shown_is_what_is_drawn(results, monkeypatch):
    shown = []
    monkeypatch.setattr(module, "show_image", lambda image, title: shown.append((image, title)))
    results.show(labels=False, line_width=2)
    ((image, title),) = shown
    np.testing.assert_array_equal(image, results.plot(labels=False, line_width=2))
    assert title == "cells"


def test_a_classification_is_told_and_written_as_its_best_classes(classified, tmp_path):
    assert "cells.png: 64 × 48, WBC 0.70, a/b: ü 0.25, RBC 0.05" in repr(classified)
    values = classified.to_dict(decimals=2)
    assert json.loads(classified.to_json(decimals=2)) == values["classifications"] == classified.summary(decimals=2)
    assert values["classifications"][0] == {"name": "WBC", "class": 1, "confidence": 0.7}
    assert "detections" not in values
    path = classified.save_txt(tmp_path / "labels" / "cells.txt")
    assert path.read_text(encoding="utf-8") == "0.70 WBC\n0.25 a/b: ü\n0.05 RBC\n"


def test_a_classification_in_numpy_holds_the_same_numbers(classified):
    as_numpy = classified.numpy()
    np.testing.assert_array_equal(as_numpy.probs.data, PROBS.numpy())
    assert as_numpy.summary() == classified.summary()
    assert as_numpy.to(torch.float64).probs.data.dtype == torch.float64
    assert classified.cpu().probs.data.device.type == "cpu"


def test_a_classification_is_drawn_and_saved(classified, tmp_path):
    before = classified.orig_img.copy()
    path = classified.save(tmp_path / "drawn.png")
    image = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(image, classified.plot())
    np.testing.assert_array_equal(classified.orig_img, before)


def test_a_classification_has_nothing_to_cut_out(classified, tmp_path):
    with pytest.raises(ConfigError, match="save_crop: a classification has no boxes to cut out; leave it out"):
        classified.save_crop(tmp_path / "crops")
    assert not (tmp_path / "crops").exists()


def test_plot_draws_into_a_copy(results, nothing):
    before = results.orig_img.copy()
    drawn = results.plot(labels=False, line_width=1)
    np.testing.assert_array_equal(results.orig_img, before)
    assert (drawn[6, 4:24] != before[6, 4:24]).any()
    np.testing.assert_array_equal(nothing.plot(), before)


def test_save_writes_what_plot_draws(results, tmp_path):
    path = results.save(tmp_path / "out" / "drawn ü.png")
    image = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(image, results.plot())


def test_save_without_a_path_never_overwrites(results, tmp_path):
    names = [results.save(folder=tmp_path).name for _ in range(3)]
    assert names == ["results_cells.jpg", "results_cells_2.jpg", "results_cells_3.jpg"]
    assert results.save("x.png", folder=tmp_path) == tmp_path / "x.png"


def test_save_refuses_to_overwrite_the_image_that_was_read(results, tmp_path, write, picture):
    results.path = str(write(tmp_path / "a.png", picture()))
    with pytest.raises(ConfigError, match="it is the image that was read"):
        results.save(tmp_path / "." / "a.png")


def test_save_refuses_an_ending_that_is_no_image(results, tmp_path):
    with pytest.raises(ConfigError, match=r"images ending in \.xyz cannot be written; use \.jpg"):
        results.save(tmp_path / "a.xyz")
    with pytest.raises(ConfigError, match=r"ending in \(nothing\)"):
        results.save(tmp_path / "a")


@pytest.mark.parametrize("save_conf", [False, True])
def test_labels_written_and_read_give_the_same_boxes(results, tmp_path, save_conf):
    path = results.save_txt(tmp_path / "labels" / "cells.txt", save_conf=save_conf)
    rows = np.loadtxt(path, ndmin=2)
    expected = [results.boxes.cls[:, None], results.boxes.xywhn] + [results.boxes.conf[:, None]] * save_conf
    np.testing.assert_allclose(rows, torch.cat(expected, 1).numpy(), atol=5e-7)
    assert path.read_text(encoding="utf-8").startswith("0 0.218750 ")


def test_an_image_without_detections_gives_an_empty_label_file(nothing, tmp_path):
    assert nothing.save_txt(tmp_path / "a.txt").read_bytes() == b""
    assert nothing.save_crop(tmp_path / "crops") == []


def test_crops_lie_in_a_folder_for_each_class_and_never_overwrite(results, tmp_path):
    paths = results.save_crop(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in paths] == ["RBC/cells.jpg", "WBC/cells.jpg", "RBC/cells_2.jpg"]
    sizes = [cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR).shape[:2] for path in paths]
    assert sizes == [(10, 20), (48, 64), (1, 1)]


def test_a_crop_has_a_pixel_and_a_safe_folder_however_thin_its_box(results, tmp_path):
    thin = Results(
        results.orig_img,
        path="a.png",
        names={0: "../x:y"},
        boxes=Boxes(torch.tensor([[64.0, 5, 64, 5, 1, 0]]), (48, 64)),
    )
    assert [path.relative_to(tmp_path).as_posix() for path in thin.save_crop(tmp_path)] == ["_x_y/a.jpg"]


def test_a_class_without_a_name_is_given_by_its_number(results):
    unnamed = Results(results.orig_img, path="a.png", names={}, boxes=results.boxes)
    assert unnamed.verbose() == "2 0, 1 1"
    assert unnamed.plot().shape == (48, 64, 3)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_supervision_reads_the_results(results, nothing, kind):
    supervision = pytest.importorskip("supervision", reason="supervision is not installed")
    for given in (results, nothing):
        given = given.numpy() if kind == "numpy" else given
        detections = supervision.Detections.from_ultralytics(given)
        np.testing.assert_array_equal(detections.xyxy, given.numpy().boxes.xyxy)
        np.testing.assert_array_equal(detections.confidence, given.numpy().boxes.conf)
        np.testing.assert_array_equal(detections.class_id, given.numpy().boxes.cls.astype(int))
        assert detections["class_name"].tolist() == [given.names[int(index)] for index in given.boxes.cls]
        assert detections.tracker_id is None


def test_supervision_reads_a_classification(classified):
    supervision = pytest.importorskip("supervision", reason="supervision is not installed")
    found = supervision.Classifications.from_ultralytics(classified)
    np.testing.assert_array_equal(found.confidence, PROBS.numpy())
    assert found.get_top_k(1)[0].tolist() == [1]


@pytest.mark.parametrize("write", ["save", "save_txt", "save_crop"])
def test_a_file_where_a_folder_is_wanted_is_told_in_one_sentence(results, tmp_path, write):
    (tmp_path / "taken").touch()
    place = tmp_path / "taken" if write == "save_crop" else tmp_path / "taken" / "a.jpg"
    with pytest.raises(
        ConfigError, match=r"taken.*: cannot be written \(.*taken is a file, not a folder\); choose another"
    ):
        getattr(results, write)(place)
    assert (tmp_path / "taken").read_bytes() == b""


def test_a_place_that_cannot_be_written_is_told_with_the_systems_words(results, tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(ConfigError, match=r"a\.txt: cannot be written \(Is a directory\); choose another place"):
        results.save_txt(tmp_path / "a.txt")
