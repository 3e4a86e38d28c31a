"""Running mean and variance of observations, and observations normalised with them.

The statistics move while experience is gathered, so what is stored for learning are the *normalised* vectors, as the
network saw them: their log-probabilities stay what they were, however the statistics move on. (ML-Agents stores raw
ones and normalises them anew, so its ratios are not 1 when an update begins.)
"""

from __future__ import annotations

import numpy as np

from stepherd.rl.observations import FloatArray
from stepherd.spec.batch import Bools, Floats

CLIP = 5.0  # standard deviations, as ML-Agents
MIN_VARIANCE = 1e-8  # a constant observation becomes 0, not 0/0


class Normalizer:
    """Statistics of the columns in `is_box`; the other columns pass unchanged."""

    def __init__(self, is_box: Bools) -> None:
        self._is_box = is_box
        self.count = 0
        """Vectors seen."""
        self.mean: Floats = np.zeros(len(is_box))
        """(width,); 0 in the columns that pass unchanged."""
        self.variance: Floats = np.ones(len(is_box))
        """(width,), of the population; 1 in the columns that pass unchanged."""
        self._cache()

    def update(self, vectors: FloatArray) -> None:
        """Take `vectors` (n, width) into the statistics, all rows at once (Chan et al. 1979)."""
        n = len(vectors)
        if n == 0:
            return
        batch = vectors.astype(np.float64)
        batch_mean = batch.sum(axis=0) / n
        batch -= batch_mean
        np.multiply(batch, batch, out=batch)
        total = self.count + n
        delta = batch_mean - self.mean
        # `variance * count` is the sum of squares so far; with count 0 the initial values weigh nothing.
        squares = self.variance * self.count + batch.sum(axis=0) + delta * delta * (self.count * n / total)
        self.mean = np.where(self._is_box, self.mean + delta * (n / total), 0.0)
        self.variance = np.where(self._is_box, squares / total, 1.0)
        self.count = total
        self._cache()

    def normalize(self, vectors: FloatArray) -> FloatArray:
        """Return a new (n, width) array: `vectors` in standard deviations from the mean, at most `CLIP`."""
        normalized: FloatArray = vectors - self._shift
        normalized *= self._scale
        np.minimum(normalized, self._limit, out=normalized)
        np.maximum(normalized, -self._limit, out=normalized)
        return normalized

    def restore(self, count: int, mean: Floats, variance: Floats) -> None:
        """Replace the statistics by those of a checkpoint."""
        assert mean.shape == variance.shape == self.mean.shape, (mean.shape, variance.shape, self.mean.shape)
        self.count, self.mean, self.variance = count, mean.copy(), variance.copy()
        self._cache()

    def _cache(self) -> None:
        """Keep what `normalize` needs in the type it needs."""
        self._shift = self.mean.astype(np.float32)
        scale = 1.0 / np.sqrt(np.maximum(self.variance, MIN_VARIANCE))
        self._scale = np.where(self._is_box, scale, 1.0).astype(np.float32)
        self._limit = np.where(self._is_box, CLIP, np.inf).astype(np.float32)
