"""The page as a whole: one file that loads nothing, whatever text and whatever folder it is made from."""

from __future__ import annotations

import html.parser
import json
import re
import subprocess
import sys
import time

import pytest
from report_builders import (
    estimate,
    make_run,
    row,
    turn,
    usual_metrics,
    write_metrics,
    write_rows,
)

from rolecall.errors import UsageError
from rolecall.report import make_page, write_comparison, write_report
from rolecall.report.read import read_run

VOID = {"meta", "link", "img", "br", "input", "hr"}
HOSTILE = (
    "</pre></style><script>window.hacked=1</script><img src=x onerror='hacked=1'>"
    "\x00\x1b[31m\u202egnihton\u2066\ud800 \" ' & ${7*7} {{7*7}} %s"
)


class Outline(html.parser.HTMLParser):
    """Every tag with its attributes; asserts that tags are closed in the order in which they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def hostile_run(path):
    turns = [
        turn("a", "solver", HOSTILE, messages=[{"role": HOSTILE, "content": HOSTILE}, {"role": "u", "content": "x"}])
    ]
    rows = [row(HOSTILE.replace("\ud800", ""), task="<b>t</b>", turns=turns)]
    config = {"name": "</title><script>1</script>", "note": "<img src=x>"}
    return make_run(path, episodes=rows, config=config)


def test_a_page_is_well_formed_and_loads_nothing_from_outside(tmp_path):
    page = write_report(make_run(tmp_path / "demo", episodes=[row("e1")])).read_text()
    outline = Outline(page)
    for tag, attributes in outline.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
        for name, value in attributes.items():
            assert name not in ("src", "srcset", "data", "action", "formaction"), (tag, name)
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "xlink:href"):
                assert value.startswith("#"), value
    assert "url(" not in page
    assert "@import" not in page


def test_hostile_text_is_shown_and_never_becomes_markup(tmp_path):
    page = write_report(hostile_run(tmp_path / "demo")).read_text(encoding="utf-8")
    outline = Outline(page)
    assert sum(tag == "script" for tag, _ in outline.tags) == 1
    assert not any(tag in ("img", "b") and attributes for tag, attributes in outline.tags)
    assert "<script>window.hacked=1</script>" in outline.text
    for code in ("\x00", "\x1b", "\u202e", "\u2066"):
        assert code not in page
    assert "⟨U+202E⟩" in outline.text
    assert "${7*7} {{7*7}} %s" in outline.text


def test_text_of_an_episode_cannot_run_even_if_it_were_markup(tmp_path):
    page = make_page([make_run(tmp_path / "demo")])
    policy = next(a["content"] for tag, a in Outline(page).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_a_megabyte_completion_is_cut_with_a_note_that_says_how_much(tmp_path):
    long = "a" * 1_000_000 + "THE END"
    rows = [row("e1", turns=[turn("a", "solver", long, messages=[{"role": "user", "content": long}])])]
    page = make_page([make_run(tmp_path / "demo", episodes=rows)])
    assert len(page) < 200_000
    assert "996,007 characters left out" in page
    assert page.count("THE END") == 2


@pytest.mark.parametrize(
    ("after", "words"),
    [(0.5, "No role is right more or less often than before."), (0.9, "moved most: +40.0 points (verifier +40.0, ")],
)
def test_the_first_sentence_names_a_role_that_moved_only_when_one_did(tmp_path, after, words):
    page = make_page([make_run(tmp_path / "demo", before=0.5, after=after)])
    assert words in re.sub("<[^>]*>", "", page.partition('class="lead">')[2].partition("</p>")[0])


def test_an_unfinished_run_is_drawn_and_says_so(tmp_path):
    folder = make_run(tmp_path / "demo", after=None, episodes=[row("e1")])
    text = Outline(make_page([folder])).text
    assert "no summary yet" in text
    assert "Step 8 of 8: the folder has no summary.json" in text
    assert "So far the team went from" in text


def test_a_run_that_has_only_its_configuration_still_has_a_page(tmp_path):
    folder = make_run(tmp_path / "demo", metrics={}, before=None, after=None)
    text = Outline(make_page([folder])).text
    assert "No step is finished yet" in text
    assert "No reward is recorded yet." in text


@pytest.mark.parametrize("where", ["metrics", "episodes", "evaluations"])
def test_a_truncated_parquet_file_is_named_on_the_page_and_the_rest_is_drawn(tmp_path, where):
    folder = make_run(
        tmp_path / "demo", episodes=[row("e1")], evaluations={"before": [row("b")], "after": [row("a", won=False)]}
    )
    name = {"metrics": "00000003-00000003", "episodes": "00000001-00000001", "evaluations": "after"}[where]
    broken = folder / where / f"{name}.parquet"
    broken.write_bytes(broken.read_bytes()[:-20])
    text = Outline(make_page([folder])).text
    assert f"{where}/{name}.parquet cannot be read and is left out" in text
    assert "The team learned" in text


def test_a_file_of_another_kind_among_the_parquet_files_is_named(tmp_path):
    folder = make_run(tmp_path / "demo")
    (folder / "metrics" / "00000009-00000009.parquet").write_text("not parquet")
    write_rows(folder / "metrics" / "00000010-00000010.parquet", [{"step": 10, "other": 1.0}])
    problems = " ".join(read_run(folder).problems)
    assert "00000009-00000009.parquet" in problems
    assert "00000010-00000010.parquet" in problems


@pytest.mark.parametrize("name", ["summary.json", "environment.json", "evaluation_before.json"])
@pytest.mark.parametrize("content", ["{", "[1, 2]", "null", ""])
def test_a_broken_json_file_is_named_and_the_page_is_made(tmp_path, name, content):
    folder = make_run(tmp_path / "demo", episodes=[row("e1")])
    (folder / name).write_text(content)
    assert f"{name} " in Outline(make_page([folder])).text


def test_a_folder_that_is_not_a_run_is_one_clear_message(tmp_path):
    with pytest.raises(UsageError, match=r"is not a run folder \(no config.toml in it\); give the folder of a run"):
        make_page([tmp_path])
    with pytest.raises(UsageError, match="is not a folder"):
        make_page([tmp_path / "nowhere"])
    (tmp_path / "config.toml").write_text("name = [")
    with pytest.raises(UsageError, match="cannot be read"):
        make_page([tmp_path])


def test_a_page_that_cannot_be_written_is_one_clear_message(tmp_path):
    folder = make_run(tmp_path / "demo")
    with pytest.raises(UsageError, match="is a folder"):
        write_comparison([folder], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_comparison([folder], tmp_path / "file" / "page.html")


def test_figures_of_any_kind_leave_the_page_whole(tmp_path):
    metrics = usual_metrics()
    metrics["dynamics/solver/grad_norm"] = {1: float("nan"), 2: float("inf"), 3: 1e300, 4: -1e-300}
    metrics["reward/solver/total"] = dict.fromkeys(range(1, 9), float("nan"))
    metrics["reward/corrector/total"] = {5: 0.5}
    folder = make_run(tmp_path / "demo", metrics=metrics)
    figures = json.loads((folder / "evaluation_after.json").read_text())
    figures["sampled"]["team"] = {**estimate(0.9), "low": None, "high": "much"}
    figures["sampled"]["roles"]["solver"] = None
    (folder / "evaluation_after.json").write_text(json.dumps(figures))
    outline = Outline(make_page([folder]))
    assert "metric values are not finite" in outline.text
    for _, attributes in outline.tags:
        for value in attributes.values():
            assert not value or ("nan" not in value.split() and "inf%" not in value and "nan%" not in value)


def test_records_of_another_shape_are_counted_and_not_shown(tmp_path):
    rows = [row("e1"), {**row("e2", task="t2"), "record": '{"episode": 1}'}]
    rows[0]["record"] = "{broken"
    folder = make_run(tmp_path / "demo", episodes=rows)
    assert "cannot be read" in Outline(make_page([folder])).text


def test_episodes_stand_side_by_side_with_rewards_and_advantages_of_each_turn(tmp_path):
    rows = [
        row(
            name,
            task="t7",
            won=won,
            turns=[turn(f"{name}/s", "solver", "42", claim={"kind": "answer", "value": "42"})],
            rewards={f"{name}/s": {"parts": {"correct": float(won)}, "total": float(won), "team": False}},
            advantages={f"{name}/s": 0.75 if won else -1.25},
        )
        for name, won in (("w", True), ("l", False))
    ]
    text = Outline(make_page([make_run(tmp_path / "demo", episodes=rows)])).text
    assert "training, step 1: won" in text
    assert "training, step 1: lost" in text
    assert "+0.75" in text
    assert "−1.25" in text
    assert "correct 1" in text


def test_the_same_test_task_stands_before_and_after(tmp_path):
    before = [row(f"b{i}", task=f"t{i}", won=i == 1) for i in range(4)]
    after = [row(f"a{i}", task=f"t{i}", won=i != 1) for i in range(4)]
    folder = make_run(tmp_path / "demo", evaluations={"before": before, "after": after})
    text = Outline(make_page([folder])).text
    assert "Lost before, won after: 3 of 4 test tasks" in text
    assert "Won before, lost after: 1 of 4 test tasks" in text


def test_files_left_by_a_kill_while_folding_are_read_once(tmp_path):
    folder = make_run(tmp_path / "demo", metrics={})
    write_metrics(folder, {"reward/team": {1: 0.1, 2: 0.2}})
    whole = folder / "metrics" / "00000001-00000002.parquet"
    write_rows(whole, [{"step": s, "key": "reward/team", "value": v} for s, v in ((1, 0.5), (2, 0.6))])
    series = read_run(folder).series("reward/team")
    assert (series.steps, series.values) == ((1, 2), (0.5, 0.6))


def test_a_run_of_500_steps_is_made_in_seconds_and_stays_small(tmp_path):
    metrics = usual_metrics(500)
    folder = make_run(tmp_path / "demo", metrics={})
    rows = [{"step": s, "key": k, "value": v} for k, by_step in metrics.items() for s, v in by_step.items()]
    write_rows(folder / "metrics" / "00000001-00000500.parquet", rows)
    begun = time.process_time()
    page = make_page([folder])
    assert time.process_time() - begun < 8
    assert len(page.encode()) < 1_000_000


def test_the_report_imports_nothing_of_the_training_side():
    code = (
        "import rolecall.report, rolecall.commands_report, sys;"
        "heavy = {'torch', 'transformers', 'pydantic', 'rolecall.config'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
