"""Every shipped recording played back on the executor at hand: verdict, time, fraction of the bound, and what differs
from the recording.

python tests/bench/replays.py --out results.json [--executor gpu --arch sm_90a] [--names softmax,layer_norm]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from workbench.session import Session, recording

sys.path.insert(0, str(Path(__file__).parent))
from gpu_loop import row


def main() -> None:
    """Play, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", default="")
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--arch", default="")
    arguments = parser.parse_args()
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True).stdout.strip() if arguments.executor == "gpu" else ""
    document: dict[str, object] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": gpu,
        "executor": arguments.executor,
    }
    played: dict[str, object] = {}
    for name in arguments.names.split(",") if arguments.names else recording.names():
        start = time.perf_counter()
        with (
            tempfile.TemporaryDirectory() as folder,
            Session.create(
                recording.load(name).problem, root=folder, executor=arguments.executor, arch=arguments.arch
            ) as session,
        ):
            differences = session.play(name)
            rows = [row(name, version) for version in session.versions]
        played[name] = {"seconds": time.perf_counter() - start, "differences": differences, "rows": rows}
        arguments.out.write_text(json.dumps({**document, "recordings": played}, indent=1) + "\n")
        print(f"--- {name}: {time.perf_counter() - start:.1f} s; {'; '.join(differences) or 'as recorded'}")
        for one in rows:
            eager = one["speedup_over_eager"]
            print(
                f"  v{one['version']} {'ok ' if one['correct'] else 'BAD'} "
                f"{float(str(one['median_s'] or 0)) * 1e6:10.1f} us  bound "
                f"{100 * float(str(one['fraction_of_bound'] or 0)):5.1f} %  eager/ours {eager or 0:.2f}  "
                f"{one['title']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
