"""The whole way of a weight step: controller, HTTP, the engine's thread, on a real server of a tiny model."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rollout_core import (
    Controller,
    GenerateRequest,
    GenerateResult,
    Plugins,
    RolloutClient,
    RolloutConfig,
    SampleParams,
    StateError,
    WeightUpdateError,
    read_result,
)
from rollout_core.run.record import encode_record, record_of
from rollout_core.types import FinishReason, Sample, Status
from rollout_core.weights import FromFolder, WeightPublisher

PROMPT = tuple(range(100, 120))
GREEDY = SampleParams(temperature=0, max_tokens=40, ignore_eos=True)

CLOSE = 5e-4
"""The random models' logits are large, and so is what rounding does to them."""

Load = Callable[[int], Any]


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[[str], Path]) -> Path:
    return checkpoint("llama")


@pytest.fixture(scope="module")
def controller(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """Two engines of one tiny model."""
    config = RolloutConfig(model_path=str(folder), backend="transformers", engines=2, control_timeout_s=20)
    with Controller(Plugins.load(config), log_dir=tmp_path_factory.mktemp("logs")) as controller:
        yield controller


@pytest.fixture(autouse=True)
def first_weights(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test wrote, the next one finds the checkpoint's weights and running engines."""
    yield
    controller = request.getfixturevalue("controller")
    controller.onload()
    controller.update_weights(FromFolder(request.getfixturevalue("folder")))
    controller.continue_generation()


@pytest.fixture
def model(folder: Path) -> Load:
    """The model with weights that a seed changes; 0 leaves them."""

    def make(seed: int) -> Any:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if seed:
                    parameter.add_(torch.randn_like(parameter) * 0.05)
        return model

    return make


def draw(controller: Controller, *requests: GenerateRequest, **options: Any) -> list[GenerateResult]:
    async def run() -> list[GenerateResult]:
        async with RolloutClient(controller) as client:
            return list(await asyncio.gather(*(client.generate(request, **options) for request in requests)))

    return asyncio.run(run())


def on_both(controller: Controller) -> list[GenerateResult]:
    """One greedy sample from each engine."""
    results = draw(controller, *(GenerateRequest(PROMPT, GREEDY, session_id=f"s{i}") for i in range(2)))
    assert {result.engine for result in results} == {"engine-0", "engine-1"}
    return results


def forced(model: Any, result: GenerateResult) -> list[float]:
    """Log-probabilities of the result's tokens in a fresh forward pass."""
    ids = torch.tensor([result.prompt_ids + result.token_ids])
    with torch.inference_mode():
        rows = torch.log_softmax(model(ids, use_cache=False).logits[0].float(), -1)
    start = len(result.prompt_ids) - 1
    return [rows[start + place, token].item() for place, token in enumerate(result.token_ids)]


def assert_serves(controller: Controller, model: Any, version: int) -> None:
    for result in on_both(controller):
        assert result.logprobs == pytest.approx(forced(model, result), abs=CLOSE)
        assert set(result.weight_versions) == {version}


@pytest.mark.parametrize("through", ["shared_memory", "gloo"])
@pytest.mark.parametrize("bucket_bytes", [2**20, 64 * 2**20])
def test_published_tensors_are_served(controller: Controller, model: Load, through: Any, bucket_bytes: int) -> None:
    new = model(1)
    with WeightPublisher(controller, through=through, bucket_bytes=bucket_bytes) as publisher:
        report = publisher.publish(new.state_dict().items())
    assert (report.engines, report.quarantined) == (("engine-0", "engine-1"), {})
    assert_serves(controller, new, report.version)


def test_a_folder_is_served(controller: Controller, model: Load, tmp_path: Path) -> None:
    new = model(2)
    new.save_pretrained(tmp_path)
    assert_serves(controller, new, controller.update_weights(FromFolder(tmp_path)).version)


def test_floating_point_tensors_are_converted(controller: Controller, model: Load) -> None:
    new = model(3)
    for parameter in new.parameters():
        parameter.data = parameter.data.bfloat16().float()
    with WeightPublisher(controller, dtype="bfloat16") as publisher:
        version = publisher.publish(new.state_dict().items()).version
    assert_serves(controller, new, version)


def test_a_frozen_sample_goes_on_under_the_new_weights_and_says_so(controller: Controller, model: Load) -> None:
    new, params = model(4), SampleParams(temperature=0, max_tokens=200, ignore_eos=True)

    async def run() -> GenerateResult:
        async with RolloutClient(controller) as client:
            task = asyncio.create_task(client.generate(GenerateRequest(PROMPT, params)))
            await asyncio.sleep(0.15)
            with WeightPublisher(controller) as publisher:
                await asyncio.to_thread(publisher.publish, new.state_dict().items())
            return await task

    result = asyncio.run(run())
    old_version, version = controller.view.weight_version - 1, controller.view.weight_version
    cut = result.weight_versions.index(version)
    assert result.weight_versions == (old_version,) * cut + (version,) * (200 - cut)
    assert 0 < cut < 200
    # The K/V was flushed: the tokens after the cut come from the new weights alone.
    assert result.logprobs[:cut] == pytest.approx(forced(model(0), result)[:cut], abs=CLOSE)
    assert result.logprobs[cut:] == pytest.approx(forced(new, result)[cut:], abs=CLOSE)


def test_kept_cache_leaves_the_old_prefix_in_use(controller: Controller, model: Load) -> None:
    new = model(5)
    request = GenerateRequest(PROMPT, GREEDY, session_id="s")
    draw(controller, request)
    with WeightPublisher(controller) as publisher:
        publisher.publish(new.state_dict().items(), keep_cache=True)
    (kept,) = draw(controller, request)
    assert kept.cached_tokens > 0
    assert kept.logprobs != pytest.approx(forced(new, kept), abs=1e-3)


def refusals(model: Any) -> dict[str, tuple[dict[str, Any], str]]:
    state = dict(model.state_dict())
    name = "model.layers.0.self_attn.q_proj.weight"
    less = {key: value for key, value in state.items() if key != name}
    return {
        "missing": (less, f"missing from the update: {name}"),
        "unexpected": ({**state, "model.extra": state[name]}, "unexpected in the update: model.extra"),
        "shape": ({**state, name: state[name][:3]}, rf"{name} has shape \[3, 64\], the model's is \[64, 64\]"),
        "kind": ({**state, name: state[name].long()}, f"{name} has dtype int64"),
    }


@pytest.mark.parametrize("case", ["missing", "unexpected", "shape", "kind"])
@pytest.mark.parametrize("through", ["shared_memory", "gloo"])
def test_what_does_not_fit_is_named_and_changes_nothing(
    controller: Controller, model: Load, case: str, through: Any
) -> None:
    before = controller.view.weight_version
    tensors, message = refusals(model(6))[case]
    with (
        WeightPublisher(controller, through=through) as publisher,
        pytest.raises(WeightUpdateError, match=f"nothing was written: {message}"),
    ):
        publisher.publish(tensors.items())
    assert_serves(controller, model(0), before)


def test_bad_folders_are_refused(controller: Controller, model: Load, folder: Path, tmp_path: Path) -> None:
    before = controller.view.weight_version
    for case in ("half", "nan", "other"):
        shutil.copytree(folder, tmp_path / case)
    file = tmp_path / "half" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    file = tmp_path / "nan" / "model.safetensors"
    state = load_file(file)
    state["model.norm.weight"][3] = float("nan")
    save_file(state, file, {"format": "pt"})
    save_file({"other.weight": torch.zeros(2)}, tmp_path / "other" / "model.safetensors", {"format": "pt"})
    for case, message in (
        ("half", "not a whole safetensors file"),
        ("nan", "model.norm.weight in .* has NaN or infinite values"),
        ("other", "unexpected in the update: other.weight"),
    ):
        with pytest.raises(WeightUpdateError, match=message):
            controller.update_weights(FromFolder(tmp_path / case), refuse_non_finite=True)
    with pytest.raises(WeightUpdateError, match="is not a folder"):
        controller.update_weights(FromFolder(tmp_path / "none"))
    assert_serves(controller, model(0), before)


def test_nan_tensors_are_refused_when_asked(controller: Controller, model: Load) -> None:
    new = model(7)
    new.model.norm.weight.data[0] = float("inf")
    with (
        WeightPublisher(controller) as publisher,
        pytest.raises(WeightUpdateError, match=r"model\.norm\.weight has NaN"),
    ):
        publisher.publish(new.state_dict().items(), refuse_non_finite=True)


def test_a_version_may_not_go_back(controller: Controller, folder: Path) -> None:
    version = controller.view.weight_version
    with pytest.raises(WeightUpdateError, match=f"version {version} is not above {version}"):
        controller.update_weights(FromFolder(folder), version=version)
    assert controller.update_weights(FromFolder(folder), version=version + 5).version == version + 5


def test_offloaded_weights_come_back_as_they_were(controller: Controller) -> None:
    before = on_both(controller)
    with controller.paused():
        assert {part.value for part in controller.offload()} == {"weights", "kv_cache"}
        assert not controller.offload()
        with pytest.raises(StateError, match="the weights are offloaded"):
            controller.update_weights(FromFolder("x"))
        with pytest.raises(StateError, match="offloaded: call onload"):
            controller.continue_generation()
        health = controller.health()
        assert all(state.sleeping and state.alive for state in health.values())
        controller.onload_weights()
        controller.onload_kvcache()
    after = on_both(controller)
    assert [r.token_ids for r in after] == [r.token_ids for r in before]
    assert [r.logprobs for r in after] == [pytest.approx(r.logprobs, abs=1e-6) for r in before]


def test_offload_asks_for_a_pause(controller: Controller) -> None:
    with pytest.raises(StateError, match="pause_generation"):
        controller.offload()


def test_after_discarding_nothing_is_served_before_weights_are_written(controller: Controller, model: Load) -> None:
    new = model(8)
    controller.pause_generation()
    controller.offload(["weights"], discard_weights=True)
    controller.onload()
    with pytest.raises(StateError, match="the weights were discarded"):
        controller.continue_generation()
    with WeightPublisher(controller) as publisher:
        version = publisher.publish(new.state_dict().items()).version
    controller.continue_generation()
    assert_serves(controller, new, version)


@pytest.mark.parametrize("part", ["kv_cache", "weights"])
def test_frozen_samples_go_on_exactly_after_an_offload(controller: Controller, part: str) -> None:
    params = SampleParams(seed=3, max_tokens=150, ignore_eos=True)
    (uncut,) = draw(controller, GenerateRequest(PROMPT, params))

    async def run() -> GenerateResult:
        async with RolloutClient(controller) as client:
            task = asyncio.create_task(client.generate(GenerateRequest(PROMPT, params)))
            await asyncio.sleep(0.1)
            with controller.paused("keep") as report:
                controller.offload([part])
            assert report.frozen == 1
            return await task

    result = asyncio.run(run())
    assert result.token_ids == uncut.token_ids
    assert result.logprobs == pytest.approx(uncut.logprobs, abs=CLOSE)


def test_requests_made_while_offloaded_wait_at_the_gate(controller: Controller) -> None:
    async def run() -> tuple[GenerateResult, GenerateResult]:
        async with RolloutClient(controller) as client:
            with controller.paused():
                controller.offload()
                waiting = asyncio.create_task(client.generate(GenerateRequest(PROMPT, GREEDY)))
                refused = await client.generate(GenerateRequest(PROMPT, GREEDY), when_paused="abort")
                await asyncio.sleep(0.1)
                assert not waiting.done()
            return await waiting, refused

    waited, refused = asyncio.run(run())
    assert (waited.status, waited.finish_reason) == (Status.COMPLETED, FinishReason.LENGTH)
    assert (refused.status, refused.token_ids) == (Status.ABORTED, ())


def test_cut_samples_go_on_exactly_and_count_their_budget(controller: Controller) -> None:
    params = SampleParams(seed=5, max_tokens=200, ignore_eos=True)
    (uncut,) = draw(controller, GenerateRequest(PROMPT, params))

    async def run() -> tuple[GenerateResult, GenerateResult]:
        async with RolloutClient(controller) as client:
            task = asyncio.create_task(client.generate(GenerateRequest(PROMPT, params)))
            await asyncio.sleep(0.1)
            with controller.paused("abort"):
                cut = await task
            return cut, await client.generate(GenerateRequest(PROMPT, params), prior=cut)

    cut, whole = asyncio.run(run())
    assert 0 < len(cut.token_ids) < 200
    assert cut.status is Status.ABORTED
    assert (whole.token_ids, whole.text, whole.status) == (uncut.token_ids, uncut.text, Status.COMPLETED)
    assert whole.logprobs == pytest.approx(uncut.logprobs, abs=CLOSE)


def test_engines_are_compared_after_an_update(controller: Controller, model: Load) -> None:
    with WeightPublisher(controller) as publisher:
        publisher.publish(model(9).state_dict().items(), verify_within=1e-4)
    found = controller.verify(1e-4)
    assert set(found) == {"engine-0", "engine-1"}
    assert all(len(values) == 24 for values in found.values())


def test_a_sample_in_the_output_of_a_run_can_be_continued(controller: Controller) -> None:
    params = SampleParams(seed=6, max_tokens=60, ignore_eos=True)
    (uncut,) = draw(controller, GenerateRequest(PROMPT, params))
    cut = replace(
        uncut,
        token_ids=uncut.token_ids[:25],
        logprobs=(uncut.logprobs or ())[:25],
        sampled_logprobs=uncut.sampled_logprobs and uncut.sampled_logprobs[:25],
        weight_versions=uncut.weight_versions[:25],
        text="",
        finish_reason=FinishReason.ABORT,
        status=Status.ABORTED,
    )
    line = encode_record(record_of(Sample("0-0", 0, 0, "text", {}, cut)))
    prior = read_result(orjson.loads(line))
    (whole,) = draw(controller, GenerateRequest(PROMPT, params), prior=prior)
    assert whole.token_ids == uncut.token_ids
