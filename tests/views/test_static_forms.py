"""Static views: HTML that closes what it opens and fetches nothing, numbered hunks, words marked inside a line."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analysis import devices
from workbench.analysis.roofline import RooflinePoint
from workbench.records import Bound
from workbench.views.plots import roofline
from workbench.views.text import diff
from workbench.views.text.mime_bundle import PLOTLY, MimeBundle

VOID = {"col", "meta", "br", "hr"}
OLD = "".join(f"line_{n} = {n}\n" for n in range(30))
NEW = OLD.replace("line_2 = 2\n", "line_2 = 7\n").replace("line_28 = 28\n", "line_28 = 28\nmore = '<b>'\n")


class Balance(HTMLParser):
    """Raises when a tag is closed that is not the last opened one."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name in ("src", "href") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_diff_marks_words_folds_equal_lines_and_escapes() -> None:
    shown = diff.render(OLD, NEW, old_name="v1", new_name="v2", note="seven & <more>")
    Balance(shown.html)
    assert "<script" not in shown.html and "<b>" not in shown.html and 'id="hunk-v1-v2-2"' in shown.html
    assert ">2</del>" in shown.html and ">7</ins>" in shown.html and "equal lines</summary>" in shown.html
    assert "(2 hunks, +2 −1 lines)" in shown.html
    assert "@@ hunk 1: line 3 @@" in shown.text and "+ more = '<b>'" in shown.text and "- line_2 = 2" in shown.text


def test_equal_sources_say_so() -> None:
    assert str(diff.render(OLD, OLD, old_name="v1", new_name="v2")) == "v1 and v2 do not differ"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["a = 1", "b = <2>", "", "  c & d", "é"]), max_size=25),
    st.lists(st.sampled_from(["a = 1", "b = <3>", "", "x"]), max_size=25),
)
def test_every_line_of_both_sides_is_in_the_diff(old: list[str], new: list[str]) -> None:
    shown = diff.render("".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new))
    if old == new:
        assert not shown.html
        return
    text = "".join(Balance(shown.html).text)
    assert all(line in text for line in [*old, *new])


def test_roofline_svg_names_its_lines_and_shares_labels() -> None:
    bound = Bound(
        case="full",
        device="H200",
        flops=10**9,
        least_bytes=10**9,
        peak_flops=6e13,
        bandwidth=4.8e12,
        compute_s=1e-5,
        memory_s=2e-4,
        bound_s=2e-4,
        limited_by="memory",
        intensity=1.0,
        ridge=12.5,
        rates="data sheet",
    )
    points = tuple(
        RooflinePoint(
            version=n,
            title=f"step {n}",
            intensity=1.0,
            rate=rate,
            time_s=1e9 / rate,
            provenance="modelled",
            standing="accepted" if n == 1 else "pending",
        )
        for n, rate in ((1, 1e11), (2, 2e12), (3, 2.01e12))
    )
    svg = roofline.draw_roofline(points, bound, devices.find("H200").copy_bandwidth).svg
    root = ET.fromstring(svg)
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "v1" in texts and "v2, v3" in texts and "ridge 12.5 FLOP/B" in texts
    assert (
        any("data sheet" in (text or "") for text in texts)
        and any("modelled" in (text or "") for text in texts)
        and not any("version, measured" in (text or "") for text in texts)
    )
    assert svg == roofline.draw_roofline(points, bound, devices.find("H200").copy_bandwidth).svg
    assert "rate, problem's FLOPs" in roofline.draw_roofline(points, bound, None).text
    slow = dataclasses.replace(points[0], time_s=250 * bound.bound_s)
    assert " 0.4% " in roofline.draw_roofline((slow,), bound, None).text  # as the verdict says it
    for attainable, is_said in ((4.99e-4, True), (4e-4, False)):  # v3 takes 4.975e-4 s
        caption = roofline.draw_roofline(points, dataclasses.replace(bound, attainable_s=attainable), None).text
        assert ("a modelled time below that is at it, within the model's error" in caption) == is_said


def test_work_without_flops_has_a_roofline_too() -> None:
    bound = Bound(
        case="full",
        device="H200",
        flops=0,
        least_bytes=10**9,
        peak_flops=6e13,
        bandwidth=4.8e12,
        compute_s=0.0,
        memory_s=2e-4,
        bound_s=2e-4,
        limited_by="memory",
        intensity=0.0,
        ridge=12.5,
        rates="data sheet",
    )
    points = tuple(
        RooflinePoint(
            version=n, title="count", intensity=0.0, rate=0.0, time_s=3e-4, provenance="modelled", standing="accepted"
        )
        for n in (1, 2)
    )
    texts = [
        node.text
        for node in ET.fromstring(roofline.draw_roofline(points, bound, None).svg).iter(
            "{http://www.w3.org/2000/svg}text"
        )
    ]
    assert "v1, v2" in texts


def test_text_alone_is_wrapped_between_words() -> None:
    shown = MimeBundle("v1 <accepted>: the baseline is v1")._repr_mimebundle_()
    assert shown["text/plain"] == "v1 <accepted>: the baseline is v1"
    page = str(shown["text/html"])
    Balance(page)
    assert "word-break:normal" in page and "&lt;accepted&gt;" in page
    assert "text/html" not in MimeBundle("a", markdown="*a*")._repr_mimebundle_()


def test_a_figure_is_kept_live_and_as_a_picture_and_not_a_third_time() -> None:
    plot: dict[str, object] = {"data": [{"y": [1, 2]}]}
    assert set(MimeBundle("a", html="<svg/>", svg="<svg/>", plotly=plot)._repr_mimebundle_()) == {
        "text/plain",
        "image/svg+xml",
        PLOTLY,
    }
    assert "text/html" in MimeBundle("a", html="<p>a</p>", plotly=plot)._repr_mimebundle_()
    assert "text/html" in MimeBundle("a", html="<p>a</p>", svg="<svg/>")._repr_mimebundle_()


def test_an_output_is_replaced_by_a_figure_without_plotly_first() -> None:
    """JupyterLab's renderer of plotly keeps the first figure that it drew."""

    class Handle(list[dict[str, object]]):
        def update(self, bundle: dict[str, object], raw: bool) -> None:
            self.append(bundle if raw else {})

    handle = Handle()
    figure = MimeBundle("a", svg="<svg/>", plotly={"data": [{"y": [1, 2]}]})
    figure.replace(handle)
    first, last = handle
    assert PLOTLY not in first and first["image/svg+xml"] == "<svg/>" and last == figure._repr_mimebundle_()
    MimeBundle("text").replace(handle)
    assert handle[2:] == [MimeBundle("text")._repr_mimebundle_()]


def test_a_plot_does_not_depend_on_the_last_bits() -> None:
    one, two = (
        MimeBundle("plot", plotly={"data": [{"x": [value, 3], "name": "a"}]})._repr_mimebundle_()[PLOTLY]
        for value in (1707446900.2506275, 1707446900.2506773)
    )
    assert one == two == {"data": [{"x": [1.70745e9, 3], "name": "a"}]}
