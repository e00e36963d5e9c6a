"""Every planted history: importing this registers them."""

from . import planted_polling  # noqa: F401
