"""What the trainer can be trained for. A task is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from visiontrain.protocols import Task
from visiontrain.tasks.classify import CLASSIFY
from visiontrain.tasks.detect import DETECT

TASKS: Mapping[str, Task] = {"detect": DETECT, "classify": CLASSIFY}
