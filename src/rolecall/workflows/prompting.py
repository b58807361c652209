"""Prompt files: sections `[system]`, `[user]`, `[assistant]` with `{{name}}` placeholders, filled in one pass.

A prompt set is a folder with one file a role (`solver.txt`); a built-in set goes by its name. A file is cut into
literal pieces and placeholders when it is read, so what one role wrote is never searched for placeholders again.

    [user]
    {{task}}
    [assistant]
    {{solution}}
    [user]
    A grader wrote: {{report}}
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rolecall.errors import ConfigError, WorkflowError, nearest
from rolecall.records import Message

BUILT_IN = Path(__file__).parent / "prompts"
_SECTION = re.compile(r"^\[(system|user|assistant)\][ \t]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One message of a prompt: literal pieces at even positions, placeholder names at odd ones."""

    speaker: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """The messages of one role's call, with holes."""

    source: str
    sections: tuple[Section, ...]

    @property
    def placeholders(self) -> frozenset[str]:
        return frozenset(name for section in self.sections for name in section.pieces[1::2])

    def messages(self, **values: str) -> list[Message]:
        """The prompt with every placeholder replaced by its value, in one pass."""
        filled: list[Message] = []
        for section in self.sections:
            parts = list(section.pieces)
            for position in range(1, len(parts), 2):
                name = parts[position]
                if name not in values:
                    raise WorkflowError(f"prompt {self.source}: no value for {{{{{name}}}}}{nearest(name, values)}")
                parts[position] = values[name]
            filled.append({"role": section.speaker, "content": "".join(parts)})
        return filled


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSet:
    """The prompts of a workflow, by role."""

    name: str
    prompts: Mapping[str, Prompt]

    def __getitem__(self, role: str) -> Prompt:
        return self.prompts[role]


def parse_prompt(text: str, source: str) -> Prompt:
    """Cut a prompt file into sections and pieces; text before the first section is an error."""
    pieces = _SECTION.split(text)
    if pieces[0].strip():
        raise ConfigError(
            f"prompt {source} begins with {pieces[0].strip()[:40]!r}; "
            f"wanted a line [system], [user] or [assistant] first"
        )
    sections = tuple(
        Section(speaker=speaker, pieces=tuple(_PLACEHOLDER.split(body.strip("\n"))))
        for speaker, body in zip(pieces[1::2], pieces[2::2], strict=True)
    )
    if not sections:
        raise ConfigError(f"prompt {source} is empty; wanted at least one section such as [user]")
    return Prompt(source=source, sections=sections)


def load_prompts(name: str, holes: Mapping[str, frozenset[str]]) -> PromptSet:
    """The prompt set `name` (a built-in name, or a folder of the user's) with one file for each role in `holes`.

    `holes` maps a role to the placeholders that the workflow fills; a file that uses another one is an error.
    """
    return _load(name, tuple(sorted(holes.items())))


@functools.lru_cache(maxsize=256)
def _load(name: str, holes: tuple[tuple[str, frozenset[str]], ...]) -> PromptSet:
    folder = _folder(name)
    prompts = {}
    for role, known in holes:
        path = folder / f"{role}.txt"
        if not path.is_file():
            raise ConfigError(f"prompt set {name!r} has no file {path}; write one, or use the set 'default'")
        prompt = parse_prompt(path.read_text(encoding="utf-8"), str(path))
        for placeholder in sorted(prompt.placeholders - known):
            raise ConfigError(f"prompt {path} uses {{{{{placeholder}}}}}{nearest(placeholder, known)}")
        prompts[role] = prompt
    return PromptSet(name=name, prompts=prompts)


def _folder(name: str) -> Path:
    built_in = BUILT_IN / name
    if "/" not in name and built_in.is_dir():
        return built_in
    if Path(name).is_dir():
        return Path(name)
    sets = [path.name for path in BUILT_IN.iterdir() if path.is_dir()]
    raise ConfigError(f"no prompt set {name!r}, and no such folder{nearest(name, sets)}")
