"""Which weights torchvision offers for a network, and whether they are at hand; found without loading torch.

That takes seconds, and all of the answer may be that a file is missing. So torchvision's source is read, not run. Where
it is not written as expected nothing is known here, and the library itself is asked later.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from visiontrain.errors import ConfigError
from visiontrain.folders import with_home
from visiontrain.models.description import DETECTOR_PREFIX, backbone_of

PATIENCE_SECONDS = 2.0
"""For the server's first answer. Torch itself would wait for as long as the system does, and make folders before."""


def check_at_hand(model: str, task: str | None = None, *, hub: Path) -> None:
    """Raise an error where `pretrained=True` would want weights that are neither there nor to be had.

    Args:
        model: The network's name. Of names that are none of torchvision's nothing is said.
        task: That was typed; a name that is not for it has another fault.
        hub: The folder of `torch.hub`.

    Raises:
        ConfigError: If the weights' file is missing and its server does not answer.
    """
    is_detector = model.startswith(DETECTOR_PREFIX)
    name = backbone_of(model) if is_detector else model
    if name is None or task not in (None, "detect" if is_detector else "classify"):
        return
    url = offered_url(name)
    if url is None or kept_file(url, hub).exists():
        return
    try:
        check_reachable(url)
    except (OSError, HTTPException) as error:
        raise ConfigError(missing_fault(name, url, hub, error)) from error


def missing_fault(name: str, url: str, hub: Path, error: Exception) -> str:
    """The sentence on weights that could not be fetched."""
    file = kept_file(url, hub)
    return (
        f"pretrained = True: the weights of {name} are missing and could not be fetched ({first_line(error)}); "
        f"download {url} on another machine and put it into {file.parent} as {file.name}, or give pretrained=file.pth"
    )


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def hub_folder() -> Path:
    """Where `torch.hub` keeps what it fetches, unless a program has told it another folder.

    Source: the documentation of `torch.hub`, "Where are my downloaded models saved?"
    """
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return with_home(os.environ.get("TORCH_HOME", f"{cache}/torch")) / "hub"


def kept_file(url: str, hub: Path) -> Path:
    """The file that torch makes of what it fetches from `url`."""
    return hub / "checkpoints" / PurePosixPath(urlsplit(url).path).name


def check_reachable(url: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Raises OSError or HTTPException unless a server answers within so many seconds, whatever its answer is."""
    answers: SimpleQueue[OSError | HTTPException | None] = SimpleQueue()

    def ask() -> None:
        try:
            urlopen(Request(url, method="HEAD"), timeout=seconds).close()
        except HTTPError:
            answers.put(None)
        except (OSError, HTTPException) as error:
            answers.put(error)
        else:
            answers.put(None)

    # Apart, since no time limit holds for finding the server's address.
    Thread(target=ask, daemon=True).start()
    try:
        error = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error


def offered_url(name: str) -> str | None:
    """Where the weights are that torchvision offers for its network `name`, as its source says; None if it does not."""
    for tree in _sources_with(f"def {name}("):
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        weights = classes.get(_class_of_weights(functions[name])) if name in functions else None
        if weights is not None:
            return _default_url(weights)
    return None


def _sources_with(text: str) -> Iterator[ast.Module]:
    """The files of torchvision's classification networks that hold a text."""
    package = find_spec("torchvision")
    for root in (package.submodule_search_locations or ()) if package is not None else ():
        for path in sorted((Path(root) / "models").glob("*.py")):
            source = path.read_text(encoding="utf-8")
            if text in source:
                yield ast.parse(source)


def _class_of_weights(function: ast.FunctionDef) -> str:
    """`X` where a function takes `weights: Optional[X]`, else nothing."""
    for argument in function.args.kwonlyargs:
        annotation = argument.annotation
        if argument.arg == "weights" and isinstance(annotation, ast.Subscript):
            return annotation.slice.id if isinstance(annotation.slice, ast.Name) else ""
    return ""


def _default_url(weights: ast.ClassDef) -> str | None:
    """Of a class with lines like `V1 = Weights(url="…")` and `DEFAULT = V1`."""
    values = {
        target.id: line.value
        for line in weights.body
        if isinstance(line, ast.Assign)
        for target in line.targets
        if isinstance(target, ast.Name)
    }
    default = values.get("DEFAULT")
    call = values.get(default.id) if isinstance(default, ast.Name) else None
    keywords = call.keywords if isinstance(call, ast.Call) else []
    urls = [keyword.value for keyword in keywords if keyword.arg == "url"]
    return str(urls[0].value) if urls and isinstance(urls[0], ast.Constant) else None
