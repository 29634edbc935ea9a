"""A real Jupyter server on loopback with its own folders, and headless Chromium, shared by all browser tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labserver import ROOT, TOKEN, Server, folders, free_port, reset_theme, shutdown_kernels, wait_for_server

ARTEFACTS = ROOT / "artefacts"
CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"browser", "browser_page"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("jupyter")
    root = base / "notebooks"
    root.mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={url.rpartition(':')[2]}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}",
        f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True",
    ]
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
    """A page on the server, light at first; the test fails if the page asks anything of another host."""
    reset_theme(server)
    context = browser.new_context(viewport={"width": 1500, "height": 2000}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(60_000)
    outside: list[str] = []
    page.on(
        "request",
        lambda request: None if request.url.startswith((server.url, "data:", "blob:")) else outside.append(request.url),
    )
    yield page
    shutdown_kernels(server)
    context.close()
    assert outside == [], f"requests that left the machine: {outside}"


@pytest.fixture(scope="session")
def artefacts() -> Path:
    """Where screenshots and measurements are kept (git ignores it)."""
    ARTEFACTS.mkdir(exist_ok=True)
    return ARTEFACTS
