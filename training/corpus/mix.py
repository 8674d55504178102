"""Draws dialogues from all tasks in the proportion of their weights."""
import bisect
import itertools

from .tasks import TASKS


class Mix:
    """`Mix(split).draw(rng)` is one dialogue; the same generator state gives the same dialogue."""

    def __init__(self, split):
        self.split = split
        self.makers = [make for _, (_, make) in sorted(TASKS.items())]
        self.bounds = list(itertools.accumulate(weight for _, (weight, _) in sorted(TASKS.items())))

    def draw(self, rng):
        at = rng.random() * self.bounds[-1]
        return self.makers[bisect.bisect_right(self.bounds, at)](rng, self.split)
