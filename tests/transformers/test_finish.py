"""Every way in which a response ends, and what it leaves in tokens and text."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_transformers.engine.stops import StopStrings

EOS = 2


def test_the_token_budget_ends_with_length(llama: Any, prompt: Any) -> None:
    reply = llama.generate(prompt(1), max_tokens=5, ignore_eos=True)
    assert (len(reply["token_ids"]), reply["finish_reason"], reply["stop_reason"]) == (5, "length", None)
    assert reply["weight_versions"] == [[0, 0, 5]]


def test_the_context_ends_with_context_length(serve: Any, prompt: Any) -> None:
    served = serve(context_length=40)
    reply = served.generate(prompt(1, 30), ignore_eos=True)
    assert (len(reply["token_ids"]), reply["finish_reason"]) == (10, "context_length")
    assert served.generate(prompt(1, 30), ignore_eos=True, max_tokens=10)["finish_reason"] == "length"
    rest = served.generate(prompt(1, 30), prior_ids=reply["token_ids"])
    assert (rest["token_ids"], rest["finish_reason"]) == ([], "context_length")


def test_a_stop_token_is_kept_as_the_last_token_and_left_out_of_the_text(llama: Any, prompt: Any) -> None:
    ids = prompt(2)
    whole = llama.generate(ids, max_tokens=8, temperature=0.0, ignore_eos=True)
    stop = whole["token_ids"][4]
    place = whole["token_ids"].index(stop)
    request = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True, "stop_token_ids": [stop]}
    reply = llama.generate(ids, **request)
    assert reply["token_ids"] == whole["token_ids"][: place + 1]
    assert len(reply["logprobs"]) == place + 1
    assert (reply["finish_reason"], reply["stop_reason"]) == ("stop", stop)
    tokenizer = llama.engine.loaded.tokenizer
    assert reply["text"] == tokenizer.decode(whole["token_ids"][:place])
    assert llama.generate(ids, **request, include_stop=True)["text"] == tokenizer.decode(reply["token_ids"])


def test_end_of_sequence_stops_unless_ignored_or_too_early(serve: Any, prompt: Any) -> None:
    served = serve()
    whole = served.generate(prompt(3), max_tokens=8, temperature=0.0, ignore_eos=True)["token_ids"]
    # Declare the third greedy token an end-of-sequence token of this model.
    object.__setattr__(served.engine.loaded, "eos_ids", frozenset({EOS, whole[2]}))
    request = {"prompt": prompt(3), "max_tokens": 8, "temperature": 0.0}
    stopped = served.generate(**request)
    assert stopped["token_ids"] == whole[: whole.index(whole[2]) + 1]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", whole[2])
    assert served.generate(**request, ignore_eos=True)["token_ids"] == whole
    later = served.generate(**request, min_tokens=5)["token_ids"]
    assert len(later) > 5
    assert not {EOS, whole[2]} & set(later[:5])


def test_min_tokens_also_holds_back_stop_strings(llama: Any, prompt: Any) -> None:
    request = {"prompt": prompt(4), "max_tokens": 9, "temperature": 0.0, "ignore_eos": True}
    text = llama.generate(**request)["text"]
    assert len(llama.generate(**request, stop=[text[0]])["token_ids"]) == 1
    assert len(llama.generate(**request, stop=[text[0]], min_tokens=6)["token_ids"]) > 6


def test_a_stop_string_that_straddles_tokens_cuts_the_text(llama: Any, prompt: Any) -> None:
    request = {"prompt": prompt(5), "max_tokens": 10, "temperature": 0.0, "ignore_eos": True}
    whole = llama.generate(**request)
    tokenizer = llama.engine.loaded.tokenizer
    pieces = [tokenizer.decode(whole["token_ids"][: i + 1]) for i in range(10)]
    stop = whole["text"][len(pieces[2]) - 2 : len(pieces[3]) + 1]
    first = next(i for i in range(10) if stop in pieces[i])
    reply = llama.generate(**request, stop=["never in there", stop])
    assert reply["token_ids"] == whole["token_ids"][: first + 1]
    assert (reply["finish_reason"], reply["stop_reason"]) == ("stop", stop)
    assert reply["text"] == whole["text"][: whole["text"].index(stop)]
    kept = llama.generate(**request, stop=[stop], include_stop=True)
    assert kept["text"] == reply["text"] + stop


def test_a_stop_string_may_straddle_a_cut(llama: Any, prompt: Any) -> None:
    request = {"prompt": prompt(5), "max_tokens": 10, "temperature": 0.0, "ignore_eos": True}
    whole = llama.generate(**request)
    tokenizer = llama.engine.loaded.tokenizer
    before = len(tokenizer.decode(whole["token_ids"][:4]))
    stop = whole["text"][before - 1 : before + 1]
    rest = llama.generate(**request, stop=[stop], prior_ids=whole["token_ids"][:4])
    assert rest["stop_reason"] == stop
    assert rest["text"] == whole["text"][: whole["text"].index(stop)]


def test_abort_returns_the_tokens_so_far(serve: Any, prompt: Any) -> None:
    served = serve(max_batch_size=1)
    running = served.submit(prompt(1), max_tokens=400, ignore_eos=True, request_id="a")
    queued = served.submit(prompt(2), max_tokens=400, ignore_eos=True, request_id="b")
    other = served.submit(prompt(3), max_tokens=2, ignore_eos=True, request_id="c")
    while served.engine.metrics.generated_tokens < 5:
        pass
    assert served.engine.abort(["a", "b", "unknown"]).result() == 2
    reply = running.result(timeout=10)
    assert reply["finish_reason"] == "abort"
    assert 5 <= len(reply["token_ids"]) == len(reply["logprobs"]) < 400
    assert queued.result(timeout=10)["token_ids"] == []
    assert other.result(timeout=10)["finish_reason"] == "length"


class Letters:
    """A tokenizer of UTF-8 bytes, so that a character can take several tokens."""

    def decode(self, ids: list[int], **options: Any) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


@pytest.mark.parametrize(
    ("text", "stop", "tokens"),
    [("abcdef", "cd", 4), ("aébéc", "bé", 6), ("a😀b", "😀", 5), ("xyxyz", "xyz", 5)],
)
def test_a_stop_string_is_found_at_the_token_that_completes_it(text: str, stop: str, tokens: int) -> None:
    watch = StopStrings(Letters(), ["no", stop], True)
    matches = [watch.add(byte) for byte in text.encode()]
    found = next(i for i, match in enumerate(matches) if match is not None)
    assert found + 1 == tokens
    assert matches[found].text == text[: text.index(stop)]


def test_a_stop_string_is_found_before_an_unfinished_character() -> None:
    class Glued(Letters):
        def decode(self, ids: list[int], **options: Any) -> str:
            return super().decode([byte for token in ids for byte in ((0x58, 0xC3) if token == 0 else (token,))])

    watch = StopStrings(Glued(), ["X"], True)
    assert watch.add(0x61) is None
    match = watch.add(0)
    assert match is not None
    assert match.text == "a"
