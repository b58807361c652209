"""Makes the tiny model of the laptop recipes from nothing: a Solver, a Verifier and a Corrector in 0.8 M parameters.

    python recipes/make_tiny_model.py --out src/rolecall/models/tiny --seed 0

The tasks are chain sums such as `7-9+3-8`. The Solver answers from the head. A *careful* Verifier works the sum out
term by term and then compares, which takes more tokens and is easier; a *hasty* one only says what it thinks. The
Corrector reads the report; a *stubborn* one repeats what it was given. The demonstrations hold both kinds, as people's
work would, and training stops early, on accuracy: what is left for reinforcement learning is to find out which way of
working pays, and to get better at it. Only tasks of the train split are used; figures are of the validation split.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from tiny_transcripts import Judged, Sum, TaskStream, near_miss, write_report
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rolecall.records import Message, Verdict
from rolecall.workflows.parse import parse_verdict
from rolecall.workflows.prompting import PromptSet, load_prompts
from rolecall.workflows.solve_verify_correct import HOLES

MAX_TOKENS = {"solver": 5, "verifier": 32, "corrector": 5}
MAX_ROUNDS = 2

SPECIALS = ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|pad|>")
WORDS = ("Solve ", "Check ", "Repair ", " Verdict:", "Verdict:", " wrong", " correct", ": ")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


# ------------------------------------------------------------------------------------ the model and its tokenizer


def make_tokenizer(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """Byte-level BPE: 256 bytes, the specials, and just the merges that make each of `words` one token."""
    space, line = "Ġ", "Ċ"
    vocabulary = {token: index for index, token in enumerate((*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())))}
    merges: list[tuple[str, str]] = []
    for word in (text.replace(" ", space).replace("\n", line) for text in words):
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


def make_model(tokenizer: PreTrainedTokenizerFast, width: int = 128) -> Qwen3ForCausalLM:
    """Four layers with heads of 32; about 0.2, 0.8 and 3 million parameters at widths of 64, 128 and 256."""
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=4, num_attention_heads=width // 32,
        num_key_value_heads=width // 64, head_dim=32, intermediate_size=width * 11 // 4, max_position_embeddings=512,
        tie_word_embeddings=True, initializer_range=0.05, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


class Speaker:
    """The model under training together with what turns prompts into tokens and samples replies."""

    def __init__(self) -> None:
        self.tokenizer = make_tokenizer()
        self.model = make_model(self.tokenizer)
        self.prompts: PromptSet = load_prompts("tiny", HOLES)
        self.max_tokens = MAX_TOKENS

    def prompt(self, role: str, **values: str) -> str:
        return self.chat(self.prompts[role].messages(**values))

    def chat(self, messages: Sequence[Message]) -> str:
        """The text of a whole prompt."""
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))

    @torch.no_grad()
    def reply(self, role: str, prompts: Sequence[str], greedy: bool = False) -> list[str]:
        """Sampled at temperature 1 from the whole distribution, or greedy; what stands before <|end|>, stripped."""
        if not prompts:
            return []
        inputs = self.tokenizer(list(prompts), return_tensors="pt", padding=True, add_special_tokens=False)
        sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        self.model.eval()
        ids = self.model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"],
            max_new_tokens=self.max_tokens[role], **sampling,
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
    careful: float  # share of reports that work the sum out
    totals: float  # share of those with the right last total

    def __str__(self) -> str:
        return (
            f"solver {self.solver:.3f}  team {self.team:.3f}  verifier recall {self.recall:.3f} "
            f"false alarms {self.false_alarms:.3f}  corrector on wrong {self.corrector:.3f}  "
            f"careful {self.careful:.3f} "
            f"with the right total {self.totals:.3f}"
        )


def play(speaker: Speaker, tasks: Sequence[Sum], greedy: bool = False) -> tuple[Figures, list[Judged]]:
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
    careful = [case for case in judged if "=" in case.report]
    figures = Figures(
        careful=len(careful) / len(judged),
        totals=mean([f"={case.task.answer}?" in case.report for case in careful]),
        solver=mean(solved), team=mean(right), recall=mean(alarms[False]), false_alarms=mean(alarms[True]),
        corrector=mean(repaired),
    )  # fmt: skip
    return figures, judged


def mean(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else float("nan")


# ------------------------------------------------------------------------------------------------- training


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The knobs of the supervised start."""

    batch_size: int = 128
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    shares: tuple[float, float, float] = (0.35, 0.5, 0.15)  # of solver, verifier and corrector examples
    short: float = 0.4  # share of shorter sums in the first phase
    careful: tuple[float, float] = (0.95, 0.4)  # share of verifiers that work the sum out, in the two phases
    stubborn: float = 0.35  # share of correctors that repeat what they were given
    own_share: float = 0.6  # of verifier and corrector inputs, once there are own ones
    own_from: float = 0.1  # solver accuracy at which the model's own inputs come in
    check_every: int = 50
    stop_solver: float = 0.36  # the first phase ends here
    stop_totals: float = 0.8
    last_steps: int = 100  # the second phase
    max_steps: int = 3000


