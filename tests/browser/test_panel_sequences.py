"""Random sequences of clicks and keys in the panel leave the session as the same calls in Python leave another one.

What a button says before it is pressed is what it does; one that is disabled does nothing, by mouse or by key.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe import serious_violations
from lab import STEP_MS, open_notebook, run_all, write_notebook

from workbench import Session, problems
from workbench.errors import WorkbenchError

MOVES = 12  # of a sequence
SMALL = (("batch_size", 8), ("dim", 64))
ON_EMULATOR = 10  # each tenth sequence; the others are on recorded times, where a version of your own cannot be tested
FIRST = f"""
from pathlib import Path
from workbench import Session, problems
from workbench.views.notebook.panel import Panel

def begin(seed, root):
    global session, panel
    if "session" in globals():
        panel.controller._steps.shutdown()
        session.close()
    if seed % {ON_EMULATOR}:
        session = Session.create("softmax", name=f"s{{seed}}", executor="replay", root=root)
    else:
        problem = problems.load("relu", settings={SMALL!r})
        session = Session.create(problem, name=f"s{{seed}}", executor="emulator", root=root)
    panel = Panel(session)
    return panel

def settle():
    for pool in (panel.controller._steps, panel.controller._decisions, panel.controller._steps):
        pool.submit(int).result()
