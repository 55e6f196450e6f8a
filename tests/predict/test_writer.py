import cv2
import numpy as np
import pytest
import torch

from visiontrain.errors import ConfigError
from visiontrain.predict.boxes import Boxes
from visiontrain.predict.parts import Frame
from visiontrain.predict.probs import Probs
from visiontrain.predict.results import Results
from visiontrain.predict.writer import ResultWriter


@pytest.fixture
def results_of(picture):
    def make(path):
        boxes = Boxes(torch.tensor([[1.0, 2, 30, 40, 0.5, 0], [5, 5, 60, 40, 0.4, 1]]), (48, 64))
        return Results(np.ascontiguousarray(picture()[..., ::-1]), path=path, names={0: "a", 1: "b"}, boxes=boxes)

    return make


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_pictures_and_labels_of_an_image_share_a_name(tmp_path, results_of):
    writer = ResultWriter(tmp_path / "run", save_txt=True, save_crop=True)
    written = writer.write(results_of("x/cells ü.png"))
    assert files_in(tmp_path / "run") == [
        "cells ü.jpg",
        "crops/a/cells ü.jpg",
        "crops/b/cells ü.jpg",
        "labels/cells ü.txt",
    ]
    assert sorted(path.relative_to(tmp_path / "run").as_posix() for path in written) == files_in(tmp_path / "run")


def test_equal_names_from_different_folders_do_not_overwrite_each_other(tmp_path, results_of):
    writer = ResultWriter(tmp_path, save_txt=True)
    for path in ("x/a.png", "y/a.png", "y/a.jpg", "z/b.png"):
        writer.write(results_of(path))
    assert files_in(tmp_path) == [
        *("a.jpg", "a_2.jpg", "a_3.jpg", "b.jpg"),
        *("labels/a.txt", "labels/a_2.txt", "labels/a_3.txt", "labels/b.txt"),
    ]


def test_files_that_were_there_before_stay_as_they_are(tmp_path, results_of):
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "b.jpg").write_bytes(b"mine")
    writer = ResultWriter(tmp_path, save_txt=True)
    writer.write(results_of(str(tmp_path / "a.png")))
    writer.write(results_of(str(tmp_path / "b.png")))
    assert (tmp_path / "labels" / "a.txt").read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "b.jpg").read_bytes() == b"mine"
    assert files_in(tmp_path) == ["a_2.jpg", "b.jpg", "b_2.jpg", "labels/a.txt", "labels/a_2.txt", "labels/b_2.txt"]


@pytest.mark.parametrize(("save_conf", "columns"), [(False, 5), (True, 6)])
def test_scores_are_in_the_label_files_when_asked_for(tmp_path, results_of, save_conf, columns):
    (path,) = ResultWriter(tmp_path, save=False, save_txt=True, save_conf=save_conf).write(results_of("a.png"))
    assert np.loadtxt(path).shape == (2, columns)


def test_nothing_is_made_when_nothing_is_asked_for(tmp_path, results_of):
    assert ResultWriter(tmp_path / "run", save=False).write(results_of("a.png")) == []
    assert not (tmp_path / "run").exists()


def test_the_picture_is_drawn_as_asked(tmp_path, results_of):
    plain = ResultWriter(tmp_path / "plain", show_labels=False, line_width=1).write(results_of("a.png"))
    labelled = ResultWriter(tmp_path / "labelled", show_labels=True, line_width=3).write(results_of("a.png"))
    assert plain[0].read_bytes() != labelled[0].read_bytes()


def frames_of(results_of, path, count, *, fps=10.0, stride=1):
    for number in range(1, count * stride + 1, stride):
        results = results_of(path)
        results.frame = Frame(number, fps)
        yield results


def test_the_frames_of_a_video_become_a_video_with_texts_and_crops_of_their_own(tmp_path, results_of):
    writer = ResultWriter(tmp_path, save_txt=True, save_crop=True)
    written = [writer.write(results) for results in frames_of(results_of, "x/street.avi", 3, stride=2)]
    writer.close()
    assert files_in(tmp_path) == [
        *(f"crops/{name}/street_frame_{number}.jpg" for name in "ab" for number in (1, 3, 5)),
        *(f"labels/street_frame_{number}.txt" for number in (1, 3, 5)),
        "street.mp4",
    ]
    assert written[1][:2] == [tmp_path / "street.mp4", tmp_path / "labels" / "street_frame_3.txt"]
    capture = cv2.VideoCapture(str(tmp_path / "street.mp4"))
    assert (capture.get(cv2.CAP_PROP_FRAME_COUNT), capture.get(cv2.CAP_PROP_FPS)) == (3, 10)
    is_read, frame = capture.read()
    capture.release()
    assert is_read
    assert np.abs(frame.astype(int) - results_of("a").plot()).mean() < 40  # of noise, which compresses badly


def test_videos_of_one_name_pictures_between_them_and_files_that_were_there_are_kept_apart(tmp_path, results_of):
    (tmp_path / "a.mp4").write_bytes(b"mine")
    writer = ResultWriter(tmp_path, save_txt=True)
    frames = [*frames_of(results_of, "x/a.avi", 2), results_of("x/a.png"), *frames_of(results_of, "y/a.avi", 1)]
    for results in [*frames, *frames_of(results_of, "y/a.avi", 1)]:  # the same again begins anew
        writer.write(results)
    writer.close()
    assert (tmp_path / "a.mp4").read_bytes() == b"mine"
    assert files_in(tmp_path) == [
        *("a.jpg", "a.mp4", "a_2.mp4", "a_3.mp4", "a_4.mp4", "labels/a.txt"),
        *("labels/a_2_frame_1.txt", "labels/a_2_frame_2.txt", "labels/a_3_frame_1.txt", "labels/a_4_frame_1.txt"),
    ]


def test_without_pictures_there_is_no_video_either(tmp_path, results_of):
    writer = ResultWriter(tmp_path, save=False, save_txt=True)
    for results in frames_of(results_of, "a.avi", 2):
        writer.write(results)
    writer.close()
    assert files_in(tmp_path) == ["labels/a_frame_1.txt", "labels/a_frame_2.txt"]


def test_a_classification_is_written_as_a_picture_and_its_best_classes(tmp_path, results_of):
    found = results_of("x/a.png")
    found = Results(found.orig_img, path=found.path, names=found.names, probs=Probs(torch.tensor([0.1, 0.9]), (48, 64)))
    ResultWriter(tmp_path, save_txt=True).write(found)
    assert files_in(tmp_path) == ["a.jpg", "labels/a.txt"]
    assert (tmp_path / "labels" / "a.txt").read_text(encoding="utf-8") == "0.90 b\n0.10 a\n"
    with pytest.raises(ConfigError, match="save_crop: a classification has no boxes"):
        ResultWriter(tmp_path, save=False, save_crop=True).write(found)
    with pytest.raises(ConfigError, match="line_width = 2: a classification has no boxes"):
        ResultWriter(tmp_path, line_width=2).write(found)
