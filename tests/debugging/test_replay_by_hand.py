"""`rolecall replay`: what was recorded comes back at no cost; one changed reply changes what follows, and no more."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from rolecall import commands_debug
from rolecall.debugging.episodes import find_episode
from rolecall.debugging.replay import ask_editor, find_key, replay_as_recorded, replay_edited
from rolecall.engines.scripted import ScriptedEngine
from rolecall.errors import EngineError, UsageError
from rolecall.records import Key, Outcome, Sampling, Task
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import run_episode
from rolecall.rollout.stored import replay_data, transcript_of
from rolecall.rollout.transcript import RoleSettings, Transcript, edit
from rolecall.run_folder import RunFolder
from rolecall.workflows import Team, Workflow
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect


def ids(run: Path, file: str) -> list[str]:
    return pq.read_table(run / file)["episode"].to_pylist()


def training_ids(run: Path) -> list[str]:
    return ids(run, "episodes/00000001-00000001.parquet")


def test_every_recorded_episode_replays_as_it_was_and_loads_no_model(small_run, paper):
    page = paper(width=200)
    for episode in training_ids(small_run):
        assert replay_as_recorded(small_run, episode, page), page.text
    for when in ("before", "after"):  # sampled at another temperature than training
        episode = ids(small_run, f"evaluations/{when}.parquet")[0]
        assert replay_as_recorded(small_run, episode, page, source=when), page.text
    assert "loading" not in page.text
    assert page.text.count("replays as it was recorded") == len(training_ids(small_run)) + 2


def test_a_changed_verdict_costs_no_call_before_it_and_changes_what_follows(small_run, paper):
    page = paper(width=200)
    episode = next(one for one in training_ids(small_run) if len(stored(small_run, one).episode.turns) == 3)
    graded = replay_edited(small_run, episode, "verifier:0", lambda old: "Verdict: correct", page)
    before = stored(small_run, episode).episode
    assert [str(turn.key) for turn in graded.episode.turns] == ["solver:0", "verifier:0"]
    assert graded.episode.turns[0] == before.turns[0]
    assert graded.episode.outcome.figures["accepted"] == 1.0
    assert "1 calls replayed, 1 edited, 0 sampled" in page.text
    assert "(not called)" in page.text


def test_calls_whose_prompts_change_are_sampled_from_the_checkpoint(small_run, paper):
    page = paper(width=40)
    episode = training_ids(small_run)[0]
    graded = replay_edited(small_run, episode, "solver:0", lambda old: "77", page, checkpoint="last")
    solver, verifier = graded.episode.turns[:2]
    assert (solver.text, solver.claim.value) == ("77", "77")
    assert "77" in verifier.messages[0]["content"]
    assert verifier.completion.version == 1  # the record was made by version 0
    assert verifier.about == solver.id
    assert "sampled from step-00000001" in page.words
    assert max(map(len, page.text.splitlines())) <= 40


def test_a_workflow_that_has_changed_since_is_seen(small_run, tmp_path, paper):
    run = shutil.copytree(small_run, tmp_path / "run")
    episode = next(one for one in training_ids(run) if len(stored(run, one).episode.turns) == 3)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("max_rounds = 1", "max_rounds = 2"))
    page = paper(width=300)
    assert not replay_as_recorded(run, episode, page)
    assert "it goes on to call verifier:1, of which there is no record" in page.text
    config.write_text(config.read_text().replace('answer_format = "text"', 'answer_format = "line"'))
    assert not replay_as_recorded(run, episode, paper())


def test_a_mistake_in_the_names_is_one_clear_message(small_run, tmp_path, paper):
    episode = training_ids(small_run)[0]
    with pytest.raises(UsageError, match="is not a run folder"):
        replay_as_recorded(tmp_path, episode, paper())
    with pytest.raises(UsageError, match=r"no episode 'nothing' among \d+; there are"):
        replay_as_recorded(small_run, "nothing", paper())
    with pytest.raises(UsageError, match="has no call 'verifer:0'; did you mean 'verifier:0'"):
        replay_edited(small_run, episode, "verifer:0", lambda old: "", paper())
    both = ids(small_run, "evaluations/before.parquet")[0]
    with pytest.raises(UsageError, match=r"is in after and in before; say which, e\.g\. --from after"):
        replay_as_recorded(small_run, both, paper())
    with pytest.raises(UsageError, match="--from is 'middle'; the run has after, before, training"):
        replay_as_recorded(small_run, both, paper(), source="middle")


def test_a_damaged_episodes_file_is_named(small_run, tmp_path, paper):
    run = shutil.copytree(small_run, tmp_path / "run")
    file = run / "episodes" / "00000001-00000001.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"00000001-00000001.parquet.*the file is damaged"):
        find_episode(RunFolder.open(run), "any")


def test_the_editor_is_given_the_old_reply_and_its_file_becomes_the_new_one(monkeypatch, tmp_path):
    script = tmp_path / "editor.sh"
    script.write_text('#!/bin/sh\nsed -i s/wrong/correct/ "$1"\n')
    script.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(script))
    assert ask_editor("Verdict: wrong") == "Verdict: correct"
    monkeypatch.setenv("EDITOR", "false")
    with pytest.raises(UsageError, match="ended with code 1; nothing was changed"):
        ask_editor("x")
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    with pytest.raises(UsageError, match="cannot be started"):
        ask_editor("x")
    monkeypatch.delenv("EDITOR")
    with pytest.raises(UsageError, match="no editor is set"):
        ask_editor("x")


KEYS = [Key("solver_a", 0, 0), Key("solver_b", 0, 0), Key("gen1", 0, 0), Key("gen", 1, 0), Key("gen.1", 0, 0)]
KEYS += [Key("judge:2", 3, 4), Key("v", 10, 0), Key("v", 1, 0)]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("solver_b:0", KEYS[1]),
        ("gen1:0", KEYS[2]),
        ("gen.1.0:0", KEYS[4]),
        ('["gen", 1, 0]', KEYS[3]),
        ("judge:2.3:4", KEYS[5]),
        ("v.1:0", KEYS[7]),
        ("v.10:0", KEYS[6]),
    ],
)
def test_names_of_roles_with_dots_colons_underscores_and_digits_are_found(text, key):
    assert find_key(text, KEYS) == key


def test_a_text_that_names_two_calls_is_asked_about():
    with pytest.raises(UsageError, match=r"names 2 calls.*'\[\"gen\", 1, 0\]' or '\[\"gen.1\", 0, 0\]'"):
        find_key("gen.1:0", KEYS)


# -- what is stored of an episode ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Busy(Workflow):
    """Copies side by side, an effect each, a call that fails and is caught."""

    roles: ClassVar[tuple[str, ...]] = ("voter", "chair")

    async def run(self, task: Task, team: Team) -> Outcome:
        async def vote(copy: int) -> str:
            found = await team.effect(f"look up {copy}", lambda: {"fact": copy})
            reply = await team["voter", copy].reply([{"role": "user", "content": str(found)}])
            return reply.text or ""

        votes = await asyncio.gather(vote(0), vote(1))
        try:
            await team["chair"].reply([{"role": "user", "content": "fails"}])
        except EngineError:
            votes.append("no chair")
        last = await team["chair"].reply([{"role": "user", "content": f"{votes} {team.rng.random()}"}])
        return Outcome(answer=last.text, figures={"luck": team.rng.random()})


def settings(workflow):
    one = RoleSettings(policy="any", sampling=Sampling(max_prompt_tokens=10**6), renderer=PlainRenderer())
    return dict.fromkeys(workflow.roles, one)


def answer(request):
    if request.messages[0]["content"] == "fails":
        return EngineError("the chair is away")
    return f"{request.key} {request.seed % 97}"


def test_effects_failed_calls_and_random_numbers_come_back_from_what_is_stored():
    workflow, task = Busy(), Task(id="t", question="q", answer="a")
    first = run_episode(workflow, Transcript(task=task, run_seed=5), settings(workflow), ScriptedEngine(answer))
    plain = json.loads(json.dumps(replay_data(first.transcript)))
    rebuilt = transcript_of(first.episode, plain)
    assert rebuilt == first.transcript
    engine = ScriptedEngine(answer)
    again = run_episode(workflow, rebuilt, settings(workflow), engine)
    assert (again.episode, engine.num_calls) == (first.episode, 0)


def test_an_episode_that_could_not_be_stored_says_so_when_it_is_replayed():
    workflow, task = Busy(), Task(id="t", question="q", answer="a")
    episode = run_episode(workflow, Transcript(task=task), settings(workflow), ScriptedEngine(answer)).episode
    with pytest.raises(UsageError, match="cannot be replayed: an effect gave a set"):
        transcript_of(episode, {"unstored": "an effect gave a set"})
    with pytest.raises(UsageError, match="holds no records of calls"):
        transcript_of(episode, None)


def test_a_turn_replayed_after_an_edit_is_about_a_turn_of_its_own_episode():
    """The corrector repeats itself, so the second report's prompt, and with it its record, stays as it was."""

    def reply(request):
        return "Verdict: wrong" if request.key.role == "verifier" else r"\boxed{5}"

    workflow = SolveVerifyCorrect(max_rounds=2)
    first = run_episode(
        workflow, Transcript(task=Task(id="t", question="q", answer="6")), settings(workflow), ScriptedEngine(reply)
    )
    changed = edit(first, Key("solver", 0, 0), r"\boxed{4}", workflow.claim)
    engine = ScriptedEngine(reply)
    other = run_episode(workflow, changed, settings(workflow), engine, on_mismatch="resample")
    assert engine.calls_by_role == {"verifier": 1, "corrector": 1}  # the second of each was replayed
    known = {turn.id for turn in other.episode.turns}
    assert all(turn.about in known for turn in other.episode.turns[1:])
    assert all(turn.parent in known for turn in other.episode.turns[1:])


def stored(run: Path, episode: str):
    return find_episode(RunFolder.open(run), episode).graded


def command(*arguments: object, **options):
    app = typer.Typer()
    commands_debug.register(app)
    return CliRunner().invoke(app, ["replay", *map(str, arguments)], **options)


def test_the_command_takes_the_reply_from_its_input_and_says_what_does_not_go_together(small_run):
    episode = training_ids(small_run)[0]
    done = command(small_run, episode, "--edit", "verifier:0", "--file", "-", input="Verdict: correct\n")
    assert done.exit_code == 0, done.output
    assert "verdict 'correct'" in done.output
    assert command(small_run, episode).exit_code == 0
    for arguments, words in [
        (["--text", "x"], "say which one with --edit"),
        (["--edit", "verifier:0", "--text", "x", "--file", "y"], "keep one of them"),
        (["--edit", "verifier:0", "--file", "/no/such/file"], "cannot be read"),
        (["--edit", "verifier:0", "--text", "x", "--checkpoint", "best2"], "wanted best, last, base or a step"),
    ]:
        failed = command(small_run, episode, *arguments)
        assert isinstance(failed.exception, UsageError)
        assert words in str(failed.exception)
