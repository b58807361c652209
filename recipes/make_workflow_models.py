"""Makes the tiny models of the workflow study by the recipe of `make_tiny_model.py`.

    python recipes/make_workflow_models.py --scale 0.8M --out src/rolecall/models/tiny_workflows
    python recipes/make_workflow_models.py --scale 0.2M --out runs/models/workflows_0.2M
    python recipes/make_workflow_models.py --scale 3M --out runs/models/workflows_3M

One model speaks for every role of voting, evaluator_optimizer, orchestrator_workers, think_solve, debate and
single_agent on chain sums such as `7-9+3-8`, with the prompts of the set `tiny_workflows`. Training stops early, on
accuracy: demonstrations hold careful and hasty ways of working, repeated answers and plans with too many strategies,
and what pays is left for reinforcement learning to find out. Only tasks of the train split are used; figures are of
the validation split. The model of 0.8 million parameters goes on from the default one, which knows the sums; that of 3
million from this one, widened; that of 0.2 million begins from nothing.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from make_tiny_model import Speaker, make_model, make_tokenizer, mean, update
from tiny_transcripts import Sum, TaskStream
from transformers import AutoModelForCausalLM, AutoTokenizer
from workflow_transcripts import NUM_COPIES, SHARES, Habits, Scene, answers, demonstration, imagined, left, messages

from rolecall.engines.specs import resolve_model
from rolecall.records import Message, Verdict
from rolecall.workflows import debate, evaluator_optimizer, orchestrator_workers, single_agent, think_solve, voting
from rolecall.workflows.orchestrator_workers import parse_strategies
from rolecall.workflows.parse import parse_verdict
from rolecall.workflows.prompting import load_prompts
from rolecall.workflows.voting import parse_choice

WORKFLOWS = (single_agent, voting, evaluator_optimizer, orchestrator_workers, think_solve, debate)
WORDS = (
    "Solve ", "Vote ", "Choose ", "Generate ", "Judge ", "Refine ", "Plan ", "Work ", "Combine ", "Think ", "Debate ",
    "Revise", " \\boxed{", "\\boxed{", "\n\n", "### Candidate ", "STRATEGY ", "left", "pairs", "head", " Verdict:",
    "Verdict:", " wrong", " correct", ": ",
)  # fmt: skip
NOISE = 0.1
"""Of a widened weight, in standard deviations."""
LONG, PLAN, SHORT = 36, 24, 6
MAX_TOKENS = {
    **dict.fromkeys(SHARES, SHORT),
    **dict.fromkeys(("aggregator", "evaluator", "worker", "thinker"), LONG),
    "orchestrator": PLAN,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """A size of the model, and how good it gets before reinforcement learning takes over."""

    width: int
    learning_rate: float
    stop_answer: float  # accuracy from the head and
    stop_totals: float  # share of workings with the right total, at which the last phase begins
    max_steps: int
    start: str | None = None  # a model to go on from


SCALES = {
    "0.2M": Scale(width=64, learning_rate=4e-3, stop_answer=0.25, stop_totals=0.65, max_steps=1500),
    "0.8M": Scale(
        width=128, learning_rate=1e-3, stop_answer=0.36, stop_totals=0.6, max_steps=800, start="builtin:tiny"
    ),
    "3M": Scale(
        width=256,
        learning_rate=5e-4,
        stop_answer=0.45,
        stop_totals=0.8,
        max_steps=600,
        start="builtin:tiny_workflows",
    ),
}
LIKE = {
    **dict.fromkeys(("Vote ", "Generate ", "Plan ", "Work ", "Think ", "Debate "), "Solve "),
    **dict.fromkeys(("Choose ", "Judge "), "Check "),
    **dict.fromkeys(("Refine ", "Combine ", "Revise"), "Repair "),
}
"""Whose embedding a new word begins with, where a model goes on from the default one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The knobs of the supervised start that all sizes share."""

    batch_size: int = 128
    warmup_steps: int = 50
    short: float = 0.3  # share of shorter sums in the first phase
    careful: tuple[float, float] = (0.9, 0.4)  # share of demonstrators that work the sum out, in the two phases
    own_share: float = 0.6  # of scenes, once there are own ones
    own_from: float = 0.1  # accuracy from the head at which the model's own scenes come in
    num_own: int = 200
    check_every: int = 50
    num_checked: int = 100
    last_steps: int = 50  # the second phase


class WorkflowSpeaker(Speaker):
    """The model under training, with the prompts of every workflow."""

    def __init__(self, scale: Scale) -> None:
        self.tokenizer = make_tokenizer(WORDS)
        for word in WORDS:
            assert len(self.tokenizer(word, add_special_tokens=False)["input_ids"]) == 1, word
        self.model = make_model(self.tokenizer, scale.width)
        holes = {role: names for workflow in WORKFLOWS for role, names in workflow.HOLES.items()}
        self.prompts = load_prompts("tiny_workflows", holes)
        self.max_tokens = MAX_TOKENS
        if scale.start is not None:
            self.go_on_from(resolve_model(scale.start))

    @torch.no_grad()
    def go_on_from(self, folder: str) -> None:
        """Take over a model's layers, widened to this width, and its embeddings of the tokens that both have."""
        old, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        times = self.model.config.hidden_size // old.config.hidden_size
        theirs, rows = tokenizer.get_vocab(), old.get_input_embeddings().weight
        like = {new.replace(" ", "Ġ"): known.replace(" ", "Ġ") for new, known in LIKE.items()}
        for token, place in self.tokenizer.get_vocab().items():
            row = theirs.get(token, theirs.get(like.get(token, token)))
            if row is not None:
                self.model.get_input_embeddings().weight[place] = rows[row].repeat(times)
        layers = {name: wide(name, w, times) for name, w in old.state_dict().items() if "embed" not in name}
        layers.pop("lm_head.weight", None)
        self.model.load_state_dict(layers, strict=False)

    def say(self, role: str, prompts: Sequence[Sequence[Message]], greedy: bool = False) -> list[str]:
        return self.reply(role, [self.chat(one) for one in prompts], greedy)


