"""The viewer clicked through in a real Chromium: what a person does, with a mouse and with the keyboard alone."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from pathlib import Path

import pytest
from viewer_runs import EPISODES, METRICS, add_step, episode_row, finish, make_run, write

from rolecall.viewer.app import make_app
from rolecall.viewer.runs import Root
from rolecall.viewer.serve import hosts, listen

uvicorn = pytest.importorskip("uvicorn")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
EPISODE = "sum:3:0/s3/0"
ADDRESS = f"/episode?run=one&id={EPISODE}"
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (chromium, chromium-browser, google-chrome)"),
]


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Served:
    """The viewer over a folder, in a thread."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.listener = listen(port)
        port = self.listener.getsockname()[1]
        self.home = f"http://127.0.0.1:{port}"
        app = make_app(Root(folder), hosts=hosts(port))
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=10)
        self.listener.close()


@pytest.fixture
def served():
    started = []

    def serve(folder: Path) -> str:
        started.append(Served(folder))
        return started[-1].home

    yield serve
    for one in started:
        one.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two runs: one finished, one that has not come to its end."""
    root = tmp_path_factory.mktemp("runs")
    finish(make_run(root / "one", steps=3), 3)
    make_run(root / "two", steps=2, seed=1, of=9)
    served = Served(root)
    yield served.home
    served.close()


@pytest.fixture
def open_page(chromium):
    """`open_page(address, width, scheme)`: a page that fails the test when it logs an error or breaks its policy."""
    contexts, troubles = [], []

    def start(address: str, *, width: int = 1300, scheme: str = "light", allow: str = "$never"):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda m: m.type == "error" and not re.search(allow, m.text) and troubles.append(m.text))
        page.goto(address)
        shown(page)
        return page

    yield start
    for context in contexts:
        context.close()
    assert troubles == []


def shown(page):
    """Wait until a page stands."""
    page.wait_for_selector("main[data-shown]")
    until(page, "!document.querySelector('main > .wait')")


def until(page, expression):
    """Wait until an expression holds; `wait_for_function` would evaluate text in the page, which its policy forbids."""
    deadline = time.monotonic() + 20
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never came true: {expression}"
        page.wait_for_timeout(50)


def text(page, selector):
    return page.locator(selector).first.inner_text()


def test_from_the_list_of_runs_to_a_token_and_back(home, open_page):
    page = open_page(home)
    assert page.locator(".run").count() == 2
    assert "finished" in text(page, '[data-run="one"] .status')
    assert "running" in text(page, '[data-run="two"] .status')
    page.wait_for_selector('[data-run="one"] .spark path')
    page.click('[data-run="one"] .name a')
    page.wait_for_selector(".chart .line")
    page.click(".tabs a:has-text('Steps')")
    page.click("tr[data-step='3'] a")
    page.wait_for_selector(".tasks .dots")
    assert page.locator(".tasks .dots .mark").count() == 8
    page.click(".tasks .dots a >> nth=0")
    page.wait_for_selector(".turncard")
    assert page.locator(".turncard").count() == 3
    assert page.locator(".lane h2").all_inner_texts() == ["solver", "verifier", "corrector"]
    page.click(".turncard[data-turn$='corrector:0'] button:has-text('Tokens')")
    page.wait_for_selector(".token.trained")
    page.hover(".tokens .token.trained >> nth=0")
    assert re.search(r"token 1 id 20 .* p .* · log p .* · version 2 · trained", text(page, ".readout"))
    page.go_back()
    page.wait_for_selector(".tasks .dots")


def test_edges_run_from_each_turn_to_the_turn_about_it_wide_and_narrow(home, open_page):
    for width in (1300, 380):
        page = open_page(home + ADDRESS, width=width)
        page.wait_for_selector(".edge")
        edges = [(e.get_attribute("data-from"), e.get_attribute("data-to")) for e in page.locator(".edge").all()]
        assert edges == [
            (f"{EPISODE}/solver:0", f"{EPISODE}/verifier:0"),
            (f"{EPISODE}/verifier:0", f"{EPISODE}/corrector:0"),
        ]
        for edge, (start, end) in zip(page.locator(".edge").all(), edges, strict=True):
            path, source, target = edge.bounding_box(), box(page, start), box(page, end)
            assert source["y"] <= path["y"] <= source["y"] + source["height"] + 1
            assert abs(path["y"] + path["height"] - target["y"]) < (5 if width > 700 else 40)


def box(page, turn):
    return page.locator(f".turncard[data-turn='{turn}']").bounding_box()


def test_a_correction_shows_what_it_changed(home, open_page):
    page = open_page(home + ADDRESS)
    page.click(".turncard[data-turn$='corrector:0'] button:has-text('Changes')")
    page.wait_for_selector(".diff ins")
    assert (text(page, ".diff del"), text(page, ".diff ins")) == ("11", "12")
    assert page.locator(".turncard[data-turn$='solver:0'] button:has-text('Changes')").count() == 0


def test_a_turn_shows_reward_advantage_verdict_versions_and_stop(home, open_page):
    page = open_page(home + ADDRESS)
    solver, verifier = (
        page.locator(f".turncard[data-turn$='{role}:0']").inner_text() for role in ("solver", "verifier")
    )
    for words in ("answer 11", "wrong", "reward 0.00", "adv", "shared, version 2", "12 → 7 tokens", "ended by itself"):
        assert words in solver
    assert "verdict wrong ✓ rightly" in verifier
    assert "reward 1.00 = correct 1.00" in verifier


def test_the_address_holds_the_filter_and_the_open_panel(home, open_page):
    page = open_page(home + "/episodes?run=one")
    page.select_option("label:has-text('Role that acted') select", "corrector")
    until(page, "document.querySelectorAll('.item').length === 6")
    page.fill("input[aria-label='Steps, from']", "3")
    until(page, "document.querySelectorAll('.item').length === 2")
    assert "role=corrector" in page.url
    assert "step_min=3" in page.url
    page.reload()
    until(page, "document.querySelectorAll('.item').length === 2")
    page.click(".item .question >> nth=0")
    page.wait_for_selector(".turncard")
    page.click(".turncard[data-turn$='verifier:0'] button:has-text('Prompt')")
    page.wait_for_selector(".message pre")
    again = open_page(page.url)
    again.wait_for_selector(".message pre")
    assert text(again, ".message pre") == "Check 7+5"
    again.click(".pager a:has-text('next')")
    until(again, "location.search.includes('sum%3A3%3A1')")


def test_text_search_says_when_nothing_matches(home, open_page):
    page = open_page(home + "/episodes?run=one")
    page.fill("input[type=search]", "no such words")
    page.wait_for_selector(".count:has-text('No episode matches')")
    page.click("summary:has-text('Filter')")
    assert page.locator(".item").count() == 0


def test_the_keyboard_alone_reaches_an_episode_and_its_tokens(home, open_page):
    page = open_page(home)
    page.wait_for_selector(".run")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".chart")
    for key in "ge":
        page.keyboard.press(key)
    page.wait_for_selector(".item")
    page.keyboard.press("/")
    page.keyboard.type("Verdict: wrong")
    until(page, "document.querySelectorAll('.item').length === 6")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".turncard")
    page.keyboard.press("j")
    page.keyboard.press("w")
    page.wait_for_selector(".turncard[data-turn$='solver:0'] .token")
    page.keyboard.press("n")
    until(page, "location.search.includes('sum%3A3%3A1')")
    page.keyboard.press("?")
    assert page.locator("dialog[open] kbd").count() > 10
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_selector(".item")
    assert "text=Verdict" in page.url


def test_arrow_keys_move_along_a_chart_and_all_charts_follow(home, open_page):
    page = open_page(home + "/curves?run=one")
    page.wait_for_selector(".chart .line")
    page.locator(".canvas").first.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    steps = set(page.locator(".area[open] .legend .step").all_inner_texts())
    assert steps == {"step 2"}
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Step 2')")


def test_runs_are_picked_and_laid_over_each_other(home, open_page):
    page = open_page(home)
    for name in ("one", "two"):
        page.check(f"[data-run='{name}'] input")
    page.click(".pickbar .button")
    page.wait_for_selector(".chart .line")
    assert "run=one&run=two" in page.url
    until(page, "[...document.querySelectorAll('.legend .who')].some((e) => e.textContent === 'two')")
    page.uncheck(".overlay label:has-text('two') input")
    until(page, "!location.search.includes('two')")


def test_metrics_are_filtered_by_words(home, open_page):
    page = open_page(home + "/curves?run=one")
    page.fill("#keys", "verifier grad")
    until(page, "document.querySelectorAll('.chart').length === 1")
    assert text(page, ".chart figcaption") == "dynamics · grad_norm"
    assert "keys=verifier+grad" in page.url


def test_alarms_stand_above_the_curves_in_the_words_of_the_run(tmp_path, served, open_page):
    run = make_run(tmp_path / "loud", steps=3)
    words = "clip_high, solver: 40% clipped (usual: <b>few</b>). lower lr"
    alarm = {"key": "clip_high", "subject": "solver", "step": 2, "seen": "", "usual": "", "move": "", "text": words}
    (run / "alarms.json").write_text(json.dumps({"alarms": [alarm]}))
    page = open_page(f"{served(tmp_path)}/curves?run=loud")
    assert text(page, ".alarms li") == f"step 2: {words} (clip_high still stands.)"
    page.click(".alarms a:has-text('step 2')")
    page.wait_for_selector("h1:has-text('Step 2')")


def test_new_steps_appear_without_a_reload(tmp_path, served, open_page):
    run = make_run(tmp_path / "live", steps=2, of=9)
    home = served(tmp_path)
    steps = open_page(f"{home}/steps?run=live")
    curves = open_page(f"{home}/curves?run=live")
    episodes = open_page(f"{home}/episodes?run=live")
    runs = open_page(home)
    steps.wait_for_selector("tr[data-step='2']")
    curves.wait_for_selector(".legend .step:has-text('step 2')")
    time.sleep(2.5)  # each page has asked once how things stand
    add_step(run, 3)
    steps.wait_for_selector("tr[data-step='3']")
    curves.wait_for_selector(".legend .step:has-text('step 3')")
    runs.wait_for_selector(".status:has-text('3/9')")
    episodes.click("button.fresh:has-text('8 new episodes')")
    episodes.wait_for_selector(".item .where:has-text('step 3')")
    steps.wait_for_selector("#status:has-text('3/9')")


def test_a_run_appears_in_an_empty_folder(tmp_path, served, open_page):
    page = open_page(served(tmp_path))
    assert "There is no run folder" in text(page, ".empty")
    time.sleep(2)
    make_run(tmp_path / "first", steps=1)
    page.wait_for_selector("[data-run='first']")


def test_hostile_text_is_shown_as_text(tmp_path, served, open_page):
    run = make_run(tmp_path / "bad", steps=0, of=1)
    config = run / "config.toml"
    config.write_text(config.read_text().replace('name = "bad"', f"name = '''{HOSTILE}'''"))
    texts = {"solver": HOSTILE, "verifier": "</pre></article><b>bold</b>", "corrector": "{{7*7}} ${7*7}"}
    row = episode_row(step=1, task=f"t{HOSTILE}", index=0, wrong=True, question=HOSTILE, texts=texts)
    write(run / "episodes" / "00000001-00000001.parquet", [row | {"answer": HOSTILE}], EPISODES)
    metrics = [{"step": 1, "key": f"reward/{HOSTILE}/total", "value": 1.0}]
    write(run / "metrics" / "00000001-00000001.parquet", metrics, METRICS)
    home = served(tmp_path)
    page = open_page(f"{home}/episodes?run=bad")
    assert text(page, ".item .question") == HOSTILE
    page.click(".item .question")
    page.wait_for_selector(".turncard")
    assert text(page, ".turncard .said") == HOSTILE
    page.click(".turncard[data-turn$='corrector:0'] button:has-text('Changes')")
    page.wait_for_selector(".diff pre")
    assert HOSTILE in page.locator(".diff del").all_inner_texts()[0] or "img" in page.locator(".diff").inner_text()
    for path in ("/", "/curves?run=bad", "/steps?run=bad", "/steps?run=bad&step=1", "/config?run=bad"):
        page.goto(home + path)
        shown(page)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script").count() == 0


def test_what_is_not_there_has_a_page_that_says_so(home, open_page):
    page = open_page(f"{home}/episode?run=one&id=zzz", allow="404")
    assert text(page, "h1") == "Not found"
    assert "there is no episode 'zzz' among the 24 of 'training' in this run" in text(page, ".words").lower()
    page.click("a:has-text('Episodes of one')")
    page.wait_for_selector(".item")
    page = open_page(f"{home}/curves?run=three", allow="404")
    assert "runs there: one, two" in text(page, ".words")


def test_a_truncated_file_is_named_above_what_can_be_shown(tmp_path, served, open_page):
    run = make_run(tmp_path / "cut", steps=3)
    for kind in ("metrics", "episodes"):
        broken = run / kind / "00000002-00000002.parquet"
        broken.write_bytes(broken.read_bytes()[:300])
    page = open_page(f"{served(tmp_path)}/episodes?run=cut")
    assert "2 files of this run have a problem; the rest is shown" in text(page, ".problems summary")
    assert "episodes/00000002-00000002.parquet cannot be read" in text(page, ".problems ul")
    assert "1 to 16 of 16 episodes" in text(page, ".count")


def test_a_server_that_is_gone_is_said_and_found_again(tmp_path, open_page):
    run = make_run(tmp_path / "run", steps=1, of=3)
    server = Served(tmp_path)
    page = open_page(f"{server.home}/steps?run=run", allow="ERR_CONNECTION")
    server.close()
    page.wait_for_selector(".live.lost:has-text('not connected')")
    add_step(run, 2)
    again = Served(tmp_path, int(server.home.rsplit(":", 1)[1]))
    page.wait_for_selector(".live:not(.lost)")
    page.wait_for_selector("tr[data-step='2']")
    again.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_narrow_window_in_either_colour(home, open_page, scheme):
    for path in (
        "/",
        "/curves?run=one",
        "/steps?run=one",
        "/steps?run=one&step=3",
        "/episodes?run=one",
        ADDRESS,
        "/config?run=one",
    ):
        page = open_page(home + path, width=380, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= 380, path
        red = int(re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[0])
        assert (red < 60) == (scheme == "dark")
        page.context.close()


def test_the_reader_may_choose_the_colours(home, open_page):
    page = open_page(home, scheme="light")
    page.keyboard.press("t")
    page.keyboard.press("t")
    page.reload()
    shown(page)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
