import numpy as np
import pytest
import torch

from visiontrain.predict.augment import LARGER, ClassifierLooks, DetectorLooks, Look, swap_columns

STRIDE = 32


class BlobFinder(torch.nn.Module):
    """A detector of one blob, exact to the pixel: the hull of what is red, whose class tells whether its left half or
    its right half is the brighter one."""

    strides = (8, STRIDE)

    def __init__(self, fixed_size=None):
        super().__init__()
        self.fixed_size = fixed_size
        self.shapes = []

    def forward(self, images):
        assert images.dtype == torch.uint8
        self.shapes.append(tuple(images.shape[2:]))
        assert images.shape[2] % STRIDE == 0
        assert images.shape[3] % STRIDE == 0
        found = [self._find(image.float()) for image in images]
        return {
            "boxes": torch.stack([box for box, _ in found])[:, None],
            "scores": torch.stack([scores for _, scores in found])[:, None],
        }

    def _find(self, image):
        is_red = (image[0] - image[1]) > 30
        rows, columns = is_red.any(1).nonzero(), is_red.any(0).nonzero()
        box = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).float()
        left, _, right, _ = (int(edge) for edge in box)
        middle = (left + right) // 2
        is_left = float(image[0, :, left:middle].sum() > image[0, :, middle:right].sum())
        return box, torch.tensor([is_left, 1 - is_left, 0.5])


def picture_of(box, *, bright="left", height=64, width=96):
    """(1, 3, H, W) uint8, gray with a red blob in `box`, one half of which is brighter."""
    image = np.full((height, width, 3), 60, np.uint8)
    left, top, right, bottom = box
    middle = (left + right) // 2
    image[top:bottom, left:right] = (255, 0, 0)
    image[top:bottom, middle:right] = (160 if bright == "left" else 255, 0, 0)
    image[top:bottom, left:middle] = (255 if bright == "left" else 160, 0, 0)
    return torch.from_numpy(image).permute(2, 0, 1)[None]


def finished(outputs):
    return outputs


@pytest.mark.parametrize("bright", ["left", "right"])
@pytest.mark.parametrize("box", [(8, 4, 28, 44), (0, 0, 16, 16), (76, 44, 96, 64)])
def test_every_look_finds_the_box_at_its_place(box, bright):
    looking = DetectorLooks(BlobFinder(), finished, may_mirror=True, swap=[(0, 1)])
    found = looking(picture_of(box, bright=bright))
    assert found["boxes"].shape == (1, 4, 4)
    truth = torch.tensor(box, dtype=torch.float32).expand(4, -1)
    torch.testing.assert_close(found["boxes"][0, :2], truth[:2], rtol=0, atol=0)
    torch.testing.assert_close(found["boxes"][0, 2:], truth[2:], rtol=0, atol=1.0)  # of whole pixels at 1.25
    expected = torch.tensor([1.0, 0, 0.5] if bright == "left" else [0, 1.0, 0.5])
    torch.testing.assert_close(found["scores"][0], expected.expand(4, -1), rtol=0, atol=0)


def test_classes_that_mirroring_exchanges_are_exchanged_only_where_that_is_told():
    found = DetectorLooks(BlobFinder(), finished, may_mirror=True)(picture_of((8, 4, 28, 44)))
    assert found["scores"][0, :, 0].tolist() == [1, 0, 1, 0]  # plain, mirrored, larger, larger and mirrored


@pytest.mark.parametrize(
    ("may_mirror", "fixed_size", "looks"),
    [
        (True, None, [(1.0, False), (1.0, True), (LARGER, False), (LARGER, True)]),
        (False, None, [(1.0, False), (LARGER, False)]),
        (True, 96, [(1.0, False), (1.0, True)]),
        (False, 96, [(1.0, False)]),
    ],
)
def test_a_detector_is_shown_only_what_it_was_trained_for_and_takes(may_mirror, fixed_size, looks):
    looking = DetectorLooks(BlobFinder(fixed_size), finished, may_mirror=may_mirror)
    assert looking.looks == tuple(Look(*look) for look in looks)
    looking(picture_of((8, 4, 28, 44)))
    shapes = {1.0: (64, 96), LARGER: (96, 128)}
    assert looking.network.shapes == [shapes[scale] for scale, _ in looks]


def test_what_is_padded_is_gray():
    seen = []

    class Keeps(BlobFinder):
        def forward(self, images):
            seen.append(images)
            return super().forward(images)

    DetectorLooks(Keeps(), finished, may_mirror=False)(picture_of((8, 4, 28, 44)))
    assert (seen[1][:, :, 80:] == 114).all()
    assert (seen[1][:, :, :, 120:] == 114).all()
    assert (seen[1][:, :, :80, :120] == 60).any()


def test_a_classifier_averages_its_probabilities_with_those_of_the_mirrored_image():
    class LeftOrRight(torch.nn.Module):
        def forward(self, images):
            halves = images.float().mean((1, 2)).unflatten(1, (2, -1)).mean(2)  # (B, 2)
            return {"probs": halves / halves.sum(1, keepdim=True)}

    image = torch.zeros(1, 3, 4, 8, dtype=torch.uint8)
    image[..., :4] = 90
    image[..., 4:] = 10
    plain = ClassifierLooks(LeftOrRight(), finished)(image)["probs"]
    torch.testing.assert_close(plain, torch.tensor([[0.5, 0.5]]))
    swapped = ClassifierLooks(LeftOrRight(), finished, swap=[(0, 1)])(image)["probs"]
    torch.testing.assert_close(swapped, torch.tensor([[0.9, 0.1]]))


def test_columns_of_pairs_change_places_and_the_rest_stay():
    values = torch.arange(12.0).reshape(2, 6)
    assert swap_columns(values, [(0, 5), (2, 1)])[0].tolist() == [5, 2, 1, 3, 4, 0]
    assert swap_columns(values, []).tolist() == values.tolist()
