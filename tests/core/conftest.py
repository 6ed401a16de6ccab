"""A tokenizer small enough to read its output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

TEMPLATE = (
    "<s> {% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)
WORDS = ["<unk>", "<s>", "</s>", "hello", "world", "be", "kind", "user", "system", "assistant"]


def save_tokenizer(folder: Path, chat_template: str | None = TEMPLATE) -> Path:
    """Save a tokenizer of ten words, which puts ``<s>`` before a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", chat_template=chat_template
    )
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(name="save_tokenizer", scope="session")
def save_tokenizer_fixture() -> Callable[..., Path]:
    """A function that saves the tokenizer to a folder, with or without a chat template."""
    return save_tokenizer
