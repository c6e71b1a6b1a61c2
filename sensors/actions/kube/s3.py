"""One signed request to an S3-compatible store: AWS Signature Version 4, which is all that reading an object needs."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import quote

from sensors.actions.kube.source import S3Source
from sensors.secrets import Secret

_DEFAULT_REGION = "us-east-1"
_EMPTY = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"


def signed_request(
    source: S3Source, access_key: Secret, secret_key: Secret, now: datetime | None = None
) -> tuple[str, dict[str, str]]:
    """The address of the object, path-style as all stores understand it, and the headers that prove who asks."""
    now = now or datetime.now(UTC)
    path = quote(f"/{source.bucket.name}/{source.bucket.key}", safe="/~")
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": source.endpoint, "x-amz-content-sha256": _EMPTY, "x-amz-date": stamp}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"GET\n{path}\n\n{lines}\n{names}\n{_EMPTY}"
    scope = f"{day}/{source.region or _DEFAULT_REGION}/s3/aws4_request"
    to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{secret_key.reveal().strip()}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    headers["Authorization"] = (
        f"{_ALGORITHM} Credential={access_key.reveal().strip()}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return f"{'http' if source.insecure else 'https'}://{source.endpoint}{path}", headers
