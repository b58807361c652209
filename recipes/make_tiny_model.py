"""Makes the tiny model of the laptop recipes from nothing: a Solver, a Verifier and a Corrector in 0.75 M parameters.

    python recipes/make_tiny_model.py --out src/rolecall/models/tiny --seed 0

The tasks are equations such as `13*x+2=184`. The Solver answers from the head, which needs the inverse; the Verifier
puts the proposed value in, writes what comes out and how far it is off, which takes more tokens and is easier; the
Corrector reads that residual, and needs to add only a small correction. The model is trained on transcripts written
by `tiny_equations.py` and, once it solves a little, on inputs that it sampled itself. It is stopped early, on
accuracy, so that reinforcement learning has something left to teach to every role. Only tasks of the train split are
used; the progress lines are measured on the validation split. On busy cores `--threads 1` is much the faster.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tiny_equations import Equation, Judged, equations, near_miss, write_report
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rolecall.records import Message, Verdict
from rolecall.workflows.parse import parse_verdict
from rolecall.workflows.prompting import PromptSet, load_prompts
from rolecall.workflows.solve_verify_correct import HOLES

MAX_TOKENS = {"solver": 4, "verifier": 24, "corrector": 4}
MAX_ROUNDS = 2

SPECIALS = ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|pad|>")
WORDS = ("Solve ", "Check x=", "Repair x=", " Verdict:", " wrong", " correct", "*x", " off ")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

_INTEGER = re.compile(r"-?\d{1,4}")


# ------------------------------------------------------------------------------------ the model and its tokenizer


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: 256 bytes, the specials, and just the merges that make each of WORDS one token."""
    space = "Ġ"
    vocabulary = {token: index for index, token in enumerate((*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())))}
    merges: list[tuple[str, str]] = []
    for word in (text.replace(" ", space) for text in WORDS):
        for end in range(1, len(word)):
            if word[: end + 1] not in vocabulary:
                vocabulary[word[: end + 1]] = len(vocabulary)
                merges.append((word[:end], word[end]))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIALS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>", padding_side="left",
        additional_special_tokens=list(SPECIALS[:3]), clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=336, max_position_embeddings=512, tie_word_embeddings=True,
        initializer_range=0.05, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


class Speaker:
    """The model under training together with what turns prompts into tokens and samples replies."""

    def __init__(self) -> None:
        self.tokenizer = make_tokenizer()
        self.model = make_model(self.tokenizer)
        self.prompts: PromptSet = load_prompts("tiny", HOLES)

    def prompt(self, role: str, **values: str) -> str:
        messages: list[Message] = self.prompts[role].messages(**values)
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    @torch.no_grad()
    def reply(self, role: str, prompts: Sequence[str], greedy: bool = False) -> list[str]:
        """Sampled at temperature 1 from the whole distribution, or greedy; what stands before <|end|>, stripped."""
        if not prompts:
            return []
        inputs = self.tokenizer(list(prompts), return_tensors="pt", padding=True, add_special_tokens=False)
        sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        self.model.eval()
        ids = self.model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=MAX_TOKENS[role],
            **sampling,
        )  # fmt: skip
        texts = self.tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        return [text.strip() for text in texts]


# ------------------------------------------------------------------------------------------------ measuring


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """How the team does on some tasks: shares between 0 and 1, nan where the denominator is 0."""

    solver: float
    team: float
    recall: float
    false_alarms: float
    corrector: float

    def __str__(self) -> str:
        return (
            f"solver {self.solver:.3f}  team {self.team:.3f}  verifier recall {self.recall:.3f} "
            f"false alarms {self.false_alarms:.3f}  corrector on wrong {self.corrector:.3f}"
        )


