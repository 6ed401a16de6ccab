"""Counter-based random numbers: the noise of a response position is a pure function of (seed, position).

The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["exponentials", "noise_key"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def noise_key(seed: int, position: int) -> int:
    """The 64-bit key of the random stream of one response position."""
    return _mix(_mix((seed & _MASK) + _GOLDEN) + (position + 1) * _GOLDEN)


def exponentials(keys: Sequence[int], count: int) -> npt.NDArray[np.float64]:
    """The first `count` standard exponential numbers of each key's stream, shape [keys, count]."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    state = np.array(keys, dtype=np.uint64)[:, None] + steps[None, :]
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    state ^= state >> np.uint64(31)
    # Half a step above the lattice, so that the logarithm is finite and never zero.
    uniforms = ((state >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    numbers: npt.NDArray[np.float64] = -np.log(uniforms)
    return numbers


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)
