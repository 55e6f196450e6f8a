"""Suppression of overlapping boxes as a part of an ONNX graph.

The same as `decode_detections` with the best class of each anchor point: threshold, suppression within each class, the
best of the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto

DETECTIONS = "detections"
"""(B, max_det, 6): x1, y1, x2, y2 in pixels, score, class; scores fall, and rows of score 0 hold nothing."""

# B images, A anchor points, C classes, K = max_det. Scores of all but the best class are set to 0, so an anchor point
# is kept at most once, and what is kept can be written back into a row of A scores, of which the best K are taken.
# K anchor points of nothing are appended: an image may have fewer than K.
_GRAPH = """
<ir_version: {ir}, opset_import: ["" : {opset}]>
suppress (float[B, A, 4] boxes, float[B, A, C] scores) => (float[B, K, 6] detections)
<int64[1] max_det = {{{max_det}}}, float[1] iou = {{{iou!r}}}, float[1] conf = {{{conf!r}}},
 float zero = {{0.0}}, int64[2] padding = {{{max_det}, 4}},
 int64[3] box_padding = {{0, 0, 0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] four = {{4}},
 int64[1] last = {{-1}}, int64[2] image_and_anchor = {{0, 2}}, int64[1] first = {{0}}>
{{
    best, label = TopK <axis = 2> (scores, one)
    is_best = Equal (scores, best)
    own = Where (is_best, scores, zero)
    by_class = Transpose <perm = [0, 2, 1]> (own)
    kept = NonMaxSuppression (boxes, by_class, max_det, iou, conf)
    places = Gather <axis = 1> (kept, image_and_anchor)
    best_scores = Squeeze (best, two)
    values = GatherND (best_scores, places)
    nothing = Mul (best_scores, zero)
    left = ScatterND (nothing, places, values)

    shape = Shape (left)
    images = Gather <axis = 0> (shape, first)
    tail_shape = Concat <axis = 0> (images, max_det)
    tail = ConstantOfShape (tail_shape)
    padded = Concat <axis = 1> (left, tail)
    score, anchor = TopK <axis = 1> (padded, max_det)

    box_tail_shape = Concat <axis = 0> (images, max_det, four)
    box_tail = ConstantOfShape (box_tail_shape)
    all_boxes = Concat <axis = 1> (boxes, box_tail)
    anchor_column = Unsqueeze (anchor, two)
    box_shape = Concat <axis = 0> (images, max_det, four)
    anchor_of_box = Expand (anchor_column, box_shape)
    box = GatherElements <axis = 1> (all_boxes, anchor_of_box)

    label_number = Cast <to = 1> (label)
    label_tail_shape = Concat <axis = 0> (images, max_det, one)
    label_tail = ConstantOfShape (label_tail_shape)
    all_labels = Concat <axis = 1> (label_number, label_tail)
    number = GatherElements <axis = 1> (all_labels, anchor_column)

    score_column = Unsqueeze (score, two)
    row = Concat <axis = 2> (box, score_column, number)
    is_found = Greater (score_column, zero)
    detections = Where (is_found, row, zero)
}}
"""


@dataclass(frozen=True)
class Suppression:
    """Which detections are left. See `decode_detections`."""

    conf: float
    iou: float
    max_det: int


def with_suppression(model: ModelProto, suppression: Suppression) -> ModelProto:
    """The detector `model`, of outputs `boxes` and `scores`, with `detections` as its only output."""
    import onnx
    from onnx import compose, parser

    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    text = _GRAPH.format(
        ir=model.ir_version,
        opset=opset,
        max_det=suppression.max_det,
        iou=float(suppression.iou),
        conf=float(suppression.conf),
    )
    graph = compose.add_prefix(parser.parse_model(text), "suppress/", rename_inputs=False, rename_outputs=False)
    merged = compose.merge_models(model, graph, io_map=[("boxes", "boxes"), ("scores", "scores")])
    onnx.checker.check_model(merged)
    return merged