def play(speaker: Speaker, tasks: Sequence[Equation], greedy: bool = False) -> tuple[Figures, list[Judged]]:
    """Let the team work on `tasks` as the workflow does; also give what the Verifier saw and wrote."""
    solutions = speaker.reply("solver", [speaker.prompt("solver", task=task.question) for task in tasks], greedy)
    solved = [solution == task.answer for solution, task in zip(solutions, tasks, strict=True)]
    judged: list[Judged] = []
    repaired: list[bool] = []
    live = list(range(len(tasks)))
    for _ in range(MAX_ROUNDS):
        prompts = [speaker.prompt("verifier", task=tasks[i].question, solution=solutions[i]) for i in live]
        reports = dict(zip(live, speaker.reply("verifier", prompts, greedy), strict=True))
        judged += [Judged(task=tasks[i], solution=solutions[i], report=reports[i]) for i in live]
        live = [i for i in live if parse_verdict(reports[i]) is not Verdict.CORRECT]
        prompts = [
            speaker.prompt("corrector", task=tasks[i].question, solution=solutions[i], report=reports[i]) for i in live
        ]
        for i, text in zip(live, speaker.reply("corrector", prompts, greedy), strict=True):
            if solutions[i] != tasks[i].answer:
                repaired.append(text == tasks[i].answer)
            solutions[i] = text
    alarms: dict[bool, list[bool]] = {True: [], False: []}
    for case in judged:
        alarms[case.solution == case.task.answer].append(parse_verdict(case.report) is not Verdict.CORRECT)
    right = [solution == task.answer for solution, task in zip(solutions, tasks, strict=True)]
    figures = Figures(
        solver=mean(solved), team=mean(right), recall=mean(alarms[False]), false_alarms=mean(alarms[True]),
        corrector=mean(repaired),
    )  # fmt: skip
    return figures, judged


