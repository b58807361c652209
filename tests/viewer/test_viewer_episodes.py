"""The list of episodes: filters, order, pages, neighbours, broken files; and one episode as the page shows it."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from viewer_runs import EPISODES, add_step, episode_row, finish, make_run, write

from rolecall.viewer.episode import diff_texts, episode_view
from rolecall.viewer.episodes import Episodes, Query
from rolecall.viewer.parts import NotThere
from rolecall.viewer.tokens import TokenizerMissing, pieces, token_view, tokenizer


def opened(run):
    episodes = Episodes(run)
    episodes.refresh()
    return episodes


def names(page):
    return [row["episode"] for row in page.rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three steps of two tasks with four episodes each; the first of a task has a wrong solution that is repaired."""
    folder = make_run(tmp_path_factory.mktemp("viewer") / "run", steps=3)
    finish(folder, 3)
    return folder


@pytest.fixture(scope="module")
def episodes(run):
    return opened(run)


def test_the_list_is_newest_first_and_has_pages(episodes):
    page = episodes.page(Query(), 0, 10)
    assert (page.total, page.more, len(page.rows)) == (24, True, 10)
    assert [row["step"] for row in page.rows] == [3] * 8 + [2] * 2
    last = episodes.page(Query(), 20, 10)
    assert (len(last.rows), last.more) == (4, False)
    assert [row["step"] for row in episodes.page(Query(order="oldest"), 0, 9).rows] == [1] * 8 + [2]


def test_order_by_turns_puts_the_longest_first_over_all_files(episodes):
    rows = episodes.page(Query(order="turns"), 0, 7).rows
    assert [row["num_turns"] for row in rows] == [3] * 6 + [2]
    assert [row["step"] for row in rows[:6]] == [3, 3, 2, 2, 1, 1]


@pytest.mark.parametrize(
    ("query", "number"),
    [
        (Query(step_min=2, step_max=2), 8),
        (Query(task="sum:1:0"), 4),
        (Query(outcome="ok"), 24),
        (Query(outcome="error"), 0),
        (Query(team="right"), 24),
        (Query(team="wrong"), 0),
        (Query(role="corrector"), 6),
        (Query(role="nobody"), 0),
        (Query(role="solver", reward_max=0.5), 6),
        (Query(role="verifier", reward_max=0.5), 0),
        (Query(reward_max=0.0), 6),
        (Query(role="solver", reward_min=0.5), 18),
        (Query(text="Verdict: WRONG"), 6),
        (Query(text="verdict: wrong", step_max=1), 2),
        (Query(text="no such words"), 0),
        (Query(source="after"), 3),
        (Query(role="corrector", text="fix 7+5", step_min=3), 2),
    ],
)
def test_a_filter_finds_what_it_says(episodes, query, number):
    page = episodes.page(query, 0, 50)
    assert page.total == number
    assert len(page.rows) == number


def test_a_text_search_stops_when_its_page_is_full_and_says_that_there_is_more(episodes):
    page = episodes.page(Query(text="7+5"), 0, 10)
    assert (page.total, page.more, len(page.rows)) == (None, True, 10)
    assert episodes.page(Query(text="7+5"), 20, 10).total == 24


def test_a_text_that_only_names_hold_is_not_found(episodes):
    assert episodes.page(Query(text="logprobs"), 0, 5).total == 0


def test_text_in_any_script_and_with_quotes_is_found(tmp_path):
    run = make_run(tmp_path / "run", steps=0, of=1)
    said = {"solver": 'ΑΠΌΔΕΙΞΗ "so" \\frac{1}{2}\nend'}
    rows = [episode_row(step=1, task="t", index=i, wrong=False, texts=said if i == 1 else {}) for i in range(3)]
    write(run / "episodes" / "00000001-00000001.parquet", rows, EPISODES)
    found = opened(run)
    for text in ("απόδειξη", '"SO"', "\\frac{1}", "}\nend"):
        assert names(found.page(Query(text=text), 0, 5)) == ["t/s1/1"], text


def test_team_failed_means_not_graded_and_is_neither_right_nor_wrong(tmp_path):
    run = make_run(tmp_path / "run", steps=0, of=1)
    rows = [
        episode_row(step=1, task="t", index=i, wrong=False) | {"team_score": s} for i, s in enumerate([1.0, 0.5, None])
    ]
    write(run / "episodes" / "00000001-00000001.parquet", rows, EPISODES)
    found = opened(run)
    assert {team: names(found.page(Query(team=team), 0, 5)) for team in ("right", "wrong", "failed")} == {
        "right": ["t/s1/0"],
        "wrong": ["t/s1/1"],
        "failed": ["t/s1/2"],
    }


