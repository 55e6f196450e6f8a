"""The parts of classification that are its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.models.classifiers import build_classifier
from visiontrain.sample import Batch, DataSet, Record, Records
from visiontrain.tasks.classify import CLASSIFY, balanced_weights

NO_BOXES = np.zeros((0, 4), np.float32)
NAMES = ("a", "b", "c")


def records_of(*labels: tuple[int, ...]) -> Records:
    return Records([Record(Path("x.png"), 8, 8, NO_BOXES, np.array(classes, np.int64)) for classes in labels])


def config_of(**keys):
    return load_config("train", python={"task": "classify", **keys})


def batch_of(classes: list[list[int]], shares: list[list[float]]) -> Batch:
    count = len(classes)
    return Batch(
        images=torch.zeros(count, 3, 8, 8, dtype=torch.uint8),
        targets={"classes": torch.tensor(classes), "shares": torch.tensor(shares)},
        paths=("x.png",) * count,
        indices=tuple(range(count)),
        original_sizes=((8, 8),) * count,
        matrices=torch.eye(3).expand(count, 3, 3),
    )


@pytest.mark.parametrize("labels", [[(0,)] * 6 + [(1,)] * 2 + [(2,)], [(0,), (1,), (2,)], [(0, 1), (0,), (), (0, 2)]])
def test_under_balanced_weights_every_class_counts_alike_and_the_labels_as_much_as_before(labels):
    weights = np.array(balanced_weights(records_of(*labels), 3))
    counts = np.bincount(np.concatenate([np.array(classes, int) for classes in labels]), minlength=3)
    assert weights * counts == pytest.approx([counts.sum() / 3] * 3)
    assert (weights * counts).sum() == pytest.approx(counts.sum())


def test_a_class_without_images_has_the_weight_of_one():
    assert balanced_weights(records_of((0,), (0,), (2,)), 3) == (0.75, 1.0, 1.5)
    assert balanced_weights(records_of((), ()), 2) == (1.0, 1.0)


def test_balanced_weights_are_settled_by_the_training_images_and_typed_ones_stay():
    data = DataSet(Path("x"), NAMES, {"train": records_of((0,), (0,), (1,), (2,)), "val": records_of((0,))})
    settled = CLASSIFY.settle(config_of(class_weights="balanced"), data)
    assert settled.class_weights == pytest.approx((2 / 3, 4 / 3, 4 / 3))
    assert settled.origin("class_weights") == "decided"
    assert CLASSIFY.settle(config_of(class_weights=(1.0, 2.0, 3.0)), data).class_weights == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("is_several", [False, True])
def test_a_network_for_the_other_kind_of_labels_is_refused_with_the_key_to_type(small_classifier, is_several):
    network = build_classifier(small_classifier, NAMES, multi_label=is_several)
    with pytest.raises(ConfigError, match=f"type multi_label={is_several}$"):
        CLASSIFY.criterion(network, replace(config_of(), multi_label=not is_several))
    CLASSIFY.criterion(network, replace(config_of(), multi_label=is_several))


@pytest.mark.parametrize(
    ("keys", "loss"), [({}, "cross_entropy"), ({"multi_label": True}, "bce"), ({"loss": "focal"}, "focal")]
)
def test_the_loss_is_that_of_the_labels_where_none_is_typed(small_classifier, keys, loss):
    config = config_of(**keys)
    network = build_classifier(small_classifier, NAMES, multi_label=config.multi_label)
    assert CLASSIFY.criterion(network, config).loss == loss


def test_labels_are_written_with_their_shares_where_they_share_an_image():
    batch = batch_of([[1, -1], [0, 2], [-1, -1]], [[1.0, 0.0], [0.75, 0.25], [0.0, 0.0]])
    captions = [marks.caption for marks in CLASSIFY.target_marks(batch, NAMES)]
    assert captions == ["b", "a 0.75, c 0.25", ""]


def test_probabilities_add_up_to_one_unless_each_class_is_for_itself(small_classifier):
    logits = torch.tensor([[0.0, 0.0, 4.0]])
    for is_several, wanted in ((False, logits.softmax(1)), (True, logits.sigmoid())):
        network = build_classifier(small_classifier, NAMES, multi_label=is_several)
        (found,) = CLASSIFY.decoder(network, config_of(multi_label=is_several))(logits)
        torch.testing.assert_close(found["probs"], wanted[0])
