"""What is checked of the settings of any transform; faults read as in `visiontrain.errors`."""

from __future__ import annotations

from collections.abc import Sequence


def faults_of_values(settings: object, *, probabilities: Sequence[str], ranges: Sequence[str]) -> list[str]:
    """What is wrong with values of a transform's settings.

    Args:
        settings: Has `imgsz`, the side of a sample in pixels.
        probabilities: Names of its probabilities.
        ranges: Names of its ranges to both sides.
    """
    values = {name: getattr(settings, name) for name in ("imgsz", *probabilities, *ranges)}
    faults = []
    if values["imgsz"] < 1:
        faults.append(f"imgsz = {values['imgsz']} is not a positive number of pixels")
    for name in probabilities:
        if not 0 <= values[name] <= 1:
            faults.append(f"{name} = {values[name]} is not a probability; choose one from 0 to 1")
    for name in ranges:
        if not values[name] >= 0:
            faults.append(f"{name} = {values[name]} is negative; it is a range to both sides: give its size")
    return faults
