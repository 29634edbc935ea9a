"""binder/: pins and scripts checked quickly; its steps really run in a clean clone (slow)."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
import venv
from importlib.metadata import distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"
LOOP = """
from workbench import Session
with Session.create("relu", executor="emulator") as session:
    version = session.generate()
    assert version.trials[-1].verdict.correct, version.trials[-1].verdict
    print("accepted", session.accept().number)
"""


def pins() -> dict[str, str]:
    lines = [
        line for line in (BINDER / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")
    ]
    parts = [line.partition("==") for line in lines]
    assert all(re.fullmatch(r"[\w.+-]+", version) for _, _, version in parts), "every line is name==version"
    return {canonicalize_name(name): version for name, _, version in parts}


def direct() -> list[Requirement]:
    """What the workbench and its tests need, the extras that the tests name included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = [Requirement(text) for text in [*project["dependencies"], *extras["test"]]]
    own = [one for one in found if one.name == project["name"]]
    named = [Requirement(text) for one in own for extra in sorted(one.extras) for text in extras[extra]]
    return [*(one for one in found if one not in own), *named]


@pytest.mark.parametrize("requirement", direct(), ids=lambda found: found.name)
def test_every_direct_dependency_is_pinned_to_a_version_that_fits(requirement: Requirement) -> None:
    version = pins().get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not in binder/constraints.txt"
    assert requirement.specifier.contains(version, prereleases=True)


def test_the_locks_hold_what_their_packages_need() -> None:
    found = {}
    for name in ("requirements.lock", "requirements-test.lock"):
        lines = [line.partition("==")[0] for line in (BINDER / name).read_text().splitlines() if "==" in line]
        locked = {canonicalize_name(line.partition("[")[0]) for line in lines}
        for one in locked & {canonicalize_name(dist.name) for dist in distributions()}:
            needs = [Requirement(text) for text in requires(one) or ()]
            found |= {
                (name, need.name): one
                for need in needs
                if canonicalize_name(need.name) not in {*locked, "torch", "nvidia-cutlass"}
                and (need.marker is None or need.marker.evaluate({"extra": ""}))
            }
    assert not found, "binder/lock leaves these out: pin them in binder/constraints.txt"


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_scripts_are_executable_bash(name: str) -> None:
    path = BINDER / name
    assert os.access(path, os.X_OK) and path.read_text().startswith("#!/bin/bash\n")
    subprocess.run(["bash", "-n", path], check=True)


def test_start_hands_over_to_its_command() -> None:
    told = subprocess.run(
        [BINDER / "start", "sh", "-c", 'echo "$OMP_NUM_THREADS $1"', "sh", "two words"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "1 two words\n"


def test_environment_has_python_torch_and_pip() -> None:
    found = yaml.safe_load((BINDER / "environment.yml").read_text())
    names = {re.split(r"[=<> ]", item)[0] for item in found["dependencies"]}
    assert names == {"python", "pytorch-cpu", "pip"}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_steps_run_in_a_clean_clone(tmp_path: Path) -> None:
    """Clone, new environment, postBuild, start: one kernel is written, compiled, emulated, checked and accepted."""
    clone, home = tmp_path / "clone", tmp_path / "env"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    venv.create(home, with_pip=True)
    path = f"{home}/bin{os.pathsep}{os.environ['PATH']}"
    keep = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in ("HOME", "LANG")}
    environment = {**keep, "PATH": path, "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    subprocess.run(["binder/postBuild"], cwd=clone, env=environment, check=True, timeout=1200)
    ran = subprocess.run(
        ["binder/start", "python", "-c", LOOP], cwd=clone, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0 and "accepted 1" in ran.stdout, ran.stderr[-3000:]
    assert (home / "share/jupyter/lab/settings/overrides.json").exists()


@pytest.mark.parametrize(("lock", "has_tools"), [("requirements.lock", False), ("requirements-test.lock", True)])
def test_the_locks_have_hashes_for_the_pinned_versions_of_all_direct_dependencies(lock: str, has_tools: bool) -> None:
    found = {}
    for entry in (BINDER / lock).read_text().replace("\\\n", "").splitlines():
        requirement, *hashes = entry.split("--hash=")
        name, _, version = requirement.strip().partition("==")
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", one) for one in hashes), name
        found[canonicalize_name(name)] = version
    assert {name: pins()[name] for name in found} == found
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = direct() if has_tools else [Requirement(text) for text in project["dependencies"]]
    names = {canonicalize_name(one.name) for one in needed}
    assert names - set(found) <= {"torch", "nvidia-cutlass", "nvidia-matmul-heuristics"}