def mean(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else float("nan")


# ------------------------------------------------------------------------------------------------- training


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The knobs of the supervised start; the learning rate falls to a twentieth over `num_steps`."""

    num_steps: int = 720
    batch_size: int = 128
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    shares: tuple[float, float, float] = (0.15, 0.6, 0.25)  # of solver, verifier and corrector examples
    own_share: float = 0.6  # of verifier and corrector inputs, once there are own ones
    own_from: float = 0.12  # solver accuracy at which the model's own inputs come in
    verdict_weight: float = 2.0  # of the verdict's token in the loss
    check_every: int = 60
    stop_team: float = 0.45
    stop_recall: float = 0.65
    stop_false_alarms: float = 0.35

    def rate(self, step: int) -> float:
        decay = max(0.05, 1 - (step - 1) / self.num_steps)
        return self.learning_rate * decay * min(1.0, step / self.warmup_steps)

    def is_reached_by(self, figures: Figures) -> bool:
        return (
            figures.team >= self.stop_team
            and figures.recall >= self.stop_recall
            and figures.false_alarms <= self.stop_false_alarms
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One transcript: a role's prompt and the reply to learn."""

    role: str
    prompt: str
    reply: str


def draw_example(
    tasks: Sequence[Equation], own: Sequence[Judged], plan: Plan, rng: random.Random, speaker: Speaker
) -> Example:
    role = rng.choices(("solver", "verifier", "corrector"), plan.shares)[0]
    task = rng.choice(tasks)
    if role == "solver":
        return Example(role=role, prompt=speaker.prompt(role, task=task.question), reply=task.answer)
    case = invent_case(task, role, rng)
    if own and rng.random() < plan.own_share:
        case = adapt_case(rng.choice(own), case, role, rng)
    if role == "verifier":
        prompt = speaker.prompt(role, task=case.task.question, solution=case.solution)
        return Example(role=role, prompt=prompt, reply=write_report(case.task, case.solution))
    prompt = speaker.prompt(role, task=case.task.question, solution=case.solution, report=case.report)
    return Example(role=role, prompt=prompt, reply=case.task.answer)


def invent_case(task: Equation, role: str, rng: random.Random) -> Judged:
    """A solution with a perfect report; the Verifier sees right ones too, the Corrector only wrong ones."""
    right = role == "verifier" and rng.random() < 0.4
    solution = task.answer if right else near_miss(task, rng)
    return Judged(task=task, solution=solution, report=write_report(task, solution))


def adapt_case(own: Judged, invented: Judged, role: str, rng: random.Random) -> Judged:
    """The model's own case; for the Corrector seldom a right solution, and the report is a perfect one in 60 %."""
    if role == "verifier":
        return own
    if own.solution == own.task.answer and rng.random() < 0.9:
        return invented
    return replace(own, report=write_report(own.task, own.solution)) if rng.random() < 0.6 else own


def add_gradients(speaker: Speaker, examples: Sequence[Example], plan: Plan, num_targets: int) -> float:
    """Backward through the weighted cross-entropy of the replies and their <|end|>, over `num_targets` tokens."""
    tokenizer = speaker.tokenizer
    prompts = tokenizer([example.prompt for example in examples])["input_ids"]
    replies = tokenizer([example.reply + tokenizer.eos_token for example in examples])["input_ids"]
    length = max(len(prompt) + len(reply) for prompt, reply in zip(prompts, replies, strict=True))
    ids = torch.full((len(examples), length), tokenizer.pad_token_id)
    weights = torch.zeros(len(examples), length)
    for row, (example, prompt, reply) in enumerate(zip(examples, prompts, replies, strict=True)):
        end = len(prompt) + len(reply)
        ids[row, :end] = torch.tensor(prompt + reply)
        weights[row, len(prompt) : end] = 1.0
        if example.role == "verifier":
            weights[row, end - 2] = plan.verdict_weight
    logits = speaker.model(input_ids=ids).logits[:, :-1]
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    loss = (nll * weights[:, 1:].flatten()).sum() / num_targets
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def update(speaker: Speaker, examples: list[Example], plan: Plan, optimizer: torch.optim.Optimizer) -> float:
    """One optimizer step, the Solver's short examples apart to save padding; the loss of a target token."""
    num_targets = sum(len(ids) + 1 for ids in speaker.tokenizer([example.reply for example in examples])["input_ids"])
    optimizer.zero_grad()
    loss = 0.0
    for short in (True, False):
        if part := [example for example in examples if (example.role == "solver") == short]:
            loss += add_gradients(speaker, part, plan, num_targets)
    torch.nn.utils.clip_grad_norm_(speaker.model.parameters(), 1.0)
    optimizer.step()
    return loss


def train(speaker: Speaker, plan: Plan, seed: int) -> None:
    """Supervised steps until the team is as good as the plan wants, and no better."""
    rng = random.Random(seed)
    tasks, validation = equations("train"), rng.sample(equations("validation"), 300)
    optimizer = torch.optim.AdamW(speaker.model.parameters(), betas=(0.9, 0.95))
    own: list[Judged] = []
    start = time.monotonic()
    for step in range(1, plan.num_steps + 1):
        optimizer.param_groups[0]["lr"] = plan.rate(step)
        speaker.model.train()
        examples = [draw_example(tasks, own, plan, rng, speaker) for _ in range(plan.batch_size)]
        loss = update(speaker, examples, plan, optimizer)
        if step % plan.check_every:
            continue
        figures, _ = play(speaker, validation)
        print(f"step {step}  {time.monotonic() - start:.0f} s  loss {loss:.3f}  {figures}", flush=True)
        if plan.is_reached_by(figures):
            return
        if figures.solver >= plan.own_from:
            _, judged = play(speaker, rng.sample(tasks, 500))
            own = [case for case in judged if _INTEGER.fullmatch(case.solution)]
    print(f"stopped after {plan.num_steps} steps, short of the aim", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write the model to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    speaker = Speaker()
    print(f"{sum(p.numel() for p in speaker.model.parameters()):,} parameters, {len(speaker.tokenizer)} tokens")
    train(speaker, Plan(), arguments.seed)
    speaker.model.save_pretrained(arguments.out)
    speaker.tokenizer.save_pretrained(arguments.out)
    print(f"written to {arguments.out}")
    for greedy in (False, True):
        figures, _ = play(speaker, equations("validation"), greedy)
        print(f"validation, {'greedy' if greedy else 'sampled'}: {figures}")


if __name__ == "__main__":
    main()
