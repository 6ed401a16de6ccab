"""Checks of weight updates: what is served afterwards is the new weights, and what does not fit changes nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rollout_core.errors import StateError, WeightUpdateError
from rollout_core.testing.live.base import LiveSuite
from rollout_core.testing.live.reference import reference_tensors
from rollout_core.testing.suite import check, expect, not_run
from rollout_core.types import Capability, GenerateResult, MemoryPart
from rollout_core.weights import FromFolder, WeightPublisher

__all__ = ["WeightChecks"]

_SCALE = 0.9
"""Of every weight in the new checkpoint: it changes all log-probabilities and keeps them sane."""


class WeightChecks(LiveSuite):
    """New weights, made from those of the model by scaling them."""

    @check(Capability.WEIGHTS_FROM_DISK)
    def test_weights_from_disk(self) -> None:
        """A folder of new weights is served, under its version, and the old one again after it."""
        with self._scaled_folder() as folder:
            self._expect_update(lambda: self.engine.controller.update_weights(FromFolder(folder)))

    @check(Capability.WEIGHTS_FROM_SHARED_MEMORY)
    def test_weights_from_shared_memory(self) -> None:
        """Tensors handed over in shared memory are served, under their version."""
        self._expect_published("shared_memory")

    @check(Capability.WEIGHTS_FROM_GROUP)
    def test_weights_from_group(self) -> None:
        """Tensors broadcast in a distributed group are served, under their version."""
        self._expect_published("gloo")

    @check(Capability.WEIGHTS_FROM_SHARED_MEMORY)
    def test_weights_that_do_not_fit(self) -> None:
        """A missing, an unexpected and a misshaped tensor are named, and the engine serves what it had."""
        tensors = self._tensors(1.0)
        name = next(name for name in tensors if "layers" in name)
        before = self.complete_one(self.greedy(1))
        cases = {
            "missing": {key: value for key, value in tensors.items() if key != name},
            "unexpected": {**tensors, f"{name}.extra": tensors[name]},
            "misshaped": {**tensors, name: tensors[name][:1]},
        }
        for case, given in cases.items():
            try:
                with WeightPublisher(self.engine.controller) as publisher:
                    publisher.publish(given.items())
            except WeightUpdateError as error:
                expect(name in str(error), f"the error for a {case} tensor does not name {name}: {error}")
            else:
                expect(False, f"weights with a {case} tensor were accepted")
        after = self.complete_one(self.greedy(1))
        self.expect_same(before, after, "after weights that were refused")
        expect(after.weight_versions == before.weight_versions, "refused weights changed the version")

    @check(Capability.PAUSE_KEEP, Capability.WEIGHTS_FROM_DISK)
    def test_versions_within_a_sample(self) -> None:
        """A sample that is frozen over an update has the old version on its first tokens, the new one on the rest."""
        future = self.begin_long(self.greedy(0, max_tokens=64))
        old = self.engine.controller.view.weight_version
        with self._scaled_folder() as folder:
            new = self.engine.controller.update_weights(FromFolder(folder)).version
        versions = self.engine.wait(future, "a request over an update").weight_versions
        self._restore()
        cut = versions.count(old)
        expect(
            0 < cut < len(versions) and versions == (old,) * cut + (new,) * (len(versions) - cut),
            f"expected tokens of version {old} and then of {new}, got {versions}",
        )

    @check(Capability.DISCARD_WEIGHTS, Capability.WEIGHTS_FROM_DISK)
    def test_discarded_weights_are_written_again(self) -> None:
        """After the weights were discarded nothing is served until new ones are written."""
        before = self.complete_one(self.greedy(2))
        controller = self.engine.controller
        controller.pause_generation()
        controller.offload([MemoryPart.WEIGHTS], discard_weights=True)
        controller.onload()
        try:
            controller.continue_generation()
        except StateError:
            pass
        else:
            expect(False, "generation continued with weights that were discarded")
        finally:
            self._restore()
            controller.continue_generation()
        self.expect_same(before, self.complete_one(self.greedy(2)), "after discarding and writing the weights")

    def _expect_published(self, through: Any) -> None:
        with WeightPublisher(self.engine.controller, through=through) as publisher:
            self._expect_update(lambda: publisher.publish(self._tensors(_SCALE).items()))

    def _expect_update(self, update: Any) -> None:
        """The update changes the output and the version, and the model's own weights bring the output back."""
        before = self.complete_one(self.greedy(2))
        version = update().version
        new = self.complete_one(self.greedy(2))
        expect(bool(self.same_greedy(before, new)), "after the update the log-probabilities are the old ones")
        self._expect_version(new, version)
        restored = self._restore()
        again = self.complete_one(self.greedy(2))
        self._expect_version(again, restored)
        self.expect_same(before, again, "after the model's own weights were written again")

    def _expect_version(self, result: GenerateResult, version: int) -> None:
        expect(
            set(result.weight_versions) == {version},
            f"version {version} is served, and the tokens say {sorted(set(result.weight_versions))}",
        )

    def _restore(self) -> int:
        """Serve the model's own weights again."""
        controller = self.engine.controller
        if self.face.offers(Capability.WEIGHTS_FROM_DISK):
            return int(controller.update_weights(FromFolder(str(self.model))).version)
        with WeightPublisher(controller) as publisher:
            return int(publisher.publish(self._tensors(1.0).items()).version)

    def trainer_tensors(self) -> dict[str, Any]:
        """The model's tensors by the names that a trainer publishes; override it where the engine has others."""
        return reference_tensors(str(self.model))

    def _tensors(self, scale: float) -> dict[str, Any]:
        tensors = self.trainer_tensors()
        if not tensors:
            not_run("torch and transformers are not installed, or do not load the model: no weights to publish")
        return _scaled(tensors, scale)

    @contextmanager
    def _scaled_folder(self) -> Iterator[Path]:
        try:
            from safetensors.torch import load_file, save_file
        except ImportError:
            not_run("torch and safetensors are not installed, and the check makes a checkpoint with them")
        files = sorted(Path(str(self.model)).glob("*.safetensors"))
        if not files:
            not_run(f"{self.model} is no folder with safetensors files")
        with tempfile.TemporaryDirectory(prefix="rollout-weights-") as scratch:
            folder = Path(scratch) / "scaled"
            shutil.copytree(str(self.model), folder, ignore=shutil.ignore_patterns("*.safetensors"))
            for file in files:
                save_file(_scaled(load_file(file), _SCALE), folder / file.name, {"format": "pt"})
            yield folder


def _scaled(tensors: Mapping[str, Any], scale: float) -> dict[str, Any]:
    return {name: tensor * scale if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
