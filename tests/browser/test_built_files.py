"""The committed JavaScript was built from the committed sources, is small, has no maps, and names no other host."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PANEL, LAB = ROOT / "extensions/panel", ROOT / "extensions/cutegen-lab"
STATIC, BUILT = ROOT / "workbench/views/notebook/static", LAB / "cutegen_lab/labextension"
ALLOWED_HOSTS = {"www.w3.org"}  # the name of the SVG namespace; nothing is fetched from it


def sources_hash(folder: Path, *parts: str) -> str:
    """SHA-256 as the build scripts compute it: name, NUL, content, NUL of each source, sorted by name."""
    names = [
        "build.mjs",
        "package.json",
        "tsconfig.json",
        *(f"{part}/{path.name}" for part in parts for path in (folder / part).iterdir()),
    ]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0".encode() + (folder / name).read_bytes() + b"\0")
    return digest.hexdigest()


@pytest.mark.parametrize("name", ["panel.js", "panel.css"])
def test_panel_is_built_from_its_sources(name: str) -> None:
    first = (STATIC / name).read_text().splitlines()[0]
    assert sources_hash(PANEL, "src") in first, "stale: npm run build in extensions/panel"


def test_lab_extension_is_built_from_its_sources() -> None:
    recorded = json.loads((BUILT / "build.json").read_text())["sources_sha256"]
    assert recorded == sources_hash(LAB, "src", "style", "schema"), "stale: jlpm build in extensions/cutegen-lab"


NO_NODE = not (PANEL / "node_modules/.bin/esbuild").exists() or not shutil.which("node")


@pytest.mark.skipif(NO_NODE, reason="extensions/panel/node_modules is not installed; the hash test covers it")
def test_panel_rebuilds_to_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run(
        ["node", "build.mjs", str(tmp_path)], cwd=PANEL, check=True, timeout=60, env={"PATH": os.environ["PATH"]}
    )
    for name in ("panel.js", "panel.css"):
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes()


def test_built_files_are_small_and_complete() -> None:
    files = [path for path in BUILT.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 200_000
    assert (STATIC / "panel.js").stat().st_size < 100_000
    assert not [path for path in files if path.suffix == ".map"]
    package = json.loads((BUILT / "package.json").read_text())
    assert (BUILT / package["jupyterlab"]["_build"]["load"]).exists()
    assert (BUILT / "schemas/cutegen-lab/plugin.json").read_text() == (LAB / "schema/plugin.json").read_text()


def test_front_ends_name_no_other_host() -> None:
    hosts = set()
    for path in [
        *STATIC.iterdir(),
        *BUILT.rglob("*.js"),
        *LAB.glob("*.*"),
        *PANEL.glob("*.*"),
        *LAB.glob("src/*"),
        *PANEL.glob("src/*"),
    ]:
        if path.is_file():
            hosts |= set(re.findall(r"https?://([\w.-]+)", path.read_text()))
    assert hosts <= ALLOWED_HOSTS


def test_wheel_carries_the_built_extension() -> None:
    import tomllib

    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"] == {str(BUILT.relative_to(ROOT)): "share/jupyter/labextensions/cutegen-lab"}


@pytest.mark.slow
def test_jupyterlab_says_that_the_extension_fits_it(tmp_path: Path) -> None:
    (tmp_path / "labextensions").mkdir()
    (tmp_path / "labextensions/cutegen-lab").symlink_to(BUILT)
    command = [sys.executable, "-m", "jupyterlab.labextensions", "list"]
    told = subprocess.run(
        command,
        env={**os.environ, "JUPYTER_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = [
        re.sub(r"\x1b\[\d+m", "", line).split()
        for line in (told.stdout + told.stderr).splitlines()
        if "cutegen-lab v" in line
    ]
    assert [line[2:4] for line in lines] == [["enabled", "OK"]]
