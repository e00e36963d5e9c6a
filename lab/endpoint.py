"""Where a test server listens, and the store URL for a bucket on it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode


@dataclass(frozen=True)
class S3Endpoint:
    name: str
    url: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"

    def store_url(self, bucket: str, prefix: str = "", endpoint: str | None = None) -> str:
        query = urlencode(
            {
                "endpoint": endpoint or self.url,
                "region": self.region,
                "access_key_id": self.access_key,
                "secret_access_key": self.secret_key,
            }
        )
        return f"s3://{bucket}/{prefix}?{query}"
