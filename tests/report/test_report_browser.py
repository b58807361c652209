"""The page in a real Chromium: narrow and wide, light and dark, with and without scripts, under hostile text."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_builders import make_run, row, turn
from test_report_page import hostile_run

from rolecall.report import write_comparison, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """A function that opens a file; the test fails on any error, or on any request but that for the file."""
    contexts, troubles = [], []

    def opened(path: Path, width: int = 1400, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: troubles.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    turns = [turn("a", "solver", "x" * 3000), turn("b", "verifier", "fine", about="a")]
    return write_report(make_run(tmp_path / "demo", episodes=[row("w", turns=turns), row("l", won=False)]))


@pytest.mark.parametrize("width", [320, 380, 800, 1400])
def test_nothing_is_wider_than_the_window(open_page, page_file, width):
    page = open_page(page_file, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [380, 1400])
def test_several_runs_fit_the_window_too(open_page, tmp_path, width):
    folders = [make_run(tmp_path / f"a-run-with-a-rather-long-name-{i}") for i in range(6)]
    page = open_page(write_comparison(folders, tmp_path / "page.html"), width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_text_of_a_chart_keeps_its_size_on_a_narrow_screen(open_page, page_file):
    for width in (380, 1400):
        page = open_page(page_file, width)
        height = page.evaluate("document.querySelector('.chart .tick').getBoundingClientRect().height")
        assert 9 <= height <= 18


def test_light_and_dark_follow_the_system_and_text_stands_out(open_page, page_file):
    contrast = """() => {
      const rgb = (c) => c.match(/[0-9.]+/g).slice(0, 3).map((v) => {
        v = v / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
      const light = (c) => { const [r, g, b] = rgb(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const found = {paper, least: 99};
      const names = [".lead", ".passed p", ".legend span", ".role h3", "text", ".change", "td small", "footer"];
      for (const name of names)
        for (const element of document.querySelectorAll(name)) {
          const style = getComputedStyle(element);
          const ink = light(element instanceof SVGElement ? style.fill : style.color);
          found.least = Math.min(found.least, (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05));
        }
      return found; }"""
    seen = {s: open_page(page_file, color_scheme=s).evaluate(contrast) for s in ("light", "dark")}
    assert seen["light"]["paper"] > 0.8
    assert seen["dark"]["paper"] < 0.05
    assert min(one["least"] for one in seen.values()) >= 4.5


def test_values_show_under_the_pointer_and_by_the_arrow_keys(open_page, page_file):
    page = open_page(page_file)
    chart = page.locator("figure.chart", has_text="Mean over the turns of a role").first
    chart.scroll_into_view_if_needed()
    box = chart.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    tip = chart.locator(".tip")
    assert tip.inner_text().startswith("step 8")
    assert "80.0" in tip.inner_text()
    page.mouse.move(2, 2)
    assert tip.count() == 0
    chart.focus()
    page.keyboard.press("ArrowLeft")
    assert tip.inner_text().startswith("step 8")
    page.keyboard.press("ArrowLeft")
    assert tip.inner_text().startswith("step 7")
    page.keyboard.press("Escape")
    assert tip.count() == 0


def test_a_tip_stays_inside_a_narrow_window(open_page, page_file):
    page = open_page(page_file, 380)
    chart = page.locator("figure.chart").nth(1)
    chart.scroll_into_view_if_needed()
    box = chart.locator(".plot").bounding_box()
    for share in (0.02, 0.5, 0.98):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 30)
        tip = chart.locator(".tip").bounding_box()
        assert tip["x"] >= 0
        assert tip["x"] + tip["width"] <= 380


def test_without_scripts_everything_is_there(open_page, page_file):
    page = open_page(page_file, java_script_enabled=False)
    for words in ("The team learned", "Share of gradient mass", "training, step 1: won"):
        assert page.get_by_text(words).first.is_visible()
    page.get_by_text("checks passed").first.click()
    assert page.get_by_text("Episodes came to an end").is_visible()


def test_hostile_text_does_nothing(open_page, tmp_path):
    page = open_page(write_report(hostile_run(tmp_path / "demo")))
    assert page.evaluate("window.hacked") is None
    assert page.title() == "demo · rolecall report"
    assert page.get_by_text("window.hacked=1").first.is_visible()


def test_every_chart_has_a_name_and_a_description(open_page, page_file):
    page = open_page(page_file)
    names = page.evaluate("[...document.querySelectorAll('svg[role=img]')].map((s) => s.getAttribute('aria-label'))")
    assert len(names) > 10
    assert all(names)


def test_links_of_the_sections_lead_somewhere(open_page, page_file):
    page = open_page(page_file)
    missing = "[...document.querySelectorAll('nav a')].filter((a) => !document.querySelector(a.getAttribute('href')))"
    assert page.evaluate(f"{missing}.length") == 0
    assert page.locator("nav a").count() >= 7
