"""`visiontrain plan`: what training with the same arguments would do."""

from __future__ import annotations

from visiontrain.config.schema import Config
from visiontrain.run.files import as_json
from visiontrain.run.planning import plan_document, plan_lines
from visiontrain.run.session import open_session


def plan(config: Config) -> None:
    """Print the plan; nothing is trained or written. What `train` would refuse is refused here."""
    session = open_session(config)
    if config.json:
        print(as_json(plan_document(session)))
    else:
        print("\n".join([*plan_lines(session), *session.changes]))
