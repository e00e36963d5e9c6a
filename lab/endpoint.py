"""Where a test server listens, and the store URL for a bucket on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

# Azurite's one account and its published key: the same on every machine, and no secret.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


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


@dataclass(frozen=True)
class AzureEndpoint:
    name: str
    url: str
    account: str = AZURITE_ACCOUNT
    account_key: str = AZURITE_KEY

    def store_url(self, container: str, prefix: str = "", endpoint: str | None = None) -> str:
        query = urlencode(
            {"account": self.account, "endpoint": endpoint or self.url, "account_key": self.account_key},
        )
        return f"az://{container}/{prefix}?{query}"


@dataclass(frozen=True)
class GcsEndpoint:
    name: str
    url: str

    def service_account_key(self, endpoint: str | None = None) -> str:
        """What `GCSStore(service_account_key=…)` needs to talk to this server without signing anything."""
        fields = {"gcs_base_url": endpoint or self.url, "disable_oauth": True, "client_email": "", "private_key": ""}
        return json.dumps({**fields, "private_key_id": ""})

    def store_url(self, bucket: str, prefix: str = "", *, key_file: Path, endpoint: str | None = None) -> str:
        """A store URL names the service account by a file, which is written here."""
        key_file.write_text(self.service_account_key(endpoint))
        query = urlencode({"endpoint": endpoint or self.url, "service_account": str(key_file)})
        return f"gs://{bucket}/{prefix}?{query}"
