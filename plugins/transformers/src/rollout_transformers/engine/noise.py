"""Counter-based random numbers: the draw for a response position is a pure function of (seed, position).

The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
"""

from __future__ import annotations

__all__ = ["uniform"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits."""
    stream = _mix((seed & _MASK) + _GOLDEN)
    return (_mix(stream + (position + 1) * _GOLDEN) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
