"""Notices heartbeats that take too long: the store is slow, or this process is. Pure: the time is handed in."""

from __future__ import annotations

from tenure.clock import Reading
from tenure.coordinator.config import ContentionConfig
from tenure.coordinator.events import ContentionDetected


class ContentionDetector:
    """Told how long each heartbeat took, it says when that is worth an event."""

    def __init__(self, namespace: str, heartbeat_interval: float, config: ContentionConfig) -> None:
        self._namespace = namespace
        self._expected = heartbeat_interval
        self._config = config
        self._reported_at: Reading | None = None
        self.events = 0
        """Every heartbeat that took too long, reported or not."""

    def observe(self, duration: float, now: Reading) -> ContentionDetected | None:
        """The event to emit for a heartbeat of `duration` seconds that has ended now, if any."""
        ratio = duration / self._expected
        if not self._config.enabled or ratio <= self._config.threshold:
            return None
        self.events += 1
        if self._reported_at is not None and now.follower_elapsed(self._reported_at) < self._config.rate_limit:
            return None
        self._reported_at = now
        return ContentionDetected(
            namespace=self._namespace,
            duration=duration,
            expected=self._expected,
            ratio=ratio,
            threshold=self._config.threshold,
            timestamp=now.wall_ns / 1e9,
        )
