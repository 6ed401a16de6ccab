"""Turns a prompt into token ids, once, on the caller's side: from here on only ids travel.

Text is completed as it stands, chat messages go through the model's chat template, token ids are taken as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollout_core.errors import ModelError, RequestError

__all__ = ["Prompt", "Renderer"]

Prompt = str | Sequence[Mapping[str, Any]] | Sequence[int]
"""Text, chat messages (``role`` and ``content``), or token ids."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")


class Renderer:
    """A tokenizer with its chat template and the run's system prompt. Use it from one thread at a time."""

    def __init__(self, tokenizer: Any, *, system_prompt: str | None = None, chat: bool = False) -> None:
        """Use :meth:`load`.

        Args:
            tokenizer: a Hugging Face tokenizer; None where all prompts are token ids.
            system_prompt: put before messages that do not start with a system message.
            chat: take a text for the message of a user instead of completing it.
        """
        self._tokenizer = tokenizer
        self._system_prompt = system_prompt
        self._chat = chat

    @classmethod
    def load(
        cls, path: str, *, trust_remote_code: bool = False, system_prompt: str | None = None, chat: bool = False
    ) -> Renderer:
        """Load the tokenizer of a folder or hub id.

        Raises:
            ModelError: there is no tokenizer, or it cannot be read.
        """
        folder = Path(path).expanduser()
        if folder.is_dir() and not any((folder / name).exists() for name in _TOKENIZER_FILES):
            raise ModelError(
                f"{folder} has no tokenizer (none of {', '.join(_TOKENIZER_FILES)}); "
                f"copy the tokenizer's files there or set tokenizer_path"
            )
        # Imported here: transformers takes a second, and most of core does without.
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(
                str(folder) if folder.is_dir() else path, trust_remote_code=trust_remote_code
            )
        except Exception as error:  # tokenizers raise anything, down to bare Exception
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ModelError(f"the tokenizer of '{path}' cannot be loaded: {reason}") from error
        return cls(tokenizer, system_prompt=system_prompt, chat=chat)

    @property
    def chat_template_fingerprint(self) -> str | None:
        """SHA-256 (hex) of the chat template; None without one."""
        template = getattr(self._tokenizer, "chat_template", None)
        return hashlib.sha256(str(template).encode()).hexdigest() if template else None

    def needs_template(self, prompt: Prompt) -> bool:
        """Whether the prompt can only be rendered with a chat template."""
        return self._chat if isinstance(prompt, str) else not isinstance(prompt[0], int)

    def render(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt.

        A text gets the special tokens that the tokenizer itself adds; the template adds those of a chat, and the
        opening of the assistant's turn.

        Raises:
            ModelError: a chat, and the tokenizer has no chat template.
            RequestError: the template refuses the messages, or nothing is left of the prompt.
        """
        if self.needs_template(prompt):
            ids = self._encode(self._apply_template(prompt), special_tokens=False)
        elif isinstance(prompt, str):
            ids = self._encode(prompt, special_tokens=True)
        else:
            ids = tuple(prompt)  # type: ignore[arg-type]
        if not ids:
            raise RequestError("the prompt renders to no token at all; give it some text")
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        return str(self._tokenizer.decode(list(token_ids)))

    def _encode(self, text: str, *, special_tokens: bool) -> tuple[int, ...]:
        # The length is checked against the engine's context later; the tokenizer's own warning is noise.
        return tuple(self._tokenizer(text, add_special_tokens=special_tokens, verbose=False)["input_ids"])

    def _apply_template(self, prompt: Prompt) -> str:
        if self.chat_template_fingerprint is None:
            raise ModelError(
                "the prompt is a chat, and the tokenizer has no chat template; give the prompt as text or token ids, "
                "or set tokenizer_path to a tokenizer that has one"
            )
        messages: list[Any] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        if self._system_prompt is not None and messages[0].get("role") != "system":
            messages.insert(0, {"role": "system", "content": self._system_prompt})
        try:
            return str(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        except Exception as error:  # a template is a program: it raises what it likes
            raise RequestError(f"the chat template refuses the messages: {error}") from error