def wide(name: str, weight: torch.Tensor, times: int) -> torch.Tensor:
    """A weight of a model `times` as wide that computes the same, every unit standing there so many times (Chen et al.,
    arXiv 1511.05641), and a little noise, without which the twins would stay alike."""
    if times == 1:
        return weight
    if weight.ndim == 1:
        if name.endswith(("q_norm.weight", "k_norm.weight")):  # by head, and heads stay as they are
            return weight
        return weight.repeat(times) / (times if name == "model.norm.weight" else 1)
    same = weight.repeat(times, times) / times
    return same + NOISE * same.std() * torch.randn_like(same)


# ------------------------------------------------------------------------------------------------ measuring


def play(speaker: WorkflowSpeaker, tasks: Sequence[Sum], greedy: bool = False) -> tuple[dict[str, float], list[Scene]]:
    """Every role's accuracy (shares in [0, 1], nan without a denominator) on what the other roles said, and the scenes
    that they made."""
    rng, prompts = random.Random(0), speaker.prompts
    blank = [imagined(task, rng, Habits(careful=1.0)) for task in tasks]

    def ask(role: str, scenes: Sequence[Scene]) -> list[str]:
        return speaker.say(role, [messages(prompts, role, scene) for scene in scenes], greedy)

    said = list(zip(*[ask("voter", blank) for _ in range(NUM_COPIES)], strict=True))
    plans = ask("orchestrator", blank)
    kept = [tuple(parse_strategies(text)[:NUM_COPIES]) or ("head",) for text in plans]
    cast = [replace(scene, answers=a, strategies=s) for scene, a, s in zip(blank, said, kept, strict=True)]
    jobs = [(place, at) for place, scene in enumerate(cast) for at in range(len(scene.strategies))]
    texts = speaker.say("worker", [messages(prompts, "worker", cast[p], at) for p, at in jobs], greedy)
    work: list[list[str]] = [[] for _ in cast]
    for (place, _), text in zip(jobs, texts, strict=True):
        work[place].append(text)
    reports, thoughts = ask("evaluator", cast), ask("thinker", cast)
    scenes = [
        replace(scene, report=r, work=tuple(w), reasoning=t)
        for scene, r, w, t in zip(cast, reports, work, thoughts, strict=True)
    ]
    replies = {role: ask(role, scenes) for role in SHARES if role not in ("orchestrator", "worker", "evaluator")}
    return _figures(scenes, plans, replies), scenes


