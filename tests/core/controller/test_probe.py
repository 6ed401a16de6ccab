"""Engines of one version must make the same of one prompt."""

from rollout_core.controller.probe import dissenters

ONE, CLOSE, OTHER = (-1.0, -2.0), (-1.0, -2.0005), (-1.0, -2.5)


def test_engines_that_agree_are_all_kept() -> None:
    assert dissenters({"a": ONE, "b": CLOSE}, 1e-3) == {}
    assert dissenters({"a": ONE}, 1e-3) == {}


def test_the_minority_is_named_with_how_far_it_is_off() -> None:
    against = dissenters({"a": ONE, "b": OTHER, "c": CLOSE}, 1e-3)
    assert list(against) == ["b"]
    assert "differ by 0.5 from another engine's, above 0.001" in against["b"]


def test_without_a_majority_nobody_is_trusted() -> None:
    assert set(dissenters({"a": ONE, "b": OTHER}, 1e-3)) == {"a", "b"}