@dataclass(frozen=True, kw_only=True, slots=True)
class Teacher:
    """Makes demonstrations: a role's prompt and the reply to learn."""

    speaker: Speaker
    plan: Plan
    rng: random.Random
    stream: TaskStream
    short: TaskStream

    def task(self, phase: int) -> Sum:
        short = phase == 0 and self.rng.random() < self.plan.short
        return (self.short if short else self.stream).take(1)[0]

    def example(self, own: Sequence[Judged], phase: int) -> tuple[str, str]:
        plan, rng, speaker = self.plan, self.rng, self.speaker
        role = rng.choices(("solver", "verifier", "corrector"), plan.shares)[0]
        case = rng.choice(own) if own and rng.random() < plan.own_share else None
        task = case.task if case and role != "solver" else self.task(phase)
        careful = rng.random() < plan.careful[phase]
        if role == "solver":
            return speaker.prompt("solver", task=task.question), task.answer
        if role == "verifier":
            solution = case.solution if case else (task.answer if rng.random() < 0.4 else near_miss(task, rng))
            prompt = speaker.prompt("verifier", task=task.question, solution=solution)
            return prompt, write_report(task, solution, careful)
        solution = case.solution if case else near_miss(task, rng)
        report = case.report if case else write_report(task, solution, careful)
        prompt = speaker.prompt("corrector", task=task.question, solution=solution, report=report)
        return prompt, solution if rng.random() < plan.stubborn else task.answer


def loss_of(speaker: Speaker, examples: Sequence[tuple[str, str]], num_targets: int) -> torch.Tensor:
    """Cross-entropy of the replies and their <|end|>, over `num_targets` tokens."""
    tokenizer = speaker.tokenizer
    prompts = tokenizer([prompt for prompt, _ in examples], add_special_tokens=False)["input_ids"]
    replies = tokenizer([reply + tokenizer.eos_token for _, reply in examples], add_special_tokens=False)["input_ids"]
    length = max(len(prompt) + len(reply) for prompt, reply in zip(prompts, replies, strict=True))
    ids = torch.full((len(examples), length), tokenizer.pad_token_id)
    targets = torch.full((len(examples), length), -100)
    for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        end = len(prompt) + len(reply)
        ids[row, :end] = torch.tensor(prompt + reply)
        targets[row, len(prompt) : end] = torch.tensor(reply)
    logits = speaker.model(input_ids=ids).logits[:, :-1]
    return (
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), reduction="sum") / num_targets
    )


def train(speaker: Speaker, plan: Plan, seed: int) -> None:
    """Supervised steps until the team is as good as the plan wants, and no better."""
    rng = random.Random(seed)
    validation = TaskStream("validation", seed=seed).take(300)
    teacher = Teacher(
        speaker=speaker, plan=plan, rng=rng, stream=TaskStream("train", seed=seed),
        short=TaskStream("train", seed=seed, short=True),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(speaker.model.parameters(), lr=plan.learning_rate, betas=(0.9, 0.95))
    own: list[Judged] = []
    phase, last = 0, plan.max_steps
    start = time.monotonic()
    step = 0
    while step < last:
        step += 1
        optimizer.param_groups[0]["lr"] = plan.learning_rate * min(1.0, step / plan.warmup_steps)
        speaker.model.train()
        loss = update(speaker, [teacher.example(own, phase) for _ in range(plan.batch_size)], optimizer)
        if step % plan.check_every:
            continue
        figures, _ = play(speaker, validation)
        print(f"step {step}  {time.monotonic() - start:.0f} s  loss {loss:.3f}  {figures}", flush=True)
        if phase == 0 and good_enough(figures, plan):
            phase, last = 1, step + plan.last_steps
        if figures.solver >= plan.own_from:
            _, own = play(speaker, teacher.stream.take(500))


def update(
    speaker: Speaker, examples: list[tuple[str, str]], optimizer: torch.optim.Optimizer, parts: int = 2
) -> float:
    """One optimizer step over the examples, in `parts` by length to save padding; the mean loss of a token."""
    num_targets = sum(len(ids) + 1 for ids in speaker.tokenizer([reply for _, reply in examples])["input_ids"])
    optimizer.zero_grad()
    total = 0.0
    ordered = sorted(examples, key=lambda pair: len(pair[0]) + len(pair[1]))
    ends = [len(ordered) * place // parts for place in range(parts + 1)]
    for begin, end in pairwise(ends):
        loss = loss_of(speaker, ordered[begin:end], num_targets)
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(speaker.model.parameters(), 1.0)
    optimizer.step()
    return total


def good_enough(figures: Figures, plan: Plan) -> bool:
    return figures.solver >= plan.stop_solver and figures.totals >= plan.stop_totals


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
    for greedy in (False, True):
        figures, _ = play(speaker, TaskStream("validation", seed=arguments.seed + 1).take(1000), greedy)
        print(f"validation, {'greedy' if greedy else 'sampled'}: {figures}")
    speaker.model.save_pretrained(arguments.out)
    speaker.tokenizer.save_pretrained(arguments.out)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
