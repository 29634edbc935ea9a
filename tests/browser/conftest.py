"""A real Jupyter server on loopback with its own folders, and headless Chromium, shared by all browser tests."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ARTEFACTS = ROOT / "artefacts"
TOKEN = "browser-tests"
CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
START_S = 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser_page" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(200))


@dataclass
class Server:
    """A running JupyterLab; `root` is the folder that it serves."""

    url: str
    root: Path
    process: subprocess.Popen[bytes]
    errors: list[str] = field(default_factory=list)

    def lab(self, path: str, query: str = "reset&") -> str:
        return f"{self.url}/lab/tree/{path}?{query}token={TOKEN}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def folders(base: Path) -> dict[str, str]:
    """The environment of a server whose settings, theme and workspaces are its own, with the tree's lab extension in it."""
    jupyter = [f"JUPYTER_{name}_DIR" for name in ("CONFIG", "DATA", "RUNTIME")]
    made = {name: str(base / name.lower()) for name in (*jupyter, "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")}
    for path in made.values():
        Path(path).mkdir(parents=True)
    extensions = Path(made["JUPYTER_DATA_DIR"]) / "labextensions"
    extensions.mkdir()
    (extensions / "cutegen-lab").symlink_to(ROOT / "extensions/cutegen-lab/cutegen_lab/labextension")
    settings = Path(made["JUPYTERLAB_SETTINGS_DIR"]) / "@jupyterlab/apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **made, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("jupyter")
    root = base / "notebooks"
    root.mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={url.rpartition(':')[2]}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    with open(base / "server.log", "wb") as log:
        process = subprocess.Popen(command, env=folders(base / "home"), cwd=root, stdout=log, stderr=log)
        try:
            wait_for_server(url, process, base / "server.log")
            yield Server(url=url, root=root, process=process)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for_server(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/api?token={TOKEN}", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start; its log ends with: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        warnings.warn("BROWSER TESTS SKIPPED: no Chromium found; install it (apt-get install chromium)", stacklevel=1)
        pytest.skip("no Chromium found: NOTHING in the browser was tested; install it (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def browser_page(browser: Any, server: Server) -> Iterator[Any]:
    """A page on the server; the test fails if the page asks anything of another host."""
    context = browser.new_context(viewport={"width": 1500, "height": 2000}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(30_000)
    outside: list[str] = []
    page.on("request", lambda request: None if request.url.startswith((server.url, "data:", "blob:")) else outside.append(request.url))
    yield page
    shutdown_kernels(server)
    context.close()
    assert outside == [], f"requests that left the machine: {outside}"


def api(server: Server, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(f"{server.url}/api/{path}", method=method, headers={"Authorization": f"token {TOKEN}"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        body = reply.read()
    return json.loads(body) if body else None


def shutdown_kernels(server: Server) -> None:
    for kernel in api(server, "kernels"):
        api(server, f"kernels/{kernel['id']}", "DELETE")


@pytest.fixture(scope="session")
def artefacts() -> Path:
    """Where screenshots and measurements are kept (git ignores it)."""
    ARTEFACTS.mkdir(exist_ok=True)
    return ARTEFACTS
