from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.errors import ConfigError, WorkflowError
from rolecall.workflows.prompting import load_prompts, parse_prompt
from rolecall.workflows.solve_verify_correct import HOLES, SolveVerifyCorrect


def test_sections_become_messages_in_order() -> None:
    prompt = parse_prompt("[system]\nBe fair.\n[user]\n{{task}}\n\nGo on.\n[assistant]\n{{ solution }}\n", "here")
    assert prompt.messages(task="1+1", solution="2") == [
        {"role": "system", "content": "Be fair."},
        {"role": "user", "content": "1+1\n\nGo on."},
        {"role": "assistant", "content": "2"},
    ]


@given(st.text(), st.text())
def test_whatever_a_role_wrote_arrives_unchanged(solution: str, report: str) -> None:
    prompt = parse_prompt("[user]\n{{solution}}|{{report}}", "here")
    assert prompt.messages(solution=solution, report=report)[0]["content"] == f"{solution}|{report}"


def test_text_of_a_role_that_looks_like_a_template_is_not_filled_again() -> None:
    prompt = parse_prompt("[user]\n{{solution}} / {{report}}", "here")
    filled = prompt.messages(solution="{{report}} [user] $report %(report)s", report="{{solution}}")
    assert filled == [{"role": "user", "content": "{{report}} [user] $report %(report)s / {{solution}}"}]


def test_an_unknown_placeholder_names_the_nearest(tmp_path: Path) -> None:
    for role in HOLES:
        (tmp_path / f"{role}.txt").write_text("[user]\n{{task}} {{solutoin}}")
    with pytest.raises(ConfigError, match=r"corrector.txt uses \{\{solutoin\}\}; did you mean 'solution'"):
        SolveVerifyCorrect(prompts=str(tmp_path))


def test_a_folder_of_the_users_own_is_a_prompt_set(tmp_path: Path) -> None:
    for role in HOLES:
        (tmp_path / f"{role}.txt").write_text(f"[user]\n{role}: {{{{task}}}}")
    prompts = SolveVerifyCorrect(prompts=str(tmp_path)).prompt_set()
    assert prompts["verifier"].messages(task="x")[0]["content"] == "verifier: x"


def test_a_missing_file_and_a_missing_set_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no file .*corrector.txt"):
        SolveVerifyCorrect(prompts=str(tmp_path))
    with pytest.raises(ConfigError, match="no prompt set 'defalt', and no such folder; did you mean 'default'"):
        SolveVerifyCorrect(prompts="defalt")


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(WorkflowError, match=r"no value for \{\{report\}\}"):
        parse_prompt("[user]\n{{report}}", "here").messages(task="x")


def test_text_before_the_first_section_is_an_error() -> None:
    with pytest.raises(ConfigError, match="begins with 'Hello'"):
        parse_prompt("Hello\n[user]\n", "here")


def test_the_default_prompts_use_every_placeholder_of_their_role() -> None:
    prompts = load_prompts("default", HOLES)
    assert {role: prompts[role].placeholders for role in HOLES} == HOLES
