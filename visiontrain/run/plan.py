"""`visiontrain plan`: what training with the same arguments would do."""

from __future__ import annotations

from visiontrain.config.schema import Config
from visiontrain.run.files import as_json
from visiontrain.run.planning import plan_document, plan_lines
from visiontrain.run.prepare import decide_recipe, read_data, split_of, task_of, with_bundled_data


def plan(config: Config) -> None:
    """Print the plan; nothing is trained or written."""
    task = task_of(config)
    config = with_bundled_data(config, task)
    train = split_of(read_data(config, task, ("train",)), "train")
    recipe = decide_recipe(config, task, len(train))
    if config.json:
        print(as_json(plan_document(config, recipe)))
    else:
        print("\n".join(plan_lines(config, recipe)))
