"""Prediction from the command and from Python."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from visiontrain import Model
from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError, DataError
from visiontrain.models.classifiers import build_classifier
from visiontrain.run import predict as module
from visiontrain.run.predict import predict


def pictures_of(trained):
    data = load_checkpoint(trained.best)["args"]["values"]["data"]
    return str(data).replace("data.yaml", "images/val")


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


@pytest.fixture
def write_video(trained, tmp_path):
    """Write so many frames to an AVI file: the pictures of the training, again and again."""

    def write(path=tmp_path / "street.avi", num_frames=5):
        pictures = [cv2.imread(str(one)) for one in sorted(Path(pictures_of(trained)).iterdir())]
        height, width = pictures[0].shape[:2]
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (width, height))
        for index in range(num_frames):
            writer.write(pictures[index % len(pictures)])
        writer.release()
        return path

    return write


class FakeCamera:
    """Sees the same gray for longer than anybody should look."""

    released: list[int] = []  # noqa: RUF012  shared on purpose

    def __init__(self, number):
        self.number = number
        self.num_left = 100

    def isOpened(self):
        return True

    def grab(self):
        self.num_left -= 1
        return self.num_left >= 0

    def retrieve(self):
        return True, np.full((48, 64, 3), 90, np.uint8)

    def get(self, what):
        return 0.0

    def release(self):
        self.released.append(self.number)


@pytest.fixture
def camera(monkeypatch):
    monkeypatch.setattr(FakeCamera, "released", [])
    monkeypatch.setattr(module, "open_capture", lambda address, quiet: FakeCamera(address))
    return FakeCamera


def test_every_picture_is_drawn_and_labelled(trained, tmp_path, capsys):
    keys = {
        "model": str(trained.best),
        "source": pictures_of(trained),
        "save_dir": str(tmp_path / "p"),
        "save_txt": True,
    }
    predict(load_config("predict", python={**keys, "conf": 0.01}))
    assert len(list((tmp_path / "p").glob("*.jpg"))) == 8
    assert len(list((tmp_path / "p" / "labels").glob("*.txt"))) == 8
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1/8 ")
    assert lines[-2].startswith("speed of an image: ")
    assert lines[-1].startswith("results in ")


def test_pictures_and_videos_are_told_and_written_by_the_command(trained, tmp_path, write_video, capsys):
    write_video(num_frames=7)
    keys = {"model": str(trained.best), "source": str(tmp_path / "*.avi"), "save_dir": str(tmp_path / "p")}
    predict(
        load_config("predict", python={**keys, "vid_stride": 3, "save_txt": True, "save_crop": True, "conf": 0.001})
    )
    files = files_in(tmp_path / "p")
    assert [name for name in files if "crops" not in name] == [
        *(f"labels/street_frame_{number}.txt" for number in (1, 4, 7)),
        "street.mp4",
    ]
    num_boxes = sum(len((tmp_path / "p" / name).read_text().splitlines()) for name in files if "labels" in name)
    assert sum("crops" in name for name in files) == num_boxes > 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"1/1 {tmp_path / 'street.avi'}: 3 frames, ")
    assert [line.partition(":")[0] for line in lines[1:]] == ["speed of an image", f"results in {tmp_path / 'p'}"]


def test_quiet_leaves_the_folder_and_the_warnings(trained, tmp_path, capsys):
    source = tmp_path / "pictures"
    source.mkdir()
    (source / "a.png").write_bytes((Path(pictures_of(trained)) / "000.png").read_bytes())
    (source / "b.png").write_bytes(b"broken")
    keys = {"model": str(trained.best), "source": str(source), "save_dir": str(tmp_path / "p"), "quiet": True}
    predict(load_config("predict", python=keys))
    told = capsys.readouterr()
    assert told.out == f"results in {tmp_path / 'p'}\n"
    assert told.err.startswith(f"warning: {source / 'b.png'}: ")
    assert len(Model(trained.best).predict(source)) == 1
    assert capsys.readouterr().err == told.err  # from Python, too


def test_nothing_is_written_from_python_unless_it_is_asked_for(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = f"{pictures_of(trained)}/000.png"
    model = Model(trained.best)
    (found,) = model.predict(path, conf=0.001)
    assert found.save_dir is None
    assert not (tmp_path / "runs").exists()
    (found,) = model.predict(path, conf=0.001, save_crop=True, save_dir=tmp_path / "crops")
    assert found.save_dir == tmp_path / "crops"
    assert len(files_in(found.save_dir)) == len(found)


@pytest.mark.parametrize("settings", [{"stream": True}, {"cfg": "cfg"}])
def test_a_stream_is_handed_out_one_by_one(settings, trained, tmp_path):
    if "cfg" in settings:
        settings = {"cfg": str(tmp_path / "mine.yaml")}
        (tmp_path / "mine.yaml").write_text("stream: true\n", encoding="utf-8")
    stream = Model(trained.best).predict(pictures_of(trained), **settings)
    assert isinstance(stream, Iterator)
    assert sum(1 for _ in stream) == 8
    assert isinstance(Model(trained.best).predict(pictures_of(trained)), list)


def test_a_stream_that_is_left_early_leaves_a_whole_video(trained, tmp_path, write_video):
    stream = Model(trained.best).predict(write_video(), stream=True, save=True, save_dir=tmp_path / "p", batch=1)
    for _ in range(3):
        next(stream)
    stream.close()
    capture = cv2.VideoCapture(str(tmp_path / "p" / "street.mp4"))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == 3
    capture.release()


def test_a_camera_is_handed_out_frame_by_frame_and_let_go_of(trained, camera):
    stream = Model(trained.best).predict(3, stream=True)
    assert [(found.path, found.frame.number) for found, _ in zip(stream, range(3), strict=False)][:2] == [
        *[("camera3", 1), ("camera3", 2)]
    ]
    stream.close()
    del stream
    assert camera.released == [3]


def test_a_camera_without_a_stream_is_refused(trained, camera):
    with pytest.raises(ConfigError, match=r"a camera never ends, .*; use stream=True"):
        Model(trained.best).predict(0)


def test_a_camera_that_is_stopped_at_the_keyboard_leaves_a_whole_video(trained, camera, tmp_path, monkeypatch, capsys):
    seen = []

    def grab(self):
        seen.append(1)
        if len(seen) > 4:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(camera, "grab", grab)
    keys = {"model": str(trained.best), "source": 0, "save_dir": str(tmp_path / "p")}
    with pytest.raises(KeyboardInterrupt) as caught:
        predict(load_config("predict", python=keys))
    assert caught.tb is not None  # it keeps the writer alive, so that no garbage collection closes the video
    capture = cv2.VideoCapture(str(tmp_path / "p" / "camera0.mp4"))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == 4
    capture.release()
    assert camera.released == [0]
    assert capsys.readouterr().out.splitlines()[0].startswith("camera0 frame 1: ")


def test_a_detector_that_looks_several_times_finds_boxes_in_the_picture(trained):
    path = f"{pictures_of(trained)}/000.png"
    model = Model(trained.best)
    (once,) = model.predict(path, conf=0.001, amp=False)
    (often,) = model.predict(path, conf=0.001, amp=False, augment=True)
    height, width = often.orig_shape
    assert len(often) > 0
    assert (often.boxes.xyxy >= 0).all()
    assert (often.boxes.xyxy <= torch.tensor([width, height, width, height])).all()
    assert often.boxes.conf.max() >= once.boxes.conf.max() - 1e-6  # the plain look is among them


def test_mirroring_goes_by_the_training_of_the_weights(two_level_detector, write_weights, monkeypatch):
    weights = write_weights(two_level_detector)
    looking = []

    def watch(config, task, loaded, setup, inner=module.predictor_of):
        looking.append((config.fliplr, config.flip_swap, config.imgsz))
        return inner(config, task, loaded, setup)

    monkeypatch.setattr(module, "predictor_of", watch)
    image = np.zeros((64, 64, 3), np.uint8)
    Model(weights).predict(image, augment=True)
    contents = load_checkpoint(weights)
    contents["args"]["values"] |= {"fliplr": 0.0, "flip_swap": [0, 1]}
    monkeypatch.setattr("visiontrain.run.prepare.load_checkpoint", lambda path: contents)
    Model(weights).predict(image, augment=True)
    assert looking == [(0.5, None, 64), (0.0, [0, 1], 64)]


def test_a_classifier_averages_with_the_mirrored_image_unless_it_was_trained_on_none(write_weights, monkeypatch):
    weights = write_weights(build_classifier("cls-n", ("a", "b")))
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    plain, mirrored, both = (
        Model(weights).predict(one, amp=False, augment=augment)[0].probs.data
        for one, augment in ((image, False), (image[:, ::-1], False), (image, True))
    )
    torch.testing.assert_close(both, (plain + mirrored) / 2)
    assert not torch.allclose(plain, mirrored)
    contents = load_checkpoint(weights)
    contents["args"]["values"]["fliplr"] = 0.0
    monkeypatch.setattr("visiontrain.run.prepare.load_checkpoint", lambda path: contents)
    with pytest.raises(ConfigError, match=r"augment: .* trained with fliplr=0, on none; leave it out"):
        Model(weights).predict(image, augment=True)


def test_folding_the_normalizations_changes_no_result(two_level_detector, write_weights, monkeypatch):
    weights = write_weights(two_level_detector)
    images = list(np.random.default_rng(0).integers(0, 256, (3, 64, 80, 3), dtype=np.uint8))
    folded = Model(weights).predict(images, conf=0.001, amp=False)
    monkeypatch.setattr(module, "fold_norms_", lambda network: 0)
    whole = Model(weights).predict(images, conf=0.001, amp=False)
    assert min(len(one) for one in whole) > 0
    for one, other in zip(folded, whole, strict=True):
        torch.testing.assert_close(one.boxes.data, other.boxes.data, rtol=0, atol=1e-4)


def test_wrong_sources_leave_nothing_behind(trained, tmp_path):
    keys = {"model": str(trained.best), "save_dir": str(tmp_path / "p")}
    with pytest.raises(ConfigError, match="source: is not given"):
        predict(load_config("predict", python=keys))
    with pytest.raises(DataError, match="no such file"):
        predict(load_config("predict", python={**keys, "source": str(tmp_path / "none.jpg")}))
    with pytest.raises(ConfigError, match=r"classes: \[5\] are no classes of the model; it has 0 to 1"):
        predict(load_config("predict", python={**keys, "source": pictures_of(trained), "classes": [5]}))
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with pytest.raises(DataError, match=r"a\.mp4: the video cannot be opened"):
        predict(load_config("predict", python={**keys, "source": str(tmp_path / "a.mp4")}))
    assert not (tmp_path / "p").exists()


def test_two_faults_of_a_source_are_told_once(trained, tmp_path, capsys):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"broken")
    with pytest.raises(DataError) as caught:
        predict(load_config("predict", python={"model": str(trained.best), "source": str(tmp_path / "*.png")}))
    assert len(caught.value.faults) == 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_every_form_of_ten_real_pictures_gives_the_same_boxes(test_data, write_weights, two_level_detector, tmp_path):
    model = Model(write_weights(two_level_detector, imgsz=320))
    paths = sorted((test_data / "bccd" / "images" / "val").iterdir())[:10]
    for path in paths:
        (tmp_path / "ten" / path.name).parent.mkdir(exist_ok=True)
        (tmp_path / "ten" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "list.txt").write_text("\n".join(map(str, paths)), encoding="utf-8")
    pictures = [Image.open(path).convert("RGB") for path in paths]
    tensors = torch.stack([torch.from_numpy(np.array(picture)).permute(2, 0, 1) for picture in pictures])
    forms = {
        "folder": tmp_path / "ten",
        "glob": str(tmp_path / "ten" / "*.jpg"),
        "txt": tmp_path / "list.txt",
        "arrays": [np.array(picture)[..., ::-1] for picture in pictures],
        "PIL": pictures,
        "uint8 tensor": tensors,
        "float tensors": list(tensors / 255),
        "mixed": [paths[0], pictures[1], tensors[2], *paths[3:]],
    }
    expected = model.predict(list(paths), conf=0.05, batch=1)
    assert min(len(found) for found in expected) > 0
    for form, source in forms.items():
        for one, other in zip(model.predict(source, conf=0.05, batch=1), expected, strict=True):
            torch.testing.assert_close(one.boxes.data, other.boxes.data, rtol=0, atol=1e-4, msg=form)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_video_is_predicted_in_constant_memory(write_weights, two_level_detector, tmp_path, repository):
    weights = write_weights(two_level_detector)
    rng = np.random.default_rng(0)
    frames = [cv2.resize(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8), (640, 480)) for _ in range(4)]
    writer = cv2.VideoWriter(str(tmp_path / "long.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 25.0, (640, 480))
    for index in range(300):
        writer.write(frames[index % 4])
    writer.release()
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from visiontrain import Model

        def resident_mb():
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

        weights, video, folder = sys.argv[1:]
        used = []
        for found in Model(weights).predict(video, stream=True, save=True, save_txt=True, save_dir=folder, batch=4):
            used.append(resident_mb())
        print(len(used), max(used[60:]) - used[60])
    """)
    words = [sys.executable, "-c", program, str(weights), str(tmp_path / "long.avi"), str(tmp_path / "p")]
    done = subprocess.run(words, cwd=repository, capture_output=True, text=True, check=True)
    num_frames, grown_mb = done.stdout.split()
    assert int(num_frames) == 300
    assert float(grown_mb) < 50  # 240 frames are 221 MB
    assert len(list((tmp_path / "p" / "labels").iterdir())) == 300