def test_neighbours_follow_the_filtered_list(episodes):
    query = Query(role="corrector")
    listed = names(episodes.page(query, 0, 50))
    assert listed[:3] == ["sum:3:0/s3/0", "sum:3:1/s3/0", "sum:2:0/s2/0"]
    assert episodes.neighbours(query, episodes.locate("training", listed[1])) == (listed[0], listed[2])
    assert episodes.neighbours(query, episodes.locate("training", listed[0])) == (None, listed[1])
    assert episodes.neighbours(query, episodes.locate("training", listed[-1])) == (listed[-2], None)
    assert episodes.neighbours(query, episodes.locate("training", "sum:3:0/s3/1")) == (None, None)


def test_an_episode_is_found_in_a_folded_file_with_many_row_groups(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    parts = sorted((run / "episodes").glob("*.parquet"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    write(run / "episodes" / "00000001-00000003.parquet", rows, EPISODES, row_group_size=5)
    for part in parts:
        part.unlink()
    found = opened(run)
    assert names(found.page(Query(), 0, 2)) == ["sum:3:0/s3/0", "sum:3:0/s3/1"]
    for row in rows:
        at = found.locate("training", row["episode"])
        assert found.records.record(*at)["graded"]["episode"]["id"] == row["episode"]


def test_an_episode_or_source_that_is_not_there_is_said_so(episodes):
    with pytest.raises(NotThere, match="no episode 'zzz' among the 24 of 'training'"):
        episodes.locate("training", "zzz")
    with pytest.raises(NotThere, match="no episodes of 'before'; it has training, after"):
        episodes.locate("before", "zzz")


def test_a_truncated_episodes_file_is_named_and_the_others_are_shown(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    broken = run / "episodes" / "00000002-00000002.parquet"
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
    found = opened(run)
    assert found.page(Query(text="7+5", role="solver"), 0, 50).total == 16
    assert found.problems[0].startswith("episodes/00000002-00000002.parquet cannot be read and is left out")


def test_a_row_without_a_readable_record_is_listed_with_the_reason(tmp_path):
    run = make_run(tmp_path / "run", steps=0, of=1)
    rows = [episode_row(step=1, task="t", index=i, wrong=False) for i in range(2)]
    rows[0]["record"] = '{"graded": {'
    write(run / "episodes" / "00000001-00000001.parquet", rows, EPISODES)
    found = opened(run)
    listed = found.page(Query(), 0, 5).rows
    assert listed[0]["problem"].startswith("row 0 of 00000001-00000001.parquet holds no episode")
    assert len(listed[1]["turns"]) == 2
    assert names(found.page(Query(role="solver"), 0, 5)) == ["t/s1/1"]


def test_records_of_an_older_layout_are_shown_without_rewards(tmp_path):
    run = make_run(tmp_path / "run", steps=0, of=1)
    row = episode_row(step=1, task="t", index=0, wrong=True)
    row["record"] = json.dumps(json.loads(row["record"])["graded"])
    write(run / "episodes" / "00000001-00000001.parquet", [row], EPISODES)
    (listed,) = opened(run).page(Query(role="corrector"), 0, 5).rows
    assert [turn["reward"] for turn in listed["turns"]] == [None, None, None]


def test_new_steps_join_the_index(tmp_path):
    run = make_run(tmp_path / "run", steps=1)
    found = opened(run)
    add_step(run, 2)
    found.refresh()
    assert found.sources() == {"training": 16}


def view(wrong=True, **given):
    row = episode_row(step=4, task="t", index=0, wrong=wrong, **given)
    return episode_view(json.loads(row["record"]), ["solver", "verifier", "corrector"])


def test_each_turn_has_a_lane_by_role_and_a_row_below_what_it_is_about():
    found = view()
    assert [(lane["role"], lane["copy"]) for lane in found["lanes"]] == [
        ("solver", 0),
        ("verifier", 0),
        ("corrector", 0),
    ]
    assert [(turn["lane"], turn["row"]) for turn in found["turns"]] == [(0, 0), (1, 1), (2, 2)]
    assert [turn["about"] for turn in found["turns"]] == [None, "t/s4/0/solver:0", "t/s4/0/verifier:0"]


def test_copies_side_by_side_share_a_row_and_have_lanes_of_their_own():
    record = json.loads(episode_row(step=1, task="t", index=0, wrong=False)["record"])
    solver, voter = record["graded"]["episode"]["turns"]
    second = voter | {"id": "second", "key": ["verifier", 1, 0]}
    again = voter | {"id": "again", "key": ["verifier", 0, 1], "parent": None, "about": None}
    record["graded"]["episode"]["turns"] = [solver, voter, second, again]
    found = episode_view(record, ["solver"])
    assert [(turn["lane"], turn["row"]) for turn in found["turns"]] == [(0, 0), (1, 1), (2, 1), (1, 0)]


def test_a_correction_is_compared_with_the_solution_behind_the_report_it_is_about():
    assert [turn["compare"] for turn in view()["turns"]] == [None, None, "t/s4/0/solver:0"]


def test_a_verdict_is_judged_by_the_grade_of_the_answer_it_is_about():
    assert [turn["judged"] for turn in view()["turns"]] == [None, True, None]
    record = json.loads(episode_row(step=1, task="t", index=0, wrong=False)["record"])
    record["graded"]["answers"]["t/s1/0/solver:0"]["status"] = "wrong"
    assert episode_view(record, [])["turns"][1]["judged"] is False


def test_turns_say_their_reward_parts_versions_and_stop():
    solver = view()["turns"][0]
    assert solver["reward"] == {"parts": {"correct": 0.0}, "total": 0.0, "team": False}
    assert (solver["versions"], solver["stop"], solver["num_prompt"], solver["num_tokens"]) == ([3, 3], "eos", 12, 7)
    assert solver["mean_logprob"] == pytest.approx(-0.01 * (0 + 1 + 4 + 9 + 16 + 25 + 36) / 7)


def test_a_difference_is_by_word():
    assert diff_texts("so 7+5 = 11.", "so 7+5 = 12!") == [
        ("same", "so 7+5 = "),
        ("removed", "11."),
        ("added", "12!"),
    ]


@given(st.text(alphabet="ab \n.é", max_size=60), st.text(alphabet="ab \n.é", max_size=60))
def test_a_difference_holds_both_texts_whole(before, after):
    parts = diff_texts(before, after)
    assert "".join(text for kind, text in parts if kind != "added") == before
    assert "".join(text for kind, text in parts if kind != "removed") == after


def test_long_texts_are_compared_by_line():
    before = "".join(f"line {i} of the text\n" for i in range(600))
    parts = diff_texts(before, before.replace("line 7 ", "LINE 7 "))
    assert [part for part in parts if part[0] != "same"] == [
        ("removed", "line 7 of the text\n"),
        ("added", "LINE 7 of the text\n"),
    ]


CONFIG = {"model": {"model": "builtin:tiny"}}


def turn_and_advantages():
    record = json.loads(episode_row(step=1, task="t", index=0, wrong=True)["record"])
    return record["graded"]["episode"]["turns"], record["advantages"]


def test_a_token_view_tells_prompt_from_completion_and_decodes_each_token():
    turns, advantages = turn_and_advantages()
    found = token_view(turns[0], config=CONFIG, source="training", advantages=advantages)
    assert found["ids"] == turns[0]["prompt_ids"] + turns[0]["completion"]["token_ids"]
    assert found["logprobs"][:12] == [None] * 12
    assert found["logprobs"][12:] == [-0.0, -0.01, -0.04, -0.09, -0.16, -0.25, -0.36]
    assert len(found["pieces"]) == len(found["ids"])
    assert found["pieces"][0] == tokenizer("builtin:tiny").decode([20], skip_special_tokens=False)
    assert found["trained"] is True


@pytest.mark.parametrize(
    ("change", "source", "trained", "why"),
    [
        ({}, "after", False, "this is an evaluation"),
        ({"train_roles": ["verifier"]}, "training", False, "train_roles leaves the solver out"),
        ({"policies": {"shared": {"kind": "frozen", "model": "x"}}}, "training", False, "the policy shared is frozen"),
        ({"train_roles": ["solver"]}, "training", True, "each completion token is trained with advantage"),
    ],
)
def test_a_token_view_says_why_tokens_are_trained_or_not(change, source, trained, why):
    turns, advantages = turn_and_advantages()
    found = token_view(turns[0], config=CONFIG | change, source=source, advantages=advantages)
    assert found["trained"] is trained
    assert found["why"].startswith(why)


def test_a_turn_with_advantage_0_or_none_says_so():
    turns, advantages = turn_and_advantages()
    zero = token_view(turns[1], config=CONFIG, source="training", advantages=advantages)
    assert zero["why"] == "in the batch with advantage 0: it adds nothing to the policy gradient"
    none = token_view(turns[1], config=CONFIG, source="training", advantages={})
    assert (none["trained"], none["why"]) == (False, "the turn has no advantage, so it is in no sample")


def test_without_a_tokenizer_here_the_ids_are_shown_with_the_reason():
    turns, advantages = turn_and_advantages()
    config = {"model": {"model": "nobody/no-such-model"}}
    found = token_view(turns[0], config=config, source="training", advantages=advantages)
    assert found["pieces"] is None
    assert "neither a folder here nor in the hub's cache" in found["problem"]
    with pytest.raises(TokenizerMissing, match="names no model"):
        tokenizer("")


def test_a_token_that_is_part_of_a_character_is_shown_in_its_stored_form():
    class HalfLetters:
        def decode(self, ids, *, skip_special_tokens):
            return "\ufffd" if ids[0] == 1 else ""

        def id_to_token(self, token_id):
            return "Ã" if token_id == 1 else None

    assert pieces(HalfLetters(), [1, 2]) == ["Ã", "<2>"]
