"""The episodes of agentic groups are single candidates with the path before them: replay, viewer and report show it."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rolecall.config import RunConfig, make_config, overlay
from rolecall.debugging.episodes import find_episode
from rolecall.debugging.replay import replay_as_recorded, replay_edited
from rolecall.pipeline.candidates import GOES_ON, TOO_LONG
from rolecall.progress import PlainLines
from rolecall.records import GradedEpisode
from rolecall.report.write import write_report
from rolecall.run_folder import RunFolder
from rolecall.train import train
from rolecall.viewer.episodes import Query
from rolecall.viewer.runs import Root
from rolecall.viewer.service import Service

LONG = 24  # verifier prompts have 20 to 28 tokens here


@pytest.fixture(scope="module")
def agentic_run(small_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ticks of a random model: solutions, reports, corrections; two versions of the weights and more."""
    changes = {
        "steps": 4,
        "workflow": {"max_rounds": 2},
        "algorithm": {"name": "marsrl", "n": 3, "k": 2, "stages": 3},
        "schedule": {"mode": "pipeline"},
        "rollout": {"tasks_per_step": 2},
        "tasks": {"grader": "text"},
        "evaluation": {"every_steps": 0},
        "roles": {"verifier": {"sampling": {"max_prompt_tokens": LONG}}},
    }
    data = small_config.model_dump(mode="json", exclude_defaults=True)
    folder = tmp_path_factory.mktemp("runs") / "agentic"
    train(make_config(overlay(data, changes)), folder, PlainLines(4, ()))
    return folder


def rows(run: Path) -> Iterator[dict[str, Any]]:
    for file in sorted((run / "episodes").glob("[0-9]*.parquet")):
        yield from pq.read_table(file).to_pylist()


def episodes(run: Path) -> dict[str, GradedEpisode]:
    return {row["episode"]: find_episode(RunFolder.open(run), row["episode"]).graded for row in rows(run)}


@pytest.fixture(scope="module")
def graded(agentic_run: Path) -> dict[str, GradedEpisode]:
    return episodes(agentic_run)


def deepest(graded: dict[str, GradedEpisode]) -> GradedEpisode:
    return max(graded.values(), key=lambda one: len(one.episode.path))


def test_the_run_has_paths_of_every_length_that_go_on_that_end_and_that_are_too_long(graded) -> None:
    assert {len(one.episode.path) for one in graded.values()} == {1, 2, 3}
    reasons = {one.episode.outcome.reason for one in graded.values() if one.episode.outcome}
    assert {GOES_ON, TOO_LONG} <= reasons
    assert all(one.episode.is_candidate for one in graded.values())


def test_every_candidate_replays_as_it_was_recorded(agentic_run, graded, paper) -> None:
    page = paper(width=200)
    chosen = defaultdict(list)
    for one in graded.values():
        chosen[len(one.episode.path), one.episode.outcome and one.episode.outcome.reason].append(one.episode.id)
    for ids in chosen.values():
        for episode in ids[:3]:
            assert replay_as_recorded(agentic_run, episode, page), page.text
    assert page.text.count("replays as it was recorded") == sum(min(3, len(ids)) for ids in chosen.values())


def test_a_candidate_that_was_recorded_otherwise_is_seen(agentic_run, graded, paper, monkeypatch) -> None:
    import rolecall.debugging.replay as replay

    one = deepest(graded).episode
    real = replay.find_episode

    def changed(*args: Any, **options: Any) -> Any:
        from dataclasses import replace

        found = real(*args, **options)
        episode = found.graded.episode
        outcome = replace(episode.outcome, answer="another")
        return replace(found, graded=replace(found.graded, episode=replace(episode, outcome=outcome)))

    monkeypatch.setattr(replay, "find_episode", changed)
    page = paper(width=200)
    assert not replay_as_recorded(agentic_run, one.id, page)
    assert "is another one now: it ended in" in page.text


def test_a_reply_on_the_path_of_a_candidate_can_be_changed_and_the_rest_is_run_anew(agentic_run, graded, paper) -> None:
    one = deepest(graded).episode
    page = paper(width=200)
    again = replay_edited(agentic_run, one.id, "solver:0", lambda old: "7", page, checkpoint="last")
    assert again.episode.turns[0].text == "7"
    assert [turn.role for turn in again.episode.turns][:2] == ["solver", "verifier"]
    assert len(again.episode.turns) >= 2  # it goes on beyond the candidate, to the end of the workflow
    assert "solver:0, edited" in page.text
    assert "0 calls replayed, 1 edited" in page.text


def test_the_viewer_shows_the_whole_path_and_says_what_is_counted_elsewhere(agentic_run, graded) -> None:
    service = Service(Root(agentic_run.parent))
    one = deepest(graded).episode
    view = service.episode("agentic", Query(), one.id)
    assert [turn["name"] for turn in view["turns"]] == [str(turn.key) for turn in one.path]
    assert [turn["context"] for turn in view["turns"]] == [True, True, False]
    assert [turn["reward"] is None for turn in view["turns"]] == [True, True, False]
    assert len(view["lanes"]) == 3
    assert view["candidate"]
    assert view["trained_in"] > view["step"]
    for turn in view["turns"]:  # the path's turns are candidates that can be opened
        assert service.has_episode("agentic", "training", turn["id"])
    assert sorted(sibling["episode"] for sibling in view["siblings"]) == sorted(
        other.episode.id for other in graded.values() if other.episode.turns[0].peers == one.turns[0].peers
    )
    assert len(view["siblings"]) == 3
    tokens = service.tokens("agentic", "training", one.id, one.path[0].id)
    assert tokens == service.tokens("agentic", "training", one.path[0].id, one.path[0].id)


def test_the_list_counts_a_candidate_once_and_finds_the_words_of_its_path(agentic_run, graded) -> None:
    service = Service(Root(agentic_run.parent))
    page = service.episodes("agentic", Query(order="turns"), 0, 1000)
    assert page["total"] == len(graded)
    assert page["rows"][0]["context"] == 2
    assert [turn["role"] for turn in page["rows"][0]["turns"]] == ["corrector"]
    assert {row["context"] for row in page["rows"]} == {0, 1, 2}
    verifiers = service.episodes("agentic", Query(role="verifier"), 0, 1000)
    assert verifiers["total"] == sum(one.episode.turns[0].role == "verifier" for one in graded.values())


def test_the_report_shows_a_path_with_the_turns_that_are_counted_elsewhere(agentic_run, graded) -> None:
    write_report(agentic_run)
    text = html.unescape((agentic_run / "report.html").read_text())
    cards = re.findall(r'<article class="episode">.*?</article>', text, re.DOTALL)
    paths = [card for card in cards if "counted and trained as a candidate of its own" in card]
    assert paths
    assert any(len(re.findall(r'<li class="turn', card)) == 3 for card in paths)
    for card in paths:
        assert (
            card.count("counted and trained as a candidate of its own") == len(re.findall(r'<li class="turn', card)) - 1
        )


def test_rows_of_candidates_hold_the_whole_path_and_the_seeds_to_run_it_again(agentic_run) -> None:
    for row in rows(agentic_run):
        record = json.loads(row["record"])
        episode = record["graded"]["episode"]
        assert row["num_turns"] == len(episode["context"]) + 1
        assert len(record["replay"]["calls"]) >= row["num_turns"]
        assert list(record["rewards"]) == [episode["id"]]
        assert episode["id"].startswith(f"{episode['task']['id']}/s{episode['step']}/{episode['index']}")
