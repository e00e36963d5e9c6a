"""Which server and region a store URL means; the URL wins over the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tenure.store.url import StoreUrl, check_endpoint

_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def endpoint_of(url: StoreUrl, environment: Mapping[str, str] = os.environ) -> str | None:
    """The server to speak to, where it is not the provider's own."""
    if "endpoint" in url.options:
        return url.options["endpoint"]
    name = next((name for name in _ENDPOINT_VARIABLES[url.scheme] if environment.get(name)), None)
    return None if name is None else check_endpoint(name, environment[name])


def region_of(url: StoreUrl, environment: Mapping[str, str] = os.environ) -> str | None:
    return url.options.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
