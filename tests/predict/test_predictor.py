import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from visiontrain.decode import decode_detections
from visiontrain.predict.boxes import find_boxes
from visiontrain.predict.parts import Frame, SourceImage
from visiontrain.predict.predictor import Predictor
from visiontrain.predict.probs import find_probs
from visiontrain.predict.sources import open_source

CPU = torch.device("cpu")
NAMES = {0: "dark", 1: "light"}


class BrightPatches(torch.nn.Module):
    """Finds the patches of a 4 × 4 grid by their brightness: a detector whose answers are known."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def forward(self, images):
        assert images.dtype == torch.uint8
        assert not self.training
        assert torch.is_inference_mode_enabled()
        self.batches.append(tuple(images.shape))
        _, _, height, width = images.shape
        light = torch.nn.functional.adaptive_avg_pool2d(images.double(), 4).mean(1).flatten(1) / 255  # (B, 16)
        rows, columns = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
        corner = torch.stack([columns * width / 4, rows * height / 4], -1).reshape(-1, 2)
        boxes = torch.cat([corner, corner + torch.tensor([width / 4, height / 4])], 1)
        return boxes.expand(len(images), -1, -1), torch.stack([1 - light, light], 2)


def decoder(outputs):
    return decode_detections(*outputs, conf=0.3, iou=0.5, max_det=300, multi_label=True)


def letterbox(image, size=64):
    """Shrink to the long side and center on a square, as a task would."""
    height, width = image.shape[:2]
    scale = size / max(height, width)
    matrix = np.array([[scale, 0, (size - width * scale) / 2], [0, scale, (size - height * scale) / 2], [0, 0, 1]])
    return cv2.warpAffine(image, matrix[:2], (size, size), borderValue=(114, 114, 114)), matrix


def unchanged(image):
    return image, np.eye(3, dtype=np.float32)


def predictor_of(network, prepare=letterbox, **options):
    return Predictor(network, decoder, prepare, NAMES, found=find_boxes, device=CPU, **options)


def sources_of(images):
    return [SourceImage(f"image{index}", image) for index, image in enumerate(images)]


@pytest.mark.parametrize("form", ["file", "folder", "glob", "list", "array", "pil", "tensor", "float tensor"])
def test_every_form_of_an_image_gives_the_same_boxes(form, tmp_path, write, picture, reading):
    rgb = picture(height=90, width=120)
    path = write(tmp_path / "ü.png", rgb)
    chw = torch.from_numpy(rgb).permute(2, 0, 1)
    source = {
        "file": str(path),
        "folder": tmp_path,
        "glob": str(tmp_path / "*.png"),
        "list": [path],
        "array": rgb[..., ::-1],
        "pil": Image.fromarray(rgb),
        "tensor": chw,
        "float tensor": chw.float()[None] / 255,
    }[form]
    predictor = predictor_of(BrightPatches())
    (expected,) = predictor([SourceImage("a", rgb)])
    (found,) = predictor(open_source(source, **reading))
    assert len(found) > 0
    torch.testing.assert_close(found.boxes.data, expected.boxes.data, rtol=0, atol=0)
    np.testing.assert_array_equal(found.orig_img, rgb[..., ::-1])


def test_boxes_come_back_in_pixels_of_the_source_image():
    # Twice as wide as high, shrunk by 2: white lower left quarter of the left half.
    image = np.zeros((64, 128, 3), np.uint8)
    image[32:, :32] = 255
    (results,) = predictor_of(BrightPatches())(sources_of([image]))
    light = results.boxes[results.boxes.cls == 1]
    best = light[0].xyxy[0]
    torch.testing.assert_close(best, torch.tensor([0.0, 32, 32, 64]))
    assert results.orig_shape == (64, 128)
    assert (results.names, list(results.speed)) == (NAMES, ["preprocess", "inference", "postprocess"])


@pytest.mark.parametrize(("height", "width"), [(7, 90), (90, 7), (64, 64), (1, 1), (300, 200)])
def test_boxes_lie_in_the_image_and_have_an_area(height, width, picture):
    (results,) = predictor_of(BrightPatches())(sources_of([picture(height=height, width=width)]))
    x1, y1, x2, y2 = results.boxes.xyxy.unbind(1)
    assert ((x1 >= 0) & (y1 >= 0) & (x2 <= width) & (y2 <= height)).all()
    assert ((x2 > x1) & (y2 > y1)).all()


def test_only_images_of_equal_size_that_follow_each_other_run_together(picture):
    sizes = [8, 8, 8, 16, 8, 8]
    network = BrightPatches()
    results = list(predictor_of(network, unchanged, batch=2)(sources_of([picture(0, size, 8) for size in sizes])))
    assert [shape[0] for shape in network.batches] == [2, 1, 1, 2]
    assert [r.path for r in results] == [f"image{index}" for index in range(6)]
    assert [r.orig_shape[0] for r in results] == sizes


@pytest.mark.parametrize("batch", [2, 3, 8])
def test_the_batch_does_not_change_the_boxes(batch, picture):
    sources = sources_of([picture(seed) for seed in range(5)])
    alone = list(predictor_of(BrightPatches())(sources))
    together = list(predictor_of(BrightPatches(), batch=batch)(sources))
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one.boxes.data, other.boxes.data, rtol=0, atol=1e-5)


def test_results_stream_without_reading_ahead(picture):
    taken = []

    def images():
        for source in sources_of([picture(seed) for seed in range(6)]):
            taken.append(source.path)
            yield source

    stream = predictor_of(BrightPatches(), batch=2)(images())
    next(stream)
    assert len(taken) == 2


def test_a_camera_waits_for_no_batch(picture):
    taken = []

    def frames():
        for number in range(1, 4):
            taken.append(number)
            yield SourceImage("camera0", picture(number), Frame(number, 30.0, is_live=True))

    stream = predictor_of(BrightPatches(), batch=8)(frames())
    assert [(next(stream).frame.number, len(taken)) for _ in range(3)] == [(1, 1), (2, 2), (3, 3)]


def test_the_caller_stays_out_of_inference_mode_while_the_stream_is_open(picture):
    network = BrightPatches()
    for results in predictor_of(network)(sources_of([picture(0), picture(1)])):
        assert not torch.is_inference_mode_enabled()
        assert not results.boxes.data.is_inference()
        network.train()  # as a caller might who trains in between


def test_an_image_in_which_nothing_is_found_gives_empty_results(picture):
    predictor = Predictor(
        BrightPatches(),
        lambda outputs: decode_detections(*outputs, conf=1.0, iou=0.5, max_det=300, multi_label=True),
        letterbox,
        NAMES,
        found=find_boxes,
        device=CPU,
    )
    (results,) = predictor(sources_of([picture()]))
    assert results.boxes.shape == (0, 6)
    assert results.verbose() == "no detections"


@pytest.mark.parametrize("batch", [1, 2])
def test_a_classifier_gives_probabilities_of_each_image(batch):
    class Brightness(torch.nn.Module):
        def forward(self, images):
            light = images.double().mean((1, 2, 3)) / 255
            return torch.stack([1 - light, light], 1)  # (B, C)

    predictor = Predictor(
        Brightness(),
        lambda outputs: [{"probs": row} for row in outputs],
        unchanged,
        NAMES,
        found=find_probs,
        device=CPU,
        batch=batch,
    )
    results = list(predictor(sources_of([np.full((8, 12, 3), value, np.uint8) for value in (0, 255, 51)])))
    assert [r.probs.top1 for r in results] == [0, 1, 0]
    torch.testing.assert_close(results[2].probs.data, torch.tensor([0.8, 0.2]))
    assert results[1].verbose() == "light 1.00, dark 0.00"
    assert not results[0].probs.data.is_inference()
    assert results[0].boxes is None
    assert list(results[0].speed) == ["preprocess", "inference", "postprocess"]


def test_no_images_give_no_results():
    assert list(predictor_of(BrightPatches())([])) == []


def test_the_network_runs_in_the_given_precision(picture):
    class Precision(BrightPatches):
        def forward(self, images):
            assert torch.is_autocast_enabled("cpu")
            return super().forward(images)

    predictor = predictor_of(Precision(), precision=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
    assert len(list(predictor(sources_of([picture()])))) == 1
