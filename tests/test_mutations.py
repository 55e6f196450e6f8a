"""The tests notice the classic faults of accumulation: each is put into a copy of the package, where they must fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

WINDOW, BRANCHES, FIT, PLAN = "engine/window.py", "engine/branches.py", "engine/fit.py", "plan.py"


@dataclass(frozen=True)
class Mutation:
    """A fault, and the tests of which at least one must fail for it."""

    edits: tuple[tuple[str, str, str], ...]
    """File, what stands there exactly once, and what takes its place."""
    caught_by: tuple[str, ...]


MUTATIONS = {
    "the scale is dropped": Mutation(
        edits=((WINDOW, "torch._foreach_mul_(grads, factor.to(dtype))", "pass"),),
        caught_by=("engine/test_window.py::TestCut::test_the_gradient_is_that_of_the_mean_over_the_whole_window",),
    ),
    "the normalizer is clamped in every micro-batch": Mutation(
        edits=((BRANCHES, "loss.normalizer.detach().to(wide)", "loss.normalizer.detach().to(wide).clamp(min=1)"),),
        caught_by=(
            "test_exactness.py::test_the_update_of_a_detector_is_that_of_the_full_batch[one micro-batch empty]",
        ),
    ),
    "windows are longer by one": Mutation(
        edits=(
            (PLAN, "sizes.append(min(self.size_at(x), stop - x))", "sizes.append(min(self.size_at(x) + 1, stop - x))"),
        ),
        caught_by=("test_plan.py::test_windows_follow_the_ramp_and_are_larger_only_where_a_short_tail_joined",),
    ),
    "a short window is divided by what a full one held": Mutation(
        edits=((WINDOW, "world / divisor", "world / self.__dict__.setdefault('full', divisor)"),),
        caught_by=(
            "test_exactness.py::test_every_window_of_a_run_is_a_full_batch_whatever_becomes_of_the_tail[flush-detector]",
        ),
    ),
    "the gradient is clipped before it is scaled": Mutation(
        edits=(
            (WINDOW, "self._scale(params, world)", ""),
            (
                WINDOW,
                "report = self._report(norm, votes)",
                "self._scale(params, world); report = self._report(norm, votes)",
            ),
        ),
        caught_by=("engine/test_window.py::TestOrder::test_the_norm_at_the_step_is_the_clip_for_every_cut",),
    ),
    "the gradient is zeroed where an epoch begins": Mutation(
        edits=(
            (
                FIT,
                "for batch in on_device(batches, run.device, keeps_empty=run.group.size > 1):",
                "for batch in on_device(batches, run.device, keeps_empty=run.group.size > 1):\n"
                "        if (planned.start + int(run.gradients._sums.num_images)) % run.plan.num_images == 0:\n"
                "            run.gradients.optimizer.zero_grad()",
            ),
        ),
        caught_by=("test_end_to_end.py::test_what_becomes_of_the_tail_does_not_depend_on_micro_batches[carry]",),
    ),
}


@dataclass(frozen=True)
class Copy:
    """A copy of the package in a folder of its own, which comes before the installed one."""

    folder: Path
    tests: Path

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / "visiontrain" / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} holds {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Not in the checkout: `python -m` puts the folder that it is started in before all others.
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    def pytest(self, *names: str) -> subprocess.CompletedProcess[str]:
        settings = ("-c", str(self.tests.parent / "pyproject.toml"), "--rootdir", str(self.tests.parent))
        nodes = [str(self.tests / name) for name in names]
        return self.python("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *settings, *nodes)


@pytest.fixture
def copy(tmp_path, repository) -> Copy:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(repository / "visiontrain", tmp_path / "visiontrain", ignore=ignored)
    shutil.copytree(repository / "cfg", tmp_path / "visiontrain" / "cfg", ignore=ignored)
    return Copy(tmp_path, repository / "tests")


@pytest.mark.slow
def test_without_a_fault_the_tests_pass_and_it_is_the_copy_that_they_test(copy):
    found = copy.python("-c", "import visiontrain, visiontrain.cfg as cfg; print(visiontrain.__file__, cfg.__file__)")
    assert [Path(path).is_relative_to(copy.folder) for path in found.stdout.split()] == [True, True]
    done = copy.pytest(*(name for mutation in MUTATIONS.values() for name in mutation.caught_by))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", MUTATIONS)
def test_there_is_code_to_put_the_fault_into(copy, name):
    for edit in MUTATIONS[name].edits:
        copy.edit(*edit)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_tests_fail_where(copy, name):
    for edit in MUTATIONS[name].edits:
        copy.edit(*edit)
    done = copy.pytest(*MUTATIONS[name].caught_by)
    assert done.returncode == 1, done.stdout + done.stderr
    # By what a test asserts: an error in the edited line itself would prove nothing.
    assert re.search(r": AssertionError$", done.stdout, re.MULTILINE), done.stdout
