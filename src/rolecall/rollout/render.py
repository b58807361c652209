"""Messages to tokens, and tokens to the text that other roles may see. Nothing sampled is ever encoded again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rolecall.errors import ConfigError, boundary
from rolecall.records import Message, Messages, Stop

THINK = ("<think>", "</think>")
_CACHE_SIZE = 4096
CACHED_CHARS = 1 << 16
CHARS_A_TOKEN, SLACK = 8, 64
"""Characters from which a prompt is looked at from its end: more than most tokens have; and tokens near a cut."""


class Renderer(Protocol):
    """Token ids of a prompt, and text of a completion."""

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end a completion; an end token is trained when it was sampled, and never visible."""
        ...

    def encode(self, messages: Messages, enough: int | None = None) -> tuple[int, ...]:
        """The prompt's ids. Of a prompt of more than `enough` tokens the last `enough` + 1 will do: it is too long, and
        need not be read whole."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """All of the text, reasoning included, special tokens left out."""
        ...

    def visible(self, ids: Sequence[int], stop: Stop) -> str | None:
        """What other roles may see: the text after the reasoning; None when the reasoning did not end."""
        ...


def without_end(ids: Sequence[int], end_ids: Sequence[int]) -> Sequence[int]:
    return ids[:-1] if ids and ids[-1] in end_ids else ids


def after_reasoning(text: str, opened: bool, think: tuple[str, str] = THINK) -> str | None:
    """The text after the last closing mark; None when a reasoning was opened (by prompt or text) and not closed.

    >>> after_reasoning("<think>2+2</think> 4", opened=False)
    '4'
    """
    start, end = think
    if end in text:
        return text.rpartition(end)[2].strip()
    if opened or text.lstrip().startswith(start):
        return None
    return text


class PlainRenderer:
    """Bytes as token ids, no tokenizer: for scripted engines and tests. Id 256 ends a completion.

    >>> PlainRenderer().decode(PlainRenderer().encode([{"role": "user", "content": "hi"}]))
    'user: hi\\nassistant:'
    """

    end_ids: tuple[int, ...] = (256,)

    def encode(self, messages: Messages, enough: int | None = None) -> tuple[int, ...]:
        text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return tuple(f"{text}assistant:".encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def visible(self, ids: Sequence[int], stop: Stop) -> str | None:
        return after_reasoning(self.decode(ids), opened=False)


class EndpointRenderer(PlainRenderer):
    """For a policy that an endpoint serves: it is sent the messages, and only it knows their tokens. Sixteen numbers, a
    hash of the messages, stand for the prompt; a reply has its text in `Completion.endpoint`."""

    end_ids: tuple[int, ...] = ()

    def encode(self, messages: Messages, enough: int | None = None) -> tuple[int, ...]:
        said = json.dumps([[message["role"], message["content"]] for message in messages])
        return tuple(hashlib.blake2b(said.encode(), digest_size=16).digest())


class ChatRenderer:
    """A Transformers tokenizer and its chat template; `template_options` go to the template (`enable_thinking=False`).

    `end_ids` are the tokenizer's end token, the token with which its template ends an assistant's message, and
    `more_end_ids`: those that the model itself names (`engines.read_model.named_end_ids`).
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        template_options: Mapping[str, Any] | None = None,
        think: tuple[str, str] = THINK,
        end_ids: Sequence[int] | None = None,
        more_end_ids: Sequence[int] = (),
    ) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                f"the tokenizer of {getattr(tokenizer, 'name_or_path', None) or tokenizer!r} has no chat template; "
                f"choose an instruction-tuned model, or set tokenizer.chat_template to a template of your own"
            )
        self.tokenizer = tokenizer
        self.options = dict(template_options or {})
        self.think = think
        self._cache: dict[tuple[tuple[str, str], ...], tuple[int, ...]] = {}
        name = getattr(tokenizer, "name_or_path", None) or type(tokenizer).__name__
        with boundary(ConfigError, f"the chat template of {name!r}, tried on a message of a user,"):
            self.end_ids = tuple(end_ids) if end_ids is not None else self._find_end_ids(more_end_ids)
            self._opened = self._opens_reasoning()

    def encode(self, messages: Messages, enough: int | None = None) -> tuple[int, ...]:
        size = sum(len(message["content"]) for message in messages)
        if enough is not None and size > CHARS_A_TOKEN * (enough + SLACK):
            return self._end(messages, enough)
        if size > CACHED_CHARS:
            return tuple(self._template(messages, add_generation_prompt=True))
        key = tuple((message["role"], message["content"]) for message in messages)
        ids = self._cache.get(key)
        if ids is None:
            ids = tuple(self._template(messages, add_generation_prompt=True))
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            self._cache[key] = ids
        return ids

    def _end(self, messages: Messages, enough: int) -> tuple[int, ...]:
        """The ids of a prompt with more characters than `enough` tokens usually have: its end is read, twice as much of
        it each time, until it has more tokens than are enough, so that a megabyte costs no more than what is kept."""
        text = str(self._template(messages, tokenize=False, add_generation_prompt=True))
        kept = CHARS_A_TOKEN * (enough + SLACK)
        while kept < len(text):
            ids = self._tokens(text[-kept:])
            if len(ids) > enough + SLACK:  # the first ones are those of a text that was cut, and are not kept
                return tuple(ids[-enough - 1 :])
            kept *= 2
        return tuple(self._tokens(text))

    def _tokens(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def visible(self, ids: Sequence[int], stop: Stop) -> str | None:
        kept = without_end(ids, self.end_ids)
        marked = str(self.tokenizer.decode(list(kept), skip_special_tokens=False))
        if self.think[1] in marked or self._opened or marked.lstrip().startswith(self.think[0]):
            return after_reasoning(marked, self._opened, self.think)
        return self.decode(kept)

    def _template(self, messages: Messages, *, tokenize: bool = True, **options: Any) -> Any:
        """The ids of the messages, or their text."""
        given = [dict(message) for message in messages]
        return self.tokenizer.apply_chat_template(
            given, tokenize=tokenize, return_dict=False, **options, **self.options
        )

    def _opens_reasoning(self) -> bool:
        prompt = self.tokenizer.decode(list(self.encode([{"role": "user", "content": "x"}])), skip_special_tokens=False)
        return str(prompt).rstrip().endswith(self.think[0])

    def _find_end_ids(self, more: Sequence[int]) -> tuple[int, ...]:
        eos = self.tokenizer.eos_token_id
        found = [] if eos is None else [int(eos)]
        user: Message = {"role": "user", "content": "x"}
        asked = tuple(self._template([user], add_generation_prompt=True))
        closed = tuple(self._template([user, {"role": "assistant", "content": "x"}]))
        if closed[: len(asked)] == asked:
            special = set(self.tokenizer.all_special_ids)
            closing = next((int(i) for i in closed[len(asked) :] if int(i) in special), None)
            if closing is not None and closing not in found:
                found.append(closing)
        found += [end_id for end_id in more if end_id not in found]
        if not found:
            raise ConfigError(f"the tokenizer {self.tokenizer!r} names no end token; pass end_ids=(...)")
        return tuple(found)