"""
# Two requests: after the first the kernel sends what it did in the meantime, the second comes back behind that.
SETTLE = """async () => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    await kernel.requestExecute({code: 'settle()', silent: true}).done;
    await new Promise(done => setTimeout(done, 200));
    await kernel.requestExecute({code: 'pass', silent: true}).done;
}"""
LOOK = """() => {
    const panel = document.querySelector('.cutegen-panel');
    const named = (start) => [...panel.querySelectorAll('button')].find(b => b.textContent.startsWith(start));
    const on = (b) => !!b && !b.hidden && b.getAttribute('aria-disabled') !== 'true';
    const state = {};
    for (const name of ['Generate', 'Test', 'Accept', 'Reject', 'Undo'])
        state[name] = on(named(name)) ? named(name).textContent : '';
    state.shown = Number(panel.querySelector('.cg-at-versions button[aria-current]')?.dataset.version ?? 0);
    state.versions = [...panel.querySelectorAll('.cg-at-versions button[data-version]')].map(
        b => [Number(b.dataset.version), [...b.classList].find(c => /^cg-(pending|accepted|rejected)/.test(c))]);
    const taken = [...panel.querySelectorAll('input[data-hunk]')].filter(b => b.checked);
    state.hunks = taken.map(b => Number(b.dataset.hunk));
    state.boxes = panel.querySelectorAll('input[data-hunk]:not(:disabled)').length;
    state.reason = panel.querySelector('[aria-label="Reason for the decision"]').value;
    state.error = panel.querySelector('.cg-status').classList.contains('cg-error');
    return state;
}"""
KEYS = {"Generate": "G", "Accept": "A", "Reject": "R", "Undo": "U"}
BUTTONS = (*KEYS, "Test")
WEIGHTS = {
    "Generate": 6,
    "Test": 1,
    "Accept": 4,
    "Reject": 3,
    "Undo": 3,
    "hunk": 3,
    "select": 2,
    "reason": 2,
    "next": 3,
}


def begin_twin(seed: int, root: Path) -> Session:
    """The session that the calls in Python are made on."""
    if seed % ON_EMULATOR:
        return Session.create("softmax", name=f"s{seed}", executor="replay", root=root)
    return Session.create(problems.load("relu", settings=SMALL), name=f"s{seed}", executor="emulator", root=root)


def call(twin: Session, name: str, before: dict[str, Any]) -> bool:
    """Do in Python what the button says that it does. Returns whether it is refused."""
    shown, reason = before["shown"], before["reason"]
    hunks = before["hunks"] if "hunks" in before["Accept"] else None
    calls: dict[str, Callable[[], object]] = {
        "Generate": lambda: twin.refine("", "planner"),
        "Test": lambda: twin.test(shown),
        "Accept": lambda: twin.accept(shown, hunks=hunks, reason=reason),
        "Reject": lambda: twin.reject(shown, reason=reason),
        "Undo": lambda: twin.undo(),
    }
    try:
        calls[name]()
    except WorkbenchError:
        return True
    return False


def press(page: Any, rng: random.Random, name: str) -> None:
    """A button, by a click or by its key."""
    if name in KEYS and rng.random() < 0.4:
        page.locator(".cutegen-panel .cg-at-versions h3").focus()
        page.keyboard.press(f"Alt+Shift+{KEYS[name]}")
        return
    panel = page.locator(".cutegen-panel")
    button = panel.locator(f"button.cg-{name.lower()}")
    if name not in ("Accept", "Reject", "Undo"):  # their labels change
        button = panel.get_by_role("button", name=name, exact=True)
    button.evaluate("button => button.click()")  # also if it is disabled, for which a person's click does not wait


def move(page: Any, rng: random.Random, twin: Session) -> str:
    """One random move in the browser and the same in Python. Returns the button that had an effect, or ""."""
    before = page.evaluate(LOOK)
    name = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0] if before["versions"] else "Generate"
    refused = False
    if name == "hunk" and before["boxes"]:
        page.locator("input[data-hunk]").nth(rng.randrange(before["boxes"])).click()
    elif name == "select" and before["versions"]:
        number = rng.choice(before["versions"])[0]
        page.locator(f".cg-at-versions button[data-version='{number}']").click()
    elif name == "reason" and before["Reject"]:
        page.get_by_label("Reason for the decision").fill(rng.choice(["faster", "<b>no</b>", "why? \u2013 \u00b5s"]))
    elif name == "next":
        page.locator(".cutegen-panel .cg-at-versions h3").focus()
        page.keyboard.press("Alt+Shift+N")
    elif name in BUTTONS:
        press(page, rng, name)
        refused = call(twin, name, before) if before[name] else False
    page.evaluate(SETTLE)
    after = page.evaluate(LOOK)
    if name in BUTTONS and before[name]:
        assert after["error"] == refused, (name, before, after)
    if name in ("Accept", "Reject") and before[name] and not refused:  # the next key is about no other version
        assert after["shown"] == (len(twin.versions) if "hunks" in before[name] else before["shown"])
    if name == "Undo" and before[name]:
        assert before[name] == f"Undo v{after['shown']}"
    statuses = {
        version.number: version.decision.participle if version.decision else "pending" for version in twin.versions
    }
    assert {number: style.removeprefix("cg-").replace("-", " ") for number, style in after["versions"]} == statuses
    return name if name in BUTTONS and before[name] else ""


def log_of(session: Session) -> list[Any]:
    """Versions, trials and decisions, without times of day."""
    versions = [
        (
            version.number,
            version.parent,
            version.proposal.title,
            version.source_hash,
            [(trial.verdict.correct, trial.verdict.time_s, trial.verdict.speedup) for trial in version.trials],
        )
        for version in session.versions
    ]
    decisions = [(one.version, one.kind, one.reason, one.hunks) for one in session.decisions()]
    return [*versions, *decisions]


def slow(seeds: range) -> Any:
    return pytest.param(seeds, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("seeds", [range(4), *(slow(range(at, at + 28)) for at in range(4, 200, 28))], ids=str)
def test_clicks_and_keys_leave_the_log_that_calls_leave(
    browser_page: Any, server: Any, tmp_path: Path, seeds: range
) -> None:
    page, of_browser = browser_page, tmp_path / "browser"
    again = f"numbers = globals().get('numbers') or iter({seeds!r})\nbegin(next(numbers), {str(of_browser)!r})"
    write_notebook(server.root / "sequences.ipynb", FIRST, again)
    open_notebook(page, server.lab("sequences.ipynb"))
    pressed: set[str] = set()
    for seed in seeds:
        run_all(page)
        page.locator(".cutegen-panel h2", has_text=f"session s{seed}").wait_for(timeout=STEP_MS)
        page.evaluate(SETTLE)
        rng = random.Random(seed)
        with begin_twin(seed, tmp_path / "python") as twin:
            pressed |= {move(page, rng, twin) for _ in range(MOVES)}
            with Session.open(of_browser / f"s{seed}", write=False) as shown:
                assert log_of(shown) == log_of(twin), seed
    assert pressed >= set(KEYS)  # the sequences reached each
    assert serious_violations(page, ".cutegen-panel") == []
