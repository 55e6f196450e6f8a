"""The architecture: imports only go down, parts of one floor do not know each other, packages have no cycles.

All imports count: those inside functions and under `TYPE_CHECKING` too, because a type that is named is a part that is
known. Only the package's own `__init__.py` stands outside, which offers the public names lazily.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

FLOORS = (
    ("errors",),
    ("plan", "boxes", "findings", "nms"),
    ("folders", "drawing"),  # helpers without a word of the field
    ("models", "config"),
    ("sample",),  # the words, which mathematics speaks
    ("losses", "metrics", "decode"),
    ("protocols",),
    ("engine", "data", "predict", "export", "report", "loggers"),
    ("tasks",),
    ("run",),
    ("model",),
    ("cli",),
    ("__main__", "member"),
)
"""From the ground up; an entry may import entries of earlier rows only."""
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
ROOT = "visiontrain"
ROOT_CONSTANTS = {"__version__"}


@dataclass(frozen=True)
class Module:
    name: str
    """Dotted, without the leading `visiontrain.`; "" is the package itself."""
    path: Path
    tree: ast.Module

    @property
    def part(self) -> str:
        return self.name.split(".")[0]


@cache
def _parsed(text: str) -> ast.Module:
    """Kept: most files of a copy with a planted breach are those of the package itself."""
    return ast.parse(text)


def read_modules(root: Path) -> dict[str, Module]:
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, _parsed(path.read_text(encoding="utf-8")))
    return modules


def imports_of(module: Module, modules: dict[str, Module]) -> Iterator[tuple[int, str]]:
    """Line and target, without the leading `visiontrain.`, of everything that a module imports from this package."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                uses_constants_only = alias.name == ROOT and _attributes_of_root(module) <= ROOT_CONSTANTS
                if not uses_constants_only:
                    yield from _inside(node.lineno, alias.name, modules)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module)
            for alias in node.names:
                if base == ROOT and alias.name in ROOT_CONSTANTS:
                    continue
                is_module = f"{base}.{alias.name}".removeprefix(f"{ROOT}.") in modules
                yield from _inside(node.lineno, f"{base}.{alias.name}" if is_module else base, modules)
        elif isinstance(node, ast.Call) and _called_name(node) in ("import_module", "__import__"):
            for named in (argument for argument in node.args[:1] if isinstance(argument, ast.Constant)):
                yield from _inside(node.lineno, str(named.value), modules)


def _attributes_of_root(module: Module) -> set[str]:
    """The names that a module takes from the package by `visiontrain.name`."""
    attributes = (node for node in ast.walk(module.tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == ROOT}


def _absolute(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    package = [ROOT, *filter(None, module.name.split("."))]
    levels = node.level - (module.path.name == "__init__.py")
    return ".".join([*package[: len(package) - levels], *filter(None, [node.module])])


def _inside(line: int, target: str, modules: dict[str, Module]) -> Iterator[tuple[int, str]]:
    if target == ROOT:
        yield line, ""
    elif target.startswith(f"{ROOT}."):
        name = target.removeprefix(f"{ROOT}.")
        while name not in modules and "." in name:  # `import visiontrain.a.b.name`
            name = name.rpartition(".")[0]
        yield line, name


def _called_name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def find_faults(root: Path) -> list[str]:
    """Every breach of the architecture below `root`, one line each."""
    modules = read_modules(root)
    faults = []
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for module in modules.values():
        if not ast.get_docstring(module.tree):
            faults.append(f"{module.path.name}: {module.name or ROOT} has no docstring")
        if not module.name:
            continue
        if module.part not in FLOOR_OF:
            faults.append(f"{module.name}: is on no floor")
            continue
        for line, target in imports_of(module, modules):
            part = target.split(".")[0]
            if part == module.part:
                graph[module.name].add(target)
            elif part not in FLOOR_OF:
                faults.append(f"{module.name}:{line}: imports {target or ROOT}, which is on no floor")
            elif FLOOR_OF[part] == FLOOR_OF[module.part]:
                faults.append(f"{module.name}:{line}: imports {target} of its own floor")
            elif FLOOR_OF[part] > FLOOR_OF[module.part]:
                faults.append(f"{module.name}:{line}: imports {target} from above")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        faults.append(f"cycle: {' -> '.join(reversed(error.args[1]))}")
    return faults


@pytest.fixture
def source(repository) -> Path:
    return repository / ROOT


def test_every_import_goes_down_and_no_package_has_a_cycle(source):
    assert find_faults(source) == []


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("plan.py", "import visiontrain.run", "imports run from above"),
        ("losses/sums.py", "from visiontrain import protocols", "imports protocols from above"),
        ("losses/sums.py", "def planted():\n    from visiontrain.engine.window import GradientWindow", "from above"),
        ("losses/sums.py", "if TYPE_CHECKING:\n    from visiontrain.tasks import TASKS", "from above"),
        ("losses/sums.py", "from ..engine import window", "from above"),
        ("losses/sums.py", "from visiontrain.metrics import detection", "of its own floor"),
        ("data/planted.py", '"""Planted."""\nfrom visiontrain.predict import sources', "of its own floor"),
        ("plan.py", "import importlib\nimportlib.import_module('visiontrain.engine')", "from above"),
        ("sample.py", "from visiontrain import Model", "imports visiontrain, which is on no floor"),
        ("sample.py", "import visiontrain\nvisiontrain.Model", "imports visiontrain, which is on no floor"),
        ("planted.py", '"""Planted."""', "planted: is on no floor"),
        ("engine/planted.py", "import math", "has no docstring"),
        ("engine/planted.py", '"""Planted."""\nfrom visiontrain.engine import planted', "cycle: "),
    ],
)
def test_a_planted_breach_is_found(source, tmp_path, file, line, fault):
    copy = tmp_path / ROOT
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / file).open("a", encoding="utf-8") as planted:
        planted.write(f"\n{line}\n")
    assert [found for found in find_faults(copy) if fault in found]


