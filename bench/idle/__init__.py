"""What a worker costs its machine while nothing happens: `python -m bench.idle`."""

NEEDLESS = ("click", "rich", "starlette", "prometheus_client", "opentelemetry")
"""What a worker has no use for."""
