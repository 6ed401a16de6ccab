"""Prompts become token ids: text as it stands, chats through the template, ids untouched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rollout_core.errors import ModelError, RequestError
from rollout_core.render import Renderer

CHAT = [{"role": "user", "content": "hello world"}]


Save = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path, save_tokenizer: Save) -> Path:
    return save_tokenizer(tmp_path / "tokenizer")


def test_a_text_gets_the_special_tokens_of_the_tokenizer(folder: Path) -> None:
    renderer = Renderer.load(str(folder))
    assert renderer.decode(renderer.render("hello world")) == "<s> hello world"


def test_messages_go_through_the_template_and_open_the_turn_of_the_assistant(folder: Path) -> None:
    renderer = Renderer.load(str(folder))
    assert renderer.decode(renderer.render(CHAT)) == "<s> user hello world assistant"


def test_the_system_prompt_comes_first_in_chats_that_have_none(folder: Path) -> None:
    renderer = Renderer.load(str(folder), system_prompt="be kind")
    assert renderer.decode(renderer.render(CHAT)) == "<s> system be kind user hello world assistant"
    own = [{"role": "system", "content": "hello"}, *CHAT]
    assert renderer.decode(renderer.render(own)) == "<s> system hello user hello world assistant"
    assert renderer.decode(renderer.render("hello")) == "<s> hello"


def test_chat_wraps_a_text_as_the_message_of_a_user(folder: Path) -> None:
    renderer = Renderer.load(str(folder), chat=True, system_prompt="be kind")
    assert renderer.decode(renderer.render("hello")) == "<s> system be kind user hello assistant"


def test_token_ids_are_taken_as_they_are(folder: Path) -> None:
    assert Renderer.load(str(folder)).render([3, 1, 2]) == (3, 1, 2)


def test_rendering_leaves_the_messages_alone(folder: Path) -> None:
    messages = list(CHAT)
    Renderer.load(str(folder), system_prompt="be kind").render(messages)
    assert messages == CHAT


def test_messages_without_a_chat_template_are_an_error_that_says_what_to_do(
    tmp_path: Path, save_tokenizer: Save
) -> None:
    renderer = Renderer.load(str(save_tokenizer(tmp_path / "plain", chat_template=None)))
    assert renderer.chat_template_fingerprint is None
    with pytest.raises(ModelError, match="no chat template; give the prompt as text or token ids"):
        renderer.render(CHAT)


def test_what_the_template_refuses_is_the_fault_of_the_request(tmp_path: Path, save_tokenizer: Save) -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    renderer = Renderer.load(str(save_tokenizer(tmp_path / "strict", chat_template=template)))
    with pytest.raises(RequestError, match="roles must alternate"):
        renderer.render(CHAT)


def test_the_fingerprint_follows_the_template(folder: Path, tmp_path: Path, save_tokenizer: Save) -> None:
    other = save_tokenizer(tmp_path / "other", chat_template="{{ 'hello' }}")
    fingerprints = {Renderer.load(str(path)).chat_template_fingerprint for path in (folder, other)}
    assert len(fingerprints) == 2


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer .*tokenizer.json.* set tokenizer_path"):
        Renderer.load(str(tmp_path))


def test_a_broken_tokenizer_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be loaded"):
        Renderer.load(str(tmp_path))
