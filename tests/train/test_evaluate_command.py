"""`rolecall evaluate` end to end: the shipped model as a reasoning system, others in its place, and files of tasks."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from endpoint_server import Answer, Asked, chat, error, serve
from rolecall.cli import app
from rolecall.config import make_config
from rolecall.errors import ConfigError, EngineError, UsageError
from rolecall.evaluate_run import TaskFile, Wanted, evaluate_run
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.serving import serve_roles
from rolecall.train import train

TEAM = {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"}
BASE = Wanted(checkpoint="base", system=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the shipped model that has not been trained, on sums of the kind that it knows."""
    root = tmp_path_factory.mktemp("runs")
    draw = random.Random(0)
    rows = [{"question": one, "answer": str(value(one))} for one in dict.fromkeys(a_sum(draw) for _ in range(300))]
    (root / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = {
        "steps": 0,
        "workflow": TEAM,
        "tasks": {"name": "jsonl", "path": str(root / "sums.jsonl"), "sizes": {"test": 12}},
        "algorithm": {"name": "agent_grpo", "n": 4},
        "sampling": {"max_tokens": 32, "max_prompt_tokens": 96},
        "engine": {"mode": "inline"},
        "parity": {"canary": False},
        "evaluation": {"every_steps": 0, "greedy": False},
    }
    train(make_config(config), root / "r", PlainLines(0, ()))
    return root / "r"


def a_sum(draw: random.Random) -> str:
    """Four one-digit terms, such as `7-9+3-8`."""
    first, *others = [str(draw.randrange(1, 10)) for _ in range(4)]
    return first + "".join(draw.choice("+-") + term for term in others)


def value(terms: str) -> int:
    return sum(int(term) for term in terms.replace("-", "+-").split("+") if term)


def solve(asked: Asked) -> Answer:
    """An endpoint that adds up: the tiny prompt is `Solve 7-9+3-8`."""
    return str(value(asked.last.removeprefix("Solve ")))


def turns(path: Path, role: str) -> dict[str, str]:
    """The first text of a role in each saved episode."""
    found: dict[str, str] = {}
    for row in pq.read_table(path).to_pylist():
        for turn in json.loads(row["record"])["graded"]["episode"]["turns"]:
            if turn["key"][0] == role:
                found.setdefault(row["episode"], turn["text"])
    return found


def command(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


# -- the run's own weights --------------------------------------------------------------------------------------------


def test_the_shipped_model_as_a_reasoning_system_beats_its_own_solver(run: Path) -> None:
    found = json.loads(command(run, "--system", "--checkpoint", "base", "-n", 4, "--json"))
    solver, system = found["solver"]["avg"], found["system"]["avg"]
    assert (solver["n"], system["n"], system["num_tasks"]) == (48, 48, 12)
    assert found["difference"]["mean"] == pytest.approx(system["mean"] - solver["mean"])
    assert found["difference"]["mean"] == pytest.approx(found["gained"]["mean"] - found["lost"]["mean"])
    assert sum(rate["mean"] for rate in found["ends"].values()) == pytest.approx(1.0)
    assert found["accuracy_by_end"]["accepted"]["mean"] > solver["mean"]  # four passes in a row mean something
    generated = found["tokens"]["generated"]
    assert generated["all"] == generated["solver"] + generated["verifier"] + generated["corrector"]
    assert 4 <= found["rounds"]["max"] <= 11
    assert found["served_by"] == dict.fromkeys(("solver", "verifier", "corrector"), "builtin:tiny")


def test_the_table_says_what_the_json_says(run: Path) -> None:
    text = command(run, "--system", "--checkpoint", "base", "-n", 2)
    for words in ("Solver alone, avg@2", "System, avg@2", "System minus Solver", "ends accepted", "tokens generated:"):
        assert words in text
    assert "12 tasks of the test split; every role: builtin:tiny" in text


def test_weights_and_samples_are_those_of_the_run_itself(small: Any, tmp_path: Path) -> None:
    """The test set at the ends of a run and `rolecall evaluate` are one measurement, for whole models and adapters."""
    lora = {"kind": "adapter", "lora": {"rank": 4}}
    for name, changes in (("whole", {}), ("adapter", {"model": lora})):
        path = tmp_path / name
        train(
            small(learner={"lr": 0.05}, evaluation={"every_steps": 0, "greedy": False}, **changes),
            path,
            PlainLines(2, ()),
        )
        folder = RunFolder.open(path)
        for when, checkpoint in (("before", "base"), ("after", "best")):
            kept = folder.read_json(f"evaluation_{when}.json")
            found = evaluate_run(path, Wanted(checkpoint=checkpoint, save=f"again-{when}"))
            assert found["team"] == kept["sampled"]["team"]
            assert found["tokens"] == kept["sampled"]["tokens"]
            again = turns(path / f"evaluations/again-{when}.parquet", "solver")
            assert list(again.values()) == list(turns(path / f"evaluations/{when}.parquet", "solver").values())
        before, after = (turns(path / f"evaluations/again-{when}.parquet", "solver") for when in ("before", "after"))
        assert before != after  # or this test would say nothing


# -- somebody else ----------------------------------------------------------------------------------------------------


def test_an_endpoint_takes_the_solvers_place(run: Path) -> None:
    with serve(solve) as server:
        who = f"adder@{server.url}"
        found = evaluate_run(run, Wanted(checkpoint="base", system=True, samples=2, roles={"solver": who}))
        asked = len(server.asked)
    assert found["solver"]["avg"]["mean"] == 1.0
    assert found["served_by"] == {"solver": who, "verifier": "builtin:tiny", "corrector": "builtin:tiny"}
    assert found["tokens"]["solver_alone"] == 24  # the endpoint's own count: one word a reply
    assert found["requests"][who] == {"attempts": asked + 1, "retries": 0}  # and the greeting
    assert found["roles"]["verifier"]["recall"]["n"] > 0  # of what the local corrector broke
    assert found["gained"]["mean"] == 0.0


def test_the_samples_of_roles_that_stay_do_not_change_when_another_is_swapped(run: Path) -> None:
    evaluate_run(run, Wanted(checkpoint="base", save="own"))
    evaluate_run(run, Wanted(checkpoint="base", save="swapped", roles={"corrector": "builtin:tiny"}))
    own, swapped = (turns(run / f"evaluations/{name}.parquet", "verifier") for name in ("own", "swapped"))
    assert own == swapped


def test_another_runs_checkpoint_takes_a_role_with_the_weights_it_has_there(small: Any, tmp_path: Path) -> None:
    settings = {"evaluation": {"every_steps": 0, "greedy": False}, "learner": {"lr": 0.05}}
    team = {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text", "max_rounds": 1}
    train(small(**settings), tmp_path / "alone", PlainLines(2, ()))
    train(
        small(workflow={"prompts": "tiny", "answer_format": "text"}, **settings), tmp_path / "tiny", PlainLines(2, ())
    )
    train(small(workflow=team, steps=1, **settings), tmp_path / "team", PlainLines(1, ()))
    want = {}
    for checkpoint in ("base", "last"):
        evaluate_run(tmp_path / "tiny", Wanted(checkpoint=checkpoint, save=checkpoint))
        want[checkpoint] = turns(tmp_path / f"tiny/evaluations/{checkpoint}.parquet", "solver")
        who = f"{tmp_path / 'tiny'}@{checkpoint}"
        found = evaluate_run(tmp_path / "team", Wanted(save=checkpoint, roles={"solver": who}))
        assert found["served_by"]["solver"] == who
        assert found["served_by"]["verifier"] == "step-00000001"
        assert turns(tmp_path / f"team/evaluations/{checkpoint}.parquet", "solver") == want[checkpoint]
    assert want["base"] != want["last"]


def test_two_roles_of_another_run_with_a_policy_each_have_the_weights_of_their_own(small: Any, tmp_path: Path) -> None:
    team = {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text", "max_rounds": 1}
    settings = {"evaluation": {"every_steps": 0, "greedy": False}, "learner": {"lr": 0.05}}
    train(small(workflow=team, sharing="isolated", steps=1, **settings), tmp_path / "other", PlainLines(1, ()))
    evaluate_run(tmp_path / "other", Wanted(checkpoint="last", save="own"))
    train(small(workflow=team, steps=0, **settings), tmp_path / "run", PlainLines(0, ()))
    who = f"{tmp_path / 'other'}@last"
    roles = dict.fromkeys(("solver", "verifier", "corrector"), who)
    serving = serve_roles(RunFolder.open(tmp_path / "run").config(), None, roles)
    assert sorted(one.policy for one in serving.weights.values()) == ["corrector", "solver", "verifier"]
    evaluate_run(tmp_path / "run", Wanted(checkpoint="base", save="served", roles=roles))
    for role in roles:
        own, served = (
            turns(tmp_path / place, role)
            for place in ("other/evaluations/own.parquet", "run/evaluations/served.parquet")
        )
        assert own == served


def test_two_roles_may_be_played_by_different_models_of_one_name(run: Path) -> None:
    with serve(lambda asked: "Verdict: correct") as one, serve(solve) as other:
        roles = {"solver": f'{{model = "m", endpoint = "{other.url}"}}', "verifier": f"m@{one.url}"}
        found = evaluate_run(run, Wanted(checkpoint="base", system=True, roles=roles))
    assert found["system"]["avg"]["mean"] == 1.0
    assert found["ends"]["accepted"]["mean"] == 1.0
    assert found["rounds"]["episodes_by_rounds"] == {"4": 12}
    assert set(found["requests"]) == {f"m@{other.url}", f"m@{one.url}"}


def test_a_table_says_all_that_a_policy_can_say(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADDER_KEY", "sk-1")
    with serve(solve) as server:
        table = f'{{model = "m", endpoint = "{server.url}", api_key_env = "ADDER_KEY", extra = {{top_k = 7}}}}'
        evaluate_run(run, Wanted(checkpoint="base", roles={"solver": table}))
        short = Wanted(checkpoint="base", roles={"solver": f"m@{server.url}"}, api_key_env="ADDER_KEY")
        evaluate_run(run, short)
        assert server.asked[0].body["top_k"] == 7
        assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer sk-1"}


# -- a file of tasks --------------------------------------------------------------------------------------------------

PROBLEMS = [
    {"query": "How many edges has a cube?", "ans_box": "12", "qid": 1, "source": "made_up"},
    {"query": "A right angle and a half, in degrees?", "ans_box": r"135^\circ", "qid": 2, "source": "made_up"},
]
BOXED = ("workflow.prompts=default", "workflow.answer_format=boxed", "sampling.max_tokens=1000")


def contest(asked: Asked) -> Answer:
    """All three roles: a solver that is wrong about the cube, a verifier that sees it, a corrector that repairs it."""
    messages = asked.body["messages"]
    if messages[0]["role"] == "system":
        wrong = r"\boxed{8}" in asked.last
        return chat(f"Verdict: {'wrong' if wrong else 'correct'}", reasoning_content="count the edges again")
    if len(messages) == 3:
        return r"There are \boxed{12}."
    return r"There are \boxed{8}." if "cube" in asked.last else r"It is $\boxed{135}$ degrees."


def test_a_file_of_competition_problems_is_read_and_every_role_may_be_elsewhere(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "contest.jsonl"
    file.write_text("\n".join(map(json.dumps, PROBLEMS)), encoding="utf-8")
    with serve(contest) as server:
        who = f"m@{server.url}"
        roles = dict.fromkeys(("solver", "verifier", "corrector"), who)
        wanted = Wanted(
            checkpoint="base", system=True, samples=3, roles=roles, tasks=TaskFile(path=file), save="contest"
        )
        found = evaluate_run(run, wanted, overrides=BOXED)
    assert (found["solver"]["avg"]["mean"], found["system"]["avg"]["mean"]) == (0.5, 1.0)  # 135 is 135 degrees
    assert found["tasks"]["number"] == 2
    assert found["tasks"]["in_training_split"] == 0
    assert found["first_verdict"]["recall"]["mean"] == 1.0
    assert found["first_verdict"]["false_alarm"]["mean"] == 0.0
    assert found["rounds"]["episodes_by_rounds"] == {"4": 3, "5": 3}
    assert found["tokens"]["generated"]["verifier"] == (3 * 4 + 3 * 5) * 6  # words of reasoning and verdict
    record = json.loads(pq.read_table(run / "evaluations/contest.parquet").to_pylist()[0]["record"])
    report = record["graded"]["episode"]["turns"][1]
    assert report["text"] == "Verdict: wrong"
    assert report["completion"]["endpoint"]["reasoning"] == "count the edges again"
    assert json.loads((run / "evaluations/contest.json").read_text())["system"] == found["system"]


def test_tasks_that_were_trained_on_are_told(run: Path, tmp_path: Path) -> None:
    from rolecall.assemble import make_tasks

    trained = make_tasks(RunFolder.open(run).config()).train.tasks[0]
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps({"question": trained.question, "answer": trained.answer}))
    text = command(run, "--tasks", file, "--checkpoint", "base")
    assert "1 of the tasks are in the run's training split" in text


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"solvr": "builtin:tiny"}, "no role 'solvr'; did you mean 'solver'"),
        ({"solver": "http://localhost:1/v1"}, "wanted MODEL@URL"),
        ({"solver": "no such/folder/at all"}, "is no folder and no hub id"),
        ({"solver": "runs/mistyped@last"}, "names nobody: 'runs/mistyped' is no run folder"),
        ({"solver": ""}, "names nobody"),
        ({"solver": "builtin:tny"}, "no built-in model 'tny'"),
        ({"solver": "{model = 3"}, "no inline table"),
        ({"solver": '{modl = "m"}'}, "did you mean 'model'"),
        ({"solver": '{kind = "adapter", model = "m"}'}, "untrained adapter"),
    ],
)
def test_somebody_who_cannot_be_had_is_told(run: Path, roles: dict[str, str], words: str) -> None:
    with pytest.raises((UsageError, ConfigError)) as found:
        evaluate_run(run, Wanted(checkpoint="base", roles=roles))
    assert words in str(found.value)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"split": "train"}, "wanted test or validation"),
        ({"k": 3, "samples": 2}, "wanted k of at most that"),
        ({"save": "after"}, "--save is 'after'"),
        ({"save": "../x"}, "wanted a name of letters"),
        ({"checkpoint": "best"}, "has no checkpoint yet"),
        ({"checkpoint": "base", "roles": {"solver": "{run}@7"}}, "wanted best, last, base or a step of none"),
    ],
)
def test_what_cannot_be_evaluated_is_told(run: Path, wanted: dict[str, Any], words: str) -> None:
    if "roles" in wanted:
        wanted = wanted | {"roles": {"solver": wanted["roles"]["solver"].format(run=run)}}
    with pytest.raises(UsageError) as found:
        evaluate_run(run, Wanted(**wanted))
    assert words in str(found.value)


