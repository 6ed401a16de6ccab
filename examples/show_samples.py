"""Prints a few samples of a run: prompt, response, and the first token ids with their log-probabilities.

python examples/show_samples.py OUTPUT_FOLDER [--count 4] [--tokens 8]
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any


def show(sample: dict[str, Any], tokens: int) -> None:
    """Print one line of ``samples.jsonl``."""
    prompt = sample["prompt"] if isinstance(sample["prompt"], str) else json.dumps(sample["prompt"])
    print(f"--- sample {sample['sample_id']}: {sample['status']}, {sample['finish_reason']} on {sample['engine']}")
    print(f"prompt    {prompt}")
    print(f"response  {sample['text'].strip()}")
    pairs = zip(sample["token_ids"], sample["logprobs"], strict=True)
    shown = "  ".join(f"{token}:{logprob:.4f}" for token, logprob in itertools.islice(pairs, tokens))
    print(f"id:logprob ({sample['logprob_kind']})  {shown}  ... {sample['response_tokens']} tokens\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a few samples of a run.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=4, help="samples to print")
    parser.add_argument("--tokens", type=int, default=8, help="token ids to print of each")
    options = parser.parse_args()
    with (options.folder / "samples.jsonl").open(encoding="utf-8") as lines:
        for line in itertools.islice(lines, options.count):
            show(json.loads(line), options.tokens)
    print(f"all samples are in {options.folder / 'samples.jsonl'}")


if __name__ == "__main__":
    main()
