"""The checks of `tenure.store.given`, as everything above the store gets them."""

from __future__ import annotations

from tenure.store.given import check_asked, check_count, check_flag, check_instance, check_number, shown, takes

__all__ = ["check_asked", "check_count", "check_flag", "check_instance", "check_number", "shown", "takes"]