def test_the_system_is_that_of_one_workflow(small: Any, tmp_path: Path) -> None:
    train(small(steps=0), tmp_path / "alone", PlainLines(0, ()))
    with pytest.raises(UsageError, match="this run's workflow is 'single_agent'"):
        evaluate_run(tmp_path / "alone", BASE)
    tiny = ("workflow.name=solve_verify_correct", "workflow.prompts=tiny", "workflow.answer_format=text")
    assert "system" in evaluate_run(tmp_path / "alone", BASE, overrides=(*tiny, "workflow.max_iterations=1"))


def test_an_endpoint_that_refuses_everything_is_no_measurement(run: Path) -> None:
    with (
        serve(lambda asked: error(404, "The model `m` does not exist.")) as server,
        pytest.raises(
            EngineError, match=r"all 12 episodes failed at an engine; the first at solver:0: .*does not exist"
        ),
    ):
        evaluate_run(run, Wanted(checkpoint="base", system=True, roles={"solver": f"m@{server.url}"}))


def test_episodes_that_failed_are_counted_as_wrong_and_told(run: Path) -> None:
    def sometimes(asked: Asked) -> Answer:
        return error(400, "too long") if asked.number % 2 else solve(asked)

    with serve(sometimes) as server:
        text = command(run, "--system", "--checkpoint", "base", "--solver", f"m@{server.url}")
    assert "6 episodes failed and count as wrong; the first at solver:0" in text
    assert "answered 400: too long" in text
    assert "ends failed" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--question", "q"], "--question is about a file of tasks"),
        (["--role", "solver"], "not of the form ROLE=WHO"),
        (["--solver", "a", "--role", "solver=b"], "the second to play the solver"),
    ],
)
def test_options_that_do_not_fit_together_are_told(run: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        command(run, *arguments)
