"""The documented rule by which records are drawn into splits, apart from figura/preparation/splits.py."""

import hashlib


def fraction(key: object, seed: int = 7) -> float:
    """Return the fraction of a key: its SHA-256 with the seed as a binary number from 0 to 1."""
    return int(hashlib.sha256(f"{seed}:{key}".encode()).hexdigest()[:16], 16) / 2**64