def _figures(scenes: Sequence[Scene], plans: Sequence[str], replies: Mapping[str, Sequence[str]]) -> dict[str, float]:
    right = [[answers(text, scene.task) for text in scene.answers] for scene in scenes]
    judged = [parse_verdict(scene.report) for scene in scenes]
    wrong = [at for at, row in enumerate(right) if not row[0]]
    picks = [parse_choice(text, NUM_COPIES) or 1 for text in replies["aggregator"]]
    workings = [(scene.report, scene.task) for scene in scenes] + [
        (text, scene.task) for text, scene in zip(replies["aggregator"], scenes, strict=True)
    ]
    careful = [(text, task) for text, task in workings if "=" in text]
    done = [(s, text, scene.task) for scene in scenes for s, text in zip(scene.strategies, scene.work, strict=True)]
    figures = {
        "answer": mean([answers(t, s.task) for t, s in zip(replies["solver"], scenes, strict=True)]),
        "voter": mean([one for row in right for one in row]),
        "any_correct": mean([any(row) for row in right]),
        "voting": mean([row[pick - 1] for row, pick in zip(right, picks, strict=True)]),
        "careful": len(careful) / len(workings),
        "totals": mean([text.startswith(left(task)) for text, task in careful]),
        "recall": mean([judged[at] is Verdict.WRONG for at in wrong]),
        "false_alarms": mean([judged[at] is not Verdict.CORRECT for at, row in enumerate(right) if row[0]]),
        "plans_valid": mean([1 <= len(parse_strategies(text)) <= NUM_COPIES for text in plans]),
        **{f"worker_{one}": mean([answers(t, k) for s, t, k in done if s == one]) for one in ("left", "pairs", "head")},
        "refined": mean([answers(replies["refine"][at], scenes[at].task) for at in wrong]),
    }
    for role in ("synthesizer", "solver_with_reasoning", "revise"):
        figures[role] = mean([answers(t, s.task) for t, s in zip(replies[role], scenes, strict=True)])
    return figures


def in_words(figures: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.2f}" for name, value in figures.items())


# ------------------------------------------------------------------------------------------------- training


def train(speaker: WorkflowSpeaker, scale: Scale, plan: Plan, seed: int) -> None:
    """Supervised steps until the roles are as good as the scale wants, and no better."""
    rng = random.Random(seed)
    validation = TaskStream("validation", seed=seed).take(plan.num_checked)
    stream, short = TaskStream("train", seed=seed), TaskStream("train", seed=seed, short=True)
    optimizer = torch.optim.AdamW(speaker.model.parameters(), lr=scale.learning_rate, betas=(0.9, 0.95))
    own: list[Scene] = []
    phase, last, step, start = 0, scale.max_steps, 0, time.monotonic()

    def example() -> tuple[str, str]:
        habits = Habits(careful=plan.careful[phase])
        role = rng.choices(list(SHARES), list(SHARES.values()))[0]
        if own and rng.random() < plan.own_share:
            scene = rng.choice(own)
        else:
            brief = phase == 0 and rng.random() < plan.short
            scene = imagined((short if brief else stream).take(1)[0], rng, habits)
        prompt, reply = demonstration(speaker.prompts, role, scene, rng, habits)
        return speaker.chat(prompt), reply

    while step < last:
        step += 1
        optimizer.param_groups[0]["lr"] = scale.learning_rate * min(1.0, step / plan.warmup_steps)
        speaker.model.train()
        loss = update(speaker, [example() for _ in range(plan.batch_size)], optimizer, parts=6)
        if step % plan.check_every:
            continue
        figures, _ = play(speaker, validation)
        print(f"step {step}  {time.monotonic() - start:.0f} s  loss {loss:.3f}  {in_words(figures)}", flush=True)
        good = figures["answer"] >= scale.stop_answer and figures["totals"] >= scale.stop_totals
        if phase == 0 and good:
            phase, last = 1, step + plan.last_steps
        if figures["answer"] >= plan.own_from:
            _, own = play(speaker, stream.take(plan.num_own))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write the model to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    scale = SCALES[arguments.scale]
    speaker = WorkflowSpeaker(scale)
    print(f"{sum(p.numel() for p in speaker.model.parameters()):,} parameters, {len(speaker.tokenizer)} tokens")
    train(speaker, scale, Plan(), arguments.seed)
    for greedy in (False, True):
        figures, _ = play(speaker, TaskStream("validation", seed=arguments.seed + 1).take(500), greedy)
        print(f"validation, {'greedy' if greedy else 'sampled'}: {in_words(figures)}")
    speaker.model.save_pretrained(arguments.out)
    speaker.tokenizer.save_pretrained(arguments.out)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
