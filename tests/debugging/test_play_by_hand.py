"""`rolecall play`: a person's words go in as they are, decide what follows, and are graded like any others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rolecall.debugging.play import Person, play
from rolecall.errors import UsageError
from rolecall.run_folder import plain

ALL = ("solver", "verifier", "corrector")
BAD = "jsonl:tasks:82"  # the hostile one


def typing(page, *lines):
    """A person who types these lines, and then ends the input."""
    left = iter(lines)

    def read_line() -> str:
        line = next(left, None)
        if line is None:
            raise EOFError
        return line

    return Person(page=page, read_line=read_line)


def test_a_typed_verdict_decides_what_follows_and_earns_its_reward(small_config, paper):
    page = paper()
    person = typing(page, "It adds up.", "Verdict: correct", "")
    (graded,) = play(small_config, None, roles=["verifier"], person=person)
    assert [str(turn.key) for turn in graded.episode.turns] == ["solver:0", "verifier:0"]
    report = graded.episode.turns[1]
    assert report.text == "It adds up.\nVerdict: correct"
    assert report.claim.value == "correct"
    assert graded.episode.turns[0].policy == "shared"
    assert "read as: verdict 'correct'" in page.words
    assert "verdict 'correct'; reward 11 (odd 11)" in page.words
    assert f"reference '{graded.episode.task.answer}'" in page.words


def test_the_other_verdict_calls_the_corrector(small_config, paper):
    (graded,) = play(small_config, None, roles=["verifier"], person=typing(paper(), "Verdict: wrong", ""))
    assert [str(turn.key) for turn in graded.episode.turns] == ["solver:0", "verifier:0", "corrector:0"]
    assert graded.episode.turns[2].about == graded.episode.turns[1].id


def test_a_person_with_every_role_needs_no_model(small_config, paper):
    page = paper()
    lines = ("12", "", "Verdict: wrong", "", "13", "")
    (graded,) = play(small_config, None, roles=ALL, person=typing(page, *lines), task=BAD)
    assert [turn.text for turn in graded.episode.turns] == ["12", "Verdict: wrong", "13"]
    assert "loading" not in page.text


def test_letters_of_any_alphabet_and_any_length_stay_as_they_were_typed(small_config, paper):
    said = "Größe: 六 " + "x" * 5000
    (graded,) = play(small_config, None, roles=ALL, person=typing(paper(), said, "", "Verdict: correct", ""))
    assert graded.episode.turns[0].text == said


def test_commands_help_show_the_prompt_and_send_nothing(small_config, paper):
    page = paper()
    lines = (":help", ":prompt", ":what", "", "::not a command", "", ":empty", "7", "")
    (graded,) = play(small_config, None, roles=ALL, person=typing(page, *lines))
    assert [turn.text for turn in graded.episode.turns] == [":not a command", "", "7"]
    assert graded.episode.turns[1].claim.value is None
    assert "an empty line ends it, and so does the end of the input" in page.words
    assert "no command ':what'" in page.words
    assert "read as: verdict: could not be parsed" in page.words


def test_quit_and_the_end_of_the_input_end_the_play_with_what_was_finished(small_config, paper):
    page = paper()
    lines = ("1", "", "Verdict: correct", "", "2", ":quit")
    played = play(small_config, None, roles=ALL, person=typing(page, *lines), episodes=2)
    assert len(played) == 1
    assert "ended; 1 of 2 episodes were played to their end" in page.words
    assert play(small_config, None, roles=ALL, person=typing(paper()), episodes=1) == []


def test_the_end_of_the_input_sends_what_was_typed(small_config, paper):
    (graded,) = play(
        small_config, None, roles=["verifier"], person=typing(paper(), "Verdict: correct"), split="validation"
    )
    assert graded.episode.turns[1].text == "Verdict: correct"


def test_what_a_task_says_does_not_steer_the_terminal(small_config, paper):
    page = paper()
    play(small_config, None, roles=ALL, person=typing(page, ":quit"), task=BAD)
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    assert "\\x1b[2J[bold]no markup[/bold]" in page.text


def test_episodes_of_one_task_are_told_apart(small_config, paper):
    lines = ("1", "", "Verdict: correct", "") * 2
    played = play(small_config, None, roles=ALL, person=typing(paper(), *lines), task=BAD, episodes=2)
    assert [one.episode.index for one in played] == [0, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"roles": ["verifer"]}, "has no such role; did you mean 'verifier'"),
        ({"roles": ALL, "task": "none"}, "no task of 71 has the id 'none'; they are such as"),
        ({"roles": ALL, "split": "vali"}, "--split is 'vali'"),
        ({"roles": ALL, "episodes": 9}, "the validation split has 3 tasks; wanted 9"),
    ],
)
def test_a_slip_in_the_options_is_one_clear_message(small_config, paper, options, words):
    with pytest.raises(UsageError, match=words):
        play(small_config, None, person=typing(paper()), **options)


@pytest.mark.slow
def test_it_works_in_a_pipe_and_in_a_terminal_of_40_columns(small_config, tmp_path):
    import tomli_w

    recipe = tmp_path / "small.toml"
    recipe.write_text(tomli_w.dumps(plain(small_config.model_dump())))
    command = [sys.executable, "-c", "from rolecall.cli import main; main()"]
    done = subprocess.run(
        [*command, "play", str(recipe), "--role", "verifier"],
        input="Verdict: correct\n\n",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "40", "PYTHONPATH": str(Path(__file__).resolve().parent)},
    )
    assert done.returncode == 0, done.stderr
    assert "verifier:0 by you" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 40
