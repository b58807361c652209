"""Tasks from a dataset of the hub, or from a local folder of Parquet, JSONL or CSV files, through `datasets`."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.errors import TaskError, boundary
from rolecall.tasks.rows import Row, RowSource

HEAD_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Hub(RowSource):
    """A dataset by its name on the hub or a folder, e.g. `Hub(path="openai/gsm8k", subset="main",
    answer_pattern=r"#### (.+)")`.

    `path` may be a folder of data files, or one written by `save_to_disk`; a folder needs no network. Ids of a folder
    begin with its name and a digest of what is in it: they stay when it is moved, and two folders of one name differ.
    """

    path: str
    subset: str | None = None
    split: str = "train"
    revision: str | None = None

    @property
    def label(self) -> str:
        return f"hub {self._short} ({self.split})"

    @property
    def prefix(self) -> str:
        name = self._short
        folder = Path(self.path)
        if folder.is_dir():
            name = f"{name}-{folder_digest(self.path, folder.stat().st_mtime_ns)}"
        return ":".join(["hub", name, *([self.subset] if self.subset else []), self.split])

    @property
    def _short(self) -> str:
        """The dataset's name; of a folder only the last part."""
        return Path(self.path).resolve().name if Path(self.path).is_dir() else self.path

    def rows(self) -> Iterator[Row]:
        for number, row in enumerate(self._load()):
            yield Row(number, f"row {number}", dict(row))

    def _load(self) -> Any:
        try:
            import datasets
        except ImportError as error:
            raise TaskError(
                f"{self.label} needs the `datasets` package, which does not import ({error}); install rolecall[hub]"
            ) from error
        folder = Path(self.path)
        with boundary(TaskError, f"loading {self.label} with `datasets`"):
            if (folder / "state.json").is_file():
                return datasets.load_from_disk(str(folder))
            if (folder / "dataset_dict.json").is_file():
                return datasets.load_from_disk(str(folder))[self.split]
            return datasets.load_dataset(self.path, self.subset, split=self.split, revision=self.revision)


@functools.lru_cache(maxsize=64)
def folder_digest(path: str, changed_ns: int) -> str:
    """Eight hexadecimal digits of the names, the sizes and the beginnings of a folder's files; `changed_ns` is when the
    folder changed."""
    found = hashlib.sha256()
    for file in sorted(Path(path).rglob("*")):
        if file.is_file() and not any(part.startswith((".", "cache-")) for part in file.relative_to(path).parts):
            found.update(
                f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode(errors="surrogateescape")
            )
            with file.open("rb") as opened:
                found.update(opened.read(HEAD_BYTES))
    return found.hexdigest()[:8]
