"""The policies that one process hosts: base models, their adapters, versions, loading and scoring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.utils import logging

from rolecall.engines.local_cache import ColumnCache
from rolecall.engines.local_fast import FastRunner, is_fast
from rolecall.engines.local_lora import AdapterBank, read_adapter
from rolecall.engines.local_runner import GenericRunner, Runner, check_architecture
from rolecall.engines.read_model import read_causal_lm
from rolecall.engines.specs import LoraSpec, PolicySpec, resolve_model
from rolecall.errors import ConfigError, EngineError, boundary, nearest

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SCORE_LOGITS = 1 << 24  # logits held at a time while scoring
SCORE_TOKENS = 1 << 14  # rows times columns scored at a time
FORWARD_COLUMNS = 512  # columns fed in one forward pass: bounds the attention mask

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """One copy of a model's weights in this process, how to run it, and its adapters."""

    model: Any
    runner: Runner
    bank: AdapterBank
    device: torch.device
    end_ids: tuple[int, ...]
    max_positions: int
    tied: Mapping[str, str]


def end_ids_of(model: Any, path: str) -> tuple[int, ...]:
    """The ids that end a completion: of the generation config, else of the config, else the tokenizer's."""
    for source in (model.generation_config, model.config):
        found = getattr(source, "eos_token_id", None) if source is not None else None
        if found is not None:
            return tuple(found) if isinstance(found, (list, tuple)) else (int(found),)
    with boundary(ConfigError, f"the tokenizer of {path!r}, asked for its end token as the model names none,"):
        found = AutoTokenizer.from_pretrained(path).eos_token_id
    return () if found is None else (int(found),)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bar of Transformers for a moment; the run has its own."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_base(model_name: str, dtype: str, adapters: Sequence[tuple[str, LoraSpec]], *, fast: bool = True) -> Base:
    """Read a model from disk to the GPU if there is one, patch in empty adapters, and choose its runner."""
    if dtype not in DTYPES:
        raise ConfigError(f"model {model_name!r} has dtype {dtype!r}{nearest(dtype, DTYPES)}")
    path = resolve_model(model_name)
    with boundary(ConfigError, f"loading model {model_name!r}"), quiet():
        model = read_causal_lm(path, DTYPES[dtype])
    check_architecture(model.config.get_text_config(), model_name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).eval().requires_grad_(False)
    tied = tied_names(model)
    bank = AdapterBank(model, adapters, model_name)
    runner: Runner = FastRunner(model) if fast and is_fast(model) else GenericRunner(model)
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return Base(
        model=model,
        runner=runner,
        bank=bank,
        device=device,
        end_ids=end_ids_of(model, path),
        max_positions=int(limit) if limit else 1 << 30,
        tied=tied,
    )


