"""Text of a response as it grows, and the search for stop strings in it.

A token may end in the middle of a character, which decodes to U+FFFD until the rest arrives; such a tail is held
back. Only the part of the text that a new token can have completed is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["StopMatch", "StopStrings", "decode"]

_INCOMPLETE = "�"


def decode(tokenizer: Any, ids: Sequence[int], skip_special_tokens: bool) -> str:
    """Text of token ids, with spaces left as the tokens have them."""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False)
    return text


@dataclass(frozen=True)
class StopMatch:
    """A stop string found in the response."""

    stop: str
    text: str
    """The response up to the stop string, without it."""


class StopStrings:
    """Watches one response for its stop strings."""

    def __init__(self, tokenizer: Any, stops: Sequence[str], skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        self._skip = skip_special_tokens
        self._longest = max((len(stop) for stop in stops), default=0)
        self._ids: list[int] = []
        self._text = ""
        # Tokens from _anchor on are decoded together; those before _settled are in _text already.
        self._anchor = 0
        self._settled = 0

    def add(self, token: int) -> StopMatch | None:
        """Take in one token; the match that it completes, if any."""
        if not self._stops:
            return None
        self._ids.append(token)
        known = decode(self._tokenizer, self._ids[self._anchor : self._settled], self._skip)
        window = decode(self._tokenizer, self._ids[self._anchor :], self._skip)
        added = window[len(known) :]
        first = max(0, len(self._text) - self._longest + 1)
        candidate = self._text + added.rstrip(_INCOMPLETE)
        if not window.endswith(_INCOMPLETE):
            self._text += added
            self._anchor, self._settled = self._settled, len(self._ids)
        return self._search(candidate, first)

    def _search(self, text: str, first: int) -> StopMatch | None:
        found = [(text.find(stop, first), stop) for stop in self._stops]
        hits = [(place, stop) for place, stop in found if place >= 0]
        if not hits:
            return None
        place, stop = min(hits, key=lambda hit: hit[0])
        return StopMatch(stop, text[:place])
