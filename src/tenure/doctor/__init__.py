"""Is this store fit for tenure? Proved by races between processes, not by what the store says of itself."""

from tenure.doctor.examine import examine
from tenure.doctor.report import Check, Latency, Report

__all__ = ["Check", "Latency", "Report", "examine"]
