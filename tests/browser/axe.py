"""axe-core on a part of the page."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

RUN = """async (where) => {
    const found = await axe.run(where, {resultTypes: ['violations']});
    const text = n => n.html.slice(0, 200) + ' ' + (n.any[0]?.message ?? '');
    return found.violations.map(v => [v.impact, v.id, v.nodes.map(text)]);
}"""


def serious_violations(page: Any, where: str) -> list[Any]:
    """Serious and critical violations: impact, rule, elements."""
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    page.evaluate(
        "() => { if (!window.axe) { const define = undefined, module = undefined, exports = undefined; "
        f"{script} }} }}"
    )
    return [found for found in page.evaluate(RUN, where) if found[0] in ("serious", "critical")]
