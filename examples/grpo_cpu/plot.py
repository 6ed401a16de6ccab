"""Draws the log of a run: reward, staleness, and where the time of a step went."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

__all__ = ["plot"]

PARTS = ("generate", "pause", "offload", "train", "onload", "publish")


def plot(log: Path, image: Path) -> None:
    """Write a PNG of three panels over the steps."""
    mpl.use("Agg")  # no display is needed
    from matplotlib import pyplot

    steps = [json.loads(line) for line in log.read_text().splitlines()]
    numbers = [step["step"] for step in steps]
    figure, (rewards, lags, shares) = pyplot.subplots(3, 1, figsize=(7, 8), sharex=True, layout="constrained")
    rewards.plot(numbers, [step["reward"] for step in steps])
    rewards.set(ylabel="mean reward", ylim=(0, 1))
    lags.plot(numbers, [step["lag"] for step in steps], label="versions behind")
    lags.set(ylabel="mean staleness (versions)")
    cut = lags.twinx()
    cut.plot(numbers, [step["cut"] for step in steps], color="tab:orange")
    cut.set_ylabel("samples cut by the pause", color="tab:orange")
    totals = [sum(step[part] for part in PARTS) for step in steps]
    parts = [[step[part] / total for step, total in zip(steps, totals, strict=True)] for part in PARTS]
    shares.stackplot(numbers, parts, labels=PARTS)
    shares.set(ylabel="share of the step's time", xlabel="step", ylim=(0, 1))
    shares.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(image, dpi=80)
    pyplot.close(figure)


if __name__ == "__main__":
    plot(Path(sys.argv[1]), Path(sys.argv[2]))
