"""A real JupyterLab server on loopback with folders of its own; started, asked and stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOKEN = "browser-tests"
START_S = 60
LIGHT = "JupyterLab Light"


@dataclass
class Server:
    """A running JupyterLab; `root` is the folder that it serves."""

    url: str
    root: Path
    process: subprocess.Popen[bytes]

    def lab(self, path: str, query: str = "reset&") -> str:
        return f"{self.url}/lab/tree/{path}?{query}token={TOKEN}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def folders(base: Path) -> dict[str, str]:
    """The environment of a server whose settings, theme and workspaces are its own, with the tree's lab extension in
    it."""
    jupyter = [f"JUPYTER_{name}_DIR" for name in ("CONFIG", "DATA", "RUNTIME")]
    made = {
        name: str(base / name.lower())
        for name in (*jupyter, "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    }
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


def wait_for_server(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/api?token={TOKEN}", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start; its log ends with: {log.read_text()[-2000:]}")


def api(server: Server, path: str, method: str = "GET", body: Any = None) -> Any:
    """The answer of the REST API, or of JupyterLab's (paths that begin with "lab/"); `body` is sent as JSON."""
    address = f"{server.url}/{path if path.startswith('lab/') else f'api/{path}'}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, method=method, headers={"Authorization": f"token {TOKEN}"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        answer = reply.read()
    return json.loads(answer) if answer else None


def reset_theme(server: Server) -> None:
    """Pages that are opened from now on are light, whatever theme an earlier test chose."""
    path = "lab/api/settings/@jupyterlab/apputils-extension:themes"
    api(server, path, "PUT", {"raw": json.dumps({"theme": LIGHT})})


def shutdown_kernels(server: Server) -> None:
    for kernel in api(server, "kernels"):
        api(server, f"kernels/{kernel['id']}", "DELETE")
