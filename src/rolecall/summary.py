"""The figures at the ends of a run: the test set before and after, and summary.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolecall.evaluate import summarise
from rolecall.records import GradedEpisode
from rolecall.run import Run
from rolecall.run_episodes import episode_rows


def test_evaluation(run: Run, when: str) -> dict[str, Any]:
    """The test set, sampled and greedy; kept in the run folder, so that a resumed run does not use the set again."""
    name = f"evaluation_{when}.json"
    if (run.folder.path / name).is_file():
        return dict(run.folder.read_json(name))
    tasks = run.splits.test.tasks
    found: dict[str, Any] = {"step": run.step if when == "before" else best_step(run)}
    if when == "after" and found["step"] == 0 and run.step:
        run.progress.note("no step was as good on validation as the weights before training: these are measured again")
    if tasks:
        episodes = run.evaluation_episodes(tasks, label="test")
        run.folder.write_evaluation(when, episode_rows(found["step"], episodes, transcripts=run.transcripts))
        found["sampled"] = summarise(episodes).to_dict()
        if run.config.evaluation.greedy:
            found["greedy"] = run.evaluate(tasks, label="test", greedy=True).to_dict()
        run.progress.note(f"{when} training: {in_words(found['sampled'].get('team'), episodes)}")
    run.folder.write_json(name, found, "evaluation")
    return found


def best_step(run: Run) -> int:
    """The step whose weights are the run's result: the best on validation, 0 for those before training; without
    validation the last."""
    return run.totals.best_step if run.totals.best_step >= 0 else run.step


def in_words(team: dict[str, float] | None, episodes: Sequence[GradedEpisode]) -> str:
    """The team's accuracy; or, when every grade failed so that there is none, why the first one did."""
    if team is not None:
        return f"team {team['mean']:.3f} [{team['low']:.3f}, {team['high']:.3f}]"
    first = episodes[0]
    return (
        f"team unknown: the grader {first.episode.task.grader!r} failed on all {len(episodes)} answers; correct it, or "
        f"the tasks. The first failure: {first.team.detail:.500}"
    )


def final_summary(run: Run, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Write and return summary.json; intervals are 95 %, clustered by task."""
    totals = run.totals
    summary: dict[str, Any] = {
        "name": run.config.name,
        "seed": run.config.seed,
        "roles_to_policies": dict(run.plan.table.roles),
        "steps": run.step,
        "best_step": best_step(run),
        "wall_s": round(run.wall_s(), 3),
        "tokens": {"generated": totals.tokens_generated, "trained": totals.tokens_trained},
        "tokens_per_s": totals.tokens_generated / max(totals.generate_s, 1e-9),
        "parity": {"max_abs_diff": totals.parity_max},
        "outcomes": totals.outcomes,
        "cliff": run.guard.summary(totals),
        "accuracy": {},
        "roles": {},
        "evaluation": {"before": before, "after": after},
    }
    if "sampled" in before and "sampled" in after:
        summary["accuracy"] = {"before": before["sampled"].get("team"), "after": after["sampled"].get("team")}
        for role in run.plan.roles:
            figures = {
                when: side["sampled"]["roles"].get(role, {}).get("accuracy")
                for when, side in (("before", before), ("after", after))
            }
            summary["roles"][role] = {"accuracy": figures}
    run.folder.write_json("summary.json", summary, "summary")
    return summary
