"""`visiontrain plan`: what training with the same arguments would do."""

from __future__ import annotations

from visiontrain.config.schema import Config
from visiontrain.run.files import as_json
from visiontrain.run.finetune import transfer_lines
from visiontrain.run.freezing import freezing_lines
from visiontrain.run.planning import plan_document, plan_lines
from visiontrain.run.session import open_session


def plan(config: Config) -> None:
    """Print the plan; nothing is trained or written. What `train` would refuse is refused here."""
    session = open_session(config)
    if config.json:
        print(as_json(plan_document(session)))
    else:
        start = [] if session.transfer is None else [*transfer_lines(session.transfer)]
        state, total = session.state, session.recipe.plan.total_images
        start += freezing_lines(session.network, session.config, session.frozen, epoch=state.epoch + 1)
        if state.images:
            start.append(f"goes on at image {state.images} of {total}, in epoch {state.epoch + 1}")
        print("\n".join([*plan_lines(session), *session.changes, *start]))
