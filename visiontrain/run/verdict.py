"""What `verify` found, as a document and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from visiontrain.engine.equivalence import TOLERANCE, Comparison, Equivalence
from visiontrain.loggers.tables import NOT_AVAILABLE, align

ROWS: Mapping[str, str] = {
    "exact": "exact",
    "single_images": "single images",
    "precision": "precision",
    "batchnorm": "batchnorm",
    "mean_of_means": "mean of means",
}
"""Keys of the document and names of the rows."""
_HEADER = ("", "rel. error", "cosine", "norm ratio", "worst group")
FULL_BATCH, SINGLE_IMAGES = "full batch", "single images"
_REFERENCES = {FULL_BATCH: "one full batch", SINGLE_IMAGES: "plain single images"}
_WORTH_PERCENT, _WHOLE_PERCENT = 1e-3, 0.1


def verdict_document(found: Equivalence) -> dict[str, Any]:
    """Every comparison by its key, and whether the two that must be exact are."""
    return {**{key: _document_of(getattr(found, key)) for key in ROWS}, "passed": found.passed}


def verdict_lines(found: Equivalence, document: Mapping[str, Any], *, norm: str, is_trained: bool) -> list[str]:
    """A table, a sentence for each of its rows, and the verdict.

    Args:
        found: The comparisons.
        document: `verdict_document` with what `verify` knows of the window.
        norm: The kind of normalization layers.
        is_trained: Whether the weights are. Fresh ones make little differences of statistics into large ones of
            gradients (Yang et al. 2019, A Mean Field Theory of Batch Normalization, arXiv:1902.08129).
    """
    table = align([_HEADER, *(_row(name, getattr(found, key)) for key, name in ROWS.items())])
    largest = max(document["micro_batches"])
    reference = _REFERENCES[document["reference"]]
    return [
        table,
        "",
        _exact_sentence(f"exact: in float64, statistics frozen, micro-batches of {largest}", reference, found.exact),
        _exact_sentence("single images: cut into single images, the sums", reference, found.single_images),
        f"precision: the same in {document['precision_name']}: {_off(found.precision)}, by rounding",
        f"batchnorm: {_batchnorm_sentence(found.batchnorm, norm, document, is_trained=is_trained)}",
        f"mean of means, as commonly done: {_off(found.mean_of_means)}",
        "PASSED" if found.passed else "FAILED",
    ]


def _document_of(comparison: Comparison | None) -> dict[str, Any]:
    if comparison is None:
        return {"rel_error": None, "cosine": None, "norm_ratio": None, "groups": {}}
    return asdict(comparison)


def _row(name: str, comparison: Comparison | None) -> tuple[str, ...]:
    if comparison is None:
        return (name, *(NOT_AVAILABLE,) * (len(_HEADER) - 1))
    # nan counts as the worst of all
    worst = max(comparison.groups, key=lambda group: _or_inf(comparison.groups[group].rel_error))
    return (
        name,
        f"{comparison.rel_error:.2g}",
        f"{comparison.cosine:.6f}",
        f"{comparison.norm_ratio:.6f}",
        f"{worst} {comparison.groups[worst].rel_error:.2g}",
    )


def _exact_sentence(cut: str, reference: str, comparison: Comparison) -> str:
    update = f"the update of {reference}" if comparison.is_exact else f"ANOTHER update than {reference}"
    return f"{cut} give {update} ({_off(comparison)}, allowed {TOLERANCE:g})"


def _batchnorm_sentence(
    comparison: Comparison | None, norm: str, document: Mapping[str, Any], *, is_trained: bool
) -> str:
    if norm in ("frozen", "group"):
        return f"norm={norm} knows nothing of micro-batches, so there is nothing to see"
    if comparison is None:
        return "not measured, since a full batch does not fit into memory"
    statistics = f"statistics of {max(document['micro_batches'])} images, not of {document['images']}"
    note = "" if is_trained else " (fresh weights; trained ones mind less)"
    return f"{statistics}, and dropout if any: {_off(comparison)}{note}"


def _off(comparison: Comparison) -> str:
    error = comparison.rel_error
    if math.isnan(error):
        return "not known, since a gradient is not finite"
    if math.isinf(error):
        return "off without measure, since the reference is 0"
    if error < _WORTH_PERCENT:
        return f"{error:.1g} off"
    return f"{100 * error:.0f} % off" if error >= _WHOLE_PERCENT else f"{100 * error:.2g} % off"


def _or_inf(error: float) -> float:
    return math.inf if math.isnan(error) else error
