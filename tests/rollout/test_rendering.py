from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rolecall.engines.read_model import named_end_ids
from rolecall.errors import ConfigError
from rolecall.records import Message, Stop
from rolecall.rollout.render import ChatRenderer, PlainRenderer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ASKED: list[Message] = [{"role": "user", "content": "hi"}]


def tokenizer(template: str | None = CHATML, eos: str = "<|endoftext|>", think: bool = False) -> Any:
    """Characters as tokens."""
    letters = [chr(code) for code in range(32, 127)] + ["\n"]
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *letters])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<|endoftext|>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=eos, pad_token="<|endoftext|>",
        additional_special_tokens=SPECIAL[1:], clean_up_tokenization_spaces=False,
    )  # fmt: skip
    if think:
        made.add_tokens(["<think>", "</think>"])
    made.chat_template = template
    return made


def ids(renderer: ChatRenderer, *tokens: str) -> list[int]:
    return [renderer.tokenizer.convert_tokens_to_ids(token) for token in tokens]


def test_a_prompt_is_the_chat_template_with_the_assistants_turn_opened() -> None:
    renderer = ChatRenderer(tokenizer())
    marked = renderer.tokenizer.decode(list(renderer.encode(ASKED))).replace(" ", "")
    assert marked == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_the_end_ids_are_the_tokenizers_end_and_the_templates_own() -> None:
    renderer = ChatRenderer(tokenizer())
    assert list(renderer.end_ids) == ids(renderer, "<|endoftext|>", "<|im_end|>")
    renderer = ChatRenderer(tokenizer(eos="<|im_end|>"))
    assert list(renderer.end_ids) == ids(renderer, "<|im_end|>")


def test_end_ids_that_the_model_names_come_after_the_tokenizers_own_each_once() -> None:
    renderer = ChatRenderer(tokenizer(eos="<|im_end|>"), more_end_ids=(0, 2, 40))
    assert list(renderer.end_ids) == [*ids(renderer, "<|im_end|>"), 0, 40]


@pytest.mark.parametrize(("named", "found"), [([7, 9, 7], (7, 9)), (7, (7,)), (None, ())])
def test_the_model_names_its_end_ids_in_its_generation_settings(tmp_path: Path, named: Any, found: Any) -> None:
    assert named_end_ids(str(tmp_path)) == ()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": named}))
    assert named_end_ids(str(tmp_path)) == found
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(OSError, match="not a valid JSON"):
        named_end_ids(str(tmp_path))


def test_a_tokenizer_without_a_chat_template_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="has no chat template; choose an instruction-tuned model"):
        ChatRenderer(tokenizer(template=None))


class Reader:
    """A tokenizer that counts the characters which it turns into tokens."""

    def __init__(self, made: Any) -> None:
        self.made, self.read = made, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made, name)

    def __call__(self, text: str, **options: Any) -> Any:
        self.read += len(text)
        return self.made(text, **options)

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        self.read += sum(len(message["content"]) for message in messages) if options["tokenize"] else 0
        return self.made.apply_chat_template(messages, **options)


def test_of_a_megabyte_prompt_no_more_is_read_than_could_be_kept() -> None:
    renderer = ChatRenderer(Reader(tokenizer()))
    words = "".join(chr(97 + (i * i) % 26) for i in range(1_000_000))
    whole = renderer.encode([{"role": "user", "content": words}])
    assert len(whole) > 1_000_000
    for enough in (10, 1000):
        renderer.tokenizer.read = 0
        ids = renderer.encode([{"role": "user", "content": words}], enough=enough)
        assert ids == whole[-enough - 1 :]
        assert renderer.tokenizer.read <= 8 * (enough + 64)
    assert len(renderer._cache) < 10, "long prompts are not kept in memory"


@pytest.mark.parametrize("enough", [10, 150, 158, 159, 160, 10_000])
def test_a_prompt_of_few_tokens_for_its_letters_is_read_whole_before_it_counts_as_too_long(enough: int) -> None:
    long_words = tokenizer()
    long_words.add_tokens(["x" * 50])
    renderer = ChatRenderer(long_words)
    said: list[Message] = [{"role": "user", "content": "x" * 50 * 140}]
    whole = renderer.encode(said)
    assert len(whole) == 159
    ids = renderer.encode(said, enough=enough)
    assert ids[-enough:] == whole[-enough:]
    assert (len(ids) > enough) == (len(whole) > enough)


def test_what_is_visible_leaves_out_the_end_token_and_the_reasoning() -> None:
    renderer = ChatRenderer(tokenizer(think=True))
    said = ids(renderer, "<think>", "a", "</think>", "4", "<|im_end|>")
    assert renderer.visible(said, Stop.EOS) == "4"
    assert renderer.visible(said[3:], Stop.EOS) == "4"
    assert renderer.visible(said[:2], Stop.LENGTH) is None


def test_a_reasoning_that_the_prompt_opened_hides_everything_until_it_is_closed() -> None:
    renderer = ChatRenderer(tokenizer(CHATML.replace("assistant\n{% endif", "assistant\n<think>{% endif"), think=True))
    assert renderer.visible(ids(renderer, "a", "b"), Stop.LENGTH) is None
    assert renderer.visible(ids(renderer, "a", "</think>", "b"), Stop.LENGTH) == "b"


def test_options_reach_the_template() -> None:
    template = CHATML.replace("assistant\n{% endif", "{{ 'x' if enable_thinking else 'y' }}{% endif")
    on = ChatRenderer(tokenizer(template), template_options={"enable_thinking": True})
    off = ChatRenderer(tokenizer(template), template_options={"enable_thinking": False})
    assert on.encode(ASKED)[:-1] == off.encode(ASKED)[:-1]
    assert on.encode(ASKED)[-1:] == tuple(ids(on, "x"))


def test_plain_bytes_come_back_as_they_were() -> None:
    renderer = PlainRenderer()
    assert renderer.visible((*"größer".encode(), 256), Stop.EOS) == "größer"
    assert renderer.visible(tuple(b"<think>no end"), Stop.LENGTH) is None
    assert renderer.visible(tuple("größer".encode())[:3], Stop.LENGTH) == "gr\ufffd"


@pytest.mark.parametrize(
    "template", ["{% for x in %}", "{{ raise_exception('no user here') }}"], ids=["no template", "refuses"]
)
def test_a_chat_template_that_cannot_render_is_one_clear_error(template: str) -> None:
    with pytest.raises(ConfigError, match=r"the chat template of .* a message of a user, raised Template"):
        ChatRenderer(tokenizer(template))
