"""A command that notes what its process exchanges with others: `python spied.py FOLDER WORDS...`, under torchrun.

At the end FOLDER/PROCESS.json holds the calls of collectives and, after every update, a digest of the weights.
"""

import hashlib
import importlib
import json
import os
import sys
from collections import Counter
from pathlib import Path

import torch.distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

calls: Counter[str] = Counter()
digests: list[str] = []
buckets: set[int] = set()


def count(name):
    plain = getattr(torch.distributed, name)

    def call(*arguments, **keys):
        calls[name] += 1
        return plain(*arguments, **keys)

    setattr(torch.distributed, name, call)


def count_buckets():
    distributed = importlib.import_module("visiontrain.engine.distributed")
    plain = distributed.Group.replicate

    def hook(state, bucket):
        calls["gradients"] += 1
        buckets.add(bucket.index())
        return allreduce_hook(None, bucket)

    def replicate(self, network):
        model = plain(self, network)
        model.register_comm_hook(None, hook)
        return model

    distributed.Group.replicate = replicate


def note_weights():
    ema = importlib.import_module("visiontrain.engine.ema").Ema
    plain = ema.update

    def update(self, network):
        plain(self, network)
        digest = hashlib.sha256()
        for tensor in network.parameters():
            digest.update(tensor.detach().contiguous().numpy().tobytes())
        digests.append(digest.hexdigest())

    ema.update = update


if __name__ == "__main__":
    from visiontrain.cli import main

    for name in ("all_reduce", "broadcast", "all_gather_object", "broadcast_object_list"):
        count(name)
    count_buckets()
    note_weights()
    code = main(sys.argv[2:])
    path = Path(sys.argv[1]) / f"{os.environ['RANK']}.json"
    path.write_text(json.dumps({"calls": calls, "buckets": len(buckets), "digests": digests}), encoding="utf-8")
    sys.exit(code)
