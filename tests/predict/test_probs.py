import numpy as np
import pytest
import torch

from visiontrain.drawing import draw_lines
from visiontrain.errors import ConfigError
from visiontrain.predict.probs import Probs, find_probs

NAMES = dict(enumerate(("zero", "one", "two", "three", "four", "five")))
DATA = torch.tensor([0.05, 0.1, 0.4, 0.02, 0.3, 0.13])


@pytest.fixture
def probs():
    return Probs(DATA, (48, 64))


def test_the_best_come_first_with_their_probabilities(probs):
    assert (probs.top1, probs.top5) == (2, [2, 4, 5, 1, 0])
    assert all(type(index) is int for index in [probs.top1, *probs.top5])
    assert probs.top1conf == DATA[2]
    torch.testing.assert_close(probs.top5conf, DATA[[2, 4, 5, 1, 0]], rtol=0, atol=0)
    assert (len(probs), probs.shape, probs.orig_shape) == (6, (6,), (48, 64))


def test_a_numpy_array_gives_the_same(probs):
    as_numpy = probs.numpy()
    assert isinstance(as_numpy.data, np.ndarray)
    assert as_numpy.top5 == probs.top5
    np.testing.assert_array_equal(as_numpy.top5conf, probs.top5conf.numpy())
    assert float(as_numpy.top1conf) == float(probs.top1conf)
    assert as_numpy.cpu().numpy().data is as_numpy.data
    assert as_numpy.to(torch.float64).data.dtype == torch.float64
    assert as_numpy.summary(NAMES, normalize=False, decimals=3) == probs.summary(NAMES, normalize=False, decimals=3)


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_there_are_five_best_or_as_many_as_classes(count):
    probs = Probs(torch.full((count,), 1 / count), (8, 8))
    assert probs.top5 == list(range(min(5, count)))  # equal ones by their index
    assert len(probs.top5conf) == len(probs.lines({}, save_conf=False)) == min(5, count)


@pytest.mark.parametrize("shape", [(1, 3), (), (0,)])
def test_probabilities_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"they should be \(C,\)"):
        Probs(torch.zeros(shape), (8, 8))


def test_the_best_are_told_in_words_rows_and_dictionaries(probs):
    assert probs.verbose(NAMES) == "two 0.40, four 0.30, five 0.13, one 0.10, zero 0.05"
    lines = ["0.40 two", "0.30 four", "0.13 five", "0.10 one", "0.05 zero"]
    assert probs.lines(NAMES, save_conf=False) == probs.lines(NAMES, save_conf=True) == lines
    first, *others = probs.summary(NAMES, normalize=True, decimals=2)
    assert first == {"name": "two", "class": 2, "confidence": 0.4}
    assert len(others) == 4


def test_a_class_without_a_name_is_given_by_its_number(probs):
    assert probs.verbose({}).startswith("2 0.40, 4 0.30")
    assert probs.lines({}, save_conf=True)[0] == "0.40 2"
    assert probs.summary({}, normalize=False, decimals=5)[0]["name"] == "2"


def test_names_are_drawn_with_or_without_probabilities_or_not_at_all(probs):
    image = np.full((300, 400, 3), 128, np.uint8)
    with_conf = ["0.40  two", "0.30  four", "0.13  five", "0.10  one", "0.05  zero"]
    drawn = probs.draw(image, NAMES, conf=True, labels=True, line_width=None)
    np.testing.assert_array_equal(drawn, draw_lines(image, with_conf))
    names = [line.split()[1] for line in with_conf]
    drawn = probs.draw(image, NAMES, conf=False, labels=True, line_width=None)
    np.testing.assert_array_equal(drawn, draw_lines(image, names))
    bare = probs.draw(image, NAMES, conf=True, labels=False, line_width=None)
    np.testing.assert_array_equal(bare, image)
    assert bare is not image


def test_a_width_of_lines_is_refused(probs):
    image = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(ConfigError, match="line_width = 3: a classification has no boxes to draw; leave it out"):
        probs.draw(image, NAMES, conf=True, labels=True, line_width=3)


def test_a_row_of_a_batch_is_copied_out_of_it():
    with torch.inference_mode():
        batch = torch.rand(2, 6, dtype=torch.float64)
    found = find_probs({"probs": batch[1]}, np.eye(3), (48, 64))
    torch.testing.assert_close(found.data, batch[1].float(), rtol=0, atol=0)
    assert found.data.untyped_storage().nbytes() == 6 * 4
    assert not found.data.is_inference()
    assert found.orig_shape == (48, 64)