def test_a_cycle_over_two_files_is_found_even_inside_functions(source, tmp_path):
    copy = tmp_path / ROOT
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    header = '"""Planted."""\n'
    (copy / "engine" / "first.py").write_text(f"{header}from visiontrain.engine import second\n")
    (copy / "engine" / "second.py").write_text(f"{header}def late():\n    from visiontrain.engine.first import name\n")
    assert any("cycle" in fault and "first" in fault and "second" in fault for fault in find_faults(copy))


def test_the_engine_knows_no_task_by_name(source):
    """A task is a value that is handed over: nothing that trains asks which one it is."""
    for path in sorted((source / "engine").glob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            assert not re.search(r"detect|classif", line, re.IGNORECASE), f"{path.name}:{number}: {line.strip()}"


def test_matplotlib_is_imported_inside_functions_only(source):
    for module in read_modules(source).values():
        at_import = (node for node in ast.walk(module.tree) if isinstance(node, ast.Import | ast.ImportFrom))
        for node in at_import:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            is_plot = any(name.split(".")[0] == "matplotlib" for name in names)
            assert not (is_plot and node.col_offset == 0), f"{module.name}:{node.lineno} imports matplotlib at once"


def test_only_the_command_line_ends_the_process(source):
    for module in read_modules(source).values():
        # data.workers: a process whose parent is gone.
        if module.part in ("cli", "__main__", "member") or module.name == "data.workers":
            continue
        for node in ast.walk(module.tree):
            ends = isinstance(node, ast.Call) and _called_name(node) in ("exit", "_exit", "quit")
            assert not ends, f"{module.name}:{node.lineno} ends the process"


def test_no_handler_swallows_every_exception(source):
    for module in read_modules(source).values():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type else "BaseException"
            reraises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            is_broad = caught in ("Exception", "BaseException")
            assert reraises or not is_broad or module.part in ("cli", "__main__"), f"{module.name}:{node.lineno}"


PROBE = """
import json, os, sys, threading
opened = []
def watch(event, arguments):
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        opened.append(str(arguments[0]))
    elif event.split(".")[0] in ("socket", "subprocess"):
        opened.append(event)
sys.addaudithook(watch)
environment = dict(os.environ)
import visiontrain
print(json.dumps({
    "touched": opened,
    "environment": environment == dict(os.environ),
    "threads": threading.active_count(),
    "heavy": sorted({"torch", "torchvision", "numpy", "cv2", "matplotlib", "rich", "yaml", "PIL"} & set(sys.modules)),
}))
"""


def test_importing_the_package_has_no_side_effects(repository, tmp_path):
    ours = {"PYTHONPATH": str(repository), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}
    environment = {**os.environ, **ours}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"touched": [], "environment": True, "threads": 1, "heavy": []}
    assert list(tmp_path.iterdir()) == []