class Host:
    """Every policy by name. A trained `model` has weights of its own; `adapter` and `frozen` policies of one model and
    dtype share one base, and with it their batches."""

    def __init__(self, specs: Sequence[PolicySpec], *, fast: bool = True) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.versions = dict.fromkeys(self.specs, 0)
        self.routes: dict[str, tuple[str, ...]] = {}
        self.bases: dict[tuple[str, ...], Base] = {}
        self.adapted = {spec.name for spec in specs if spec.kind == "adapter" or spec.adapter is not None}
        adapters: dict[tuple[str, ...], list[tuple[str, LoraSpec]]] = {}
        saved: dict[str, dict[str, torch.Tensor]] = {}
        for spec in specs:
            own = (spec.name,) if spec.kind == "model" else ()
            key = (resolve_model(spec.model), spec.dtype, *own)
            self.routes[spec.name] = key
            adapters.setdefault(key, [])
            if spec.name in self.adapted:
                lora = spec.lora
                if spec.adapter is not None:
                    lora, saved[spec.name] = saved_adapter(spec)
                assert lora is not None
                adapters[key].append((spec.name, lora))
        for key, of_base in adapters.items():
            self.bases[key] = load_base(key[0], key[1], of_base, fast=fast)
        for policy, tensors in saved.items():
            shapes = self.bases[self.routes[policy]].bank.shapes(policy)
            where = f"the saved adapter of policy {policy!r} on the base model {self.specs[policy].model!r}"
            check_tensors(where, shapes, tensors)
            self.bases[self.routes[policy]].bank.load(policy, tensors)

    def base(self, policy: str) -> Base:
        return self.bases[self.routes[policy]]

    def adapter_number(self, policy: str) -> int:
        """The number of a policy's adapter in its base's bank; 0 is the base itself."""
        return self.base(policy).bank.index[policy if policy in self.adapted else None]

    def shapes(self, policy: str) -> Shapes:
        """Names and shapes that `load` wants; a tied LM head is optional there and left out here."""
        base = self.base(policy)
        if policy in self.adapted:
            return base.bank.shapes(policy)
        names = {name: tuple(tensor.shape) for name, tensor in base.model.state_dict().items()}
        return {name: shape for name, shape in names.items() if name not in self.optional(policy)}

    def optional(self, policy: str) -> Mapping[str, str]:
        """Names that `load` accepts beside `shapes`, each with the tensor that it must equal: a tied LM head."""
        base = self.base(policy)
        return base.tied if policy not in self.adapted else {}

    @torch.no_grad()
    def load(self, policy: str, version: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Make `tensors` version `version` of `policy`; everything is checked before the first one is copied."""
        base = self.base(policy)
        shapes = self.shapes(policy)
        check_tensors(f"policy {policy!r} version {version}", shapes, tensors, self.optional(policy))
        if policy in self.adapted:
            base.bank.load(policy, tensors)
        else:
            own = base.model.state_dict()
            for name in shapes:
                own[name].copy_(tensors[name])
        self.versions[policy] = version

    @torch.no_grad()
    def score(
        self, policy: str, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float
    ) -> list[list[float]]:
        """Log-probabilities of completions after prompts at `temperature` (0 counts as 1); see `Engine.score`."""
        base = self.base(policy)
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i][0]) + len(sequences[i][1]))
        found: list[list[float]] = [[] for _ in sequences]
        while order:
            widest = len(sequences[order[-1]][0]) + len(sequences[order[-1]][1])
            num = max(1, SCORE_TOKENS // widest)
            order, chunk = order[:-num], order[-num:]
            scores = self.score_rows(base, self.adapter_number(policy), [sequences[i] for i in chunk], temperature)
            for i, row in zip(chunk, scores, strict=True):
                found[i] = row
        return found

    def score_rows(
        self, base: Base, adapter: int, rows: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float
    ) -> list[list[float]]:
        """One batch, right-aligned, fed a slice of columns at a time so that few logits exist at once."""
        lengths = [len(prompt) + len(completion) for prompt, completion in rows]
        width, num = max(lengths), len(rows)
        ids = torch.zeros(num, width, dtype=torch.long)
        for i, (prompt, completion) in enumerate(rows):
            ids[i, width - lengths[i] :] = torch.tensor([*prompt, *completion], dtype=torch.long)
        ids = ids.to(base.device)
        start = torch.tensor([width - length for length in lengths], device=base.device)
        base.bank.activate(torch.full((num,), adapter, device=base.device) if adapter else None)
        cache = ColumnCache(rows=num, columns=width)
        step = min(FORWARD_COLUMNS, max(1, SCORE_LOGITS // (num * base.runner.vocab_size)))
        first_scored = width - max(len(completion) for _, completion in rows) - 1
        parts = []
        column = 0
        while column < width - 1:
            if column < first_scored:
                stop, keep = min(first_scored, column + FORWARD_COLUMNS), 1
            else:
                stop, keep = min(width - 1, column + step), min(width - 1, column + step) - column
            logits = base.runner.forward(ids[:, column:stop], start, cache, keep)
            if column >= first_scored:
                logits = logits.float() if temperature in (0.0, 1.0) else logits.float() / temperature
                target = ids[:, column + 1 : stop + 1, None]
                parts.append((logits.gather(-1, target)[..., 0] - logits.logsumexp(dim=-1)).cpu())
            column = stop
        scores = torch.cat(parts, dim=1) if parts else torch.zeros(num, 0)
        return [scores[i, scores.shape[1] - len(done) :].tolist() for i, (_, done) in enumerate(rows)]


def saved_adapter(spec: PolicySpec) -> tuple[LoraSpec, dict[str, torch.Tensor]]:
    """The saved adapter that a policy starts from; `ConfigError` when its table says another shape."""
    assert spec.adapter is not None
    lora, tensors = read_adapter(spec.adapter)
    if spec.lora is not None and (spec.lora.rank, spec.lora.alpha) != (lora.rank, lora.alpha):
        raise ConfigError(
            f"policy {spec.name!r} says rank {spec.lora.rank}, alpha {spec.lora.alpha}, and its adapter "
            f"{spec.adapter!r} has rank {lora.rank}, alpha {lora.alpha}; make them equal, or leave the table out"
        )
    return lora, tensors


def tied_names(model: Any) -> dict[str, str]:
    """The state dict's name of a tied LM head, with that of the embedding whose weight it shares; {} when it has its
    own."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is not embedding.weight:
        return {}
    names = {id(module): f"{name}.weight" for name, module in model.named_modules()}
    return {names[id(head)]: names[id(embedding)]}


def some(names: Sequence[str], shown: int = 3) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{list(names[:shown])}{more}" if names else "none"


def check_tensors(
    where: str, wanted: Shapes, seen: Mapping[str, torch.Tensor], tied: Mapping[str, str] = MappingProxyType({})
) -> None:
    """`EngineError` naming missing and unexpected tensors, the first of another shape, the first not finite; and a
    tensor of `tied` that is there and differs from the one it is tied to."""
    missing = sorted(wanted.keys() - seen.keys())
    unexpected = sorted(seen.keys() - wanted.keys() - tied.keys())
    if missing or unexpected:
        raise EngineError(f"{where}: tensors missing: {some(missing)}; unexpected: {some(unexpected)}")
    for name, shape in wanted.items():
        if tuple(seen[name].shape) != shape:
            raise EngineError(f"{where}: tensor {name!r} has shape {tuple(seen[name].shape)}; wanted {shape}")
        if not bool(torch.isfinite(seen[name]).all()):
            raise EngineError(f"{where}: tensor {name!r} holds values that are not finite")
    for name, twin in tied.items():
        if name in seen and not torch.equal(seen[name], seen[twin]):
            raise EngineError(f"{where}: tensor {name!r} differs from {twin!r}, to which the model has it tied")
