"""The `http` action: one request per action, with an idempotency key, and an honest account of what happened to it."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator

from eventbus.errors import ConfigError
from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.body import JSON, body_of, trace_of
from sensors.parameters import Payload
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Bool, CountFromOne, StringMap, Text

MAX_EXCERPT = 200
RETRIABLE = frozenset((408, 425, 429))
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
_OURS = frozenset(("idempotency-key", "traceparent", "tracestate", "content-length", "transfer-encoding"))
_WITHOUT_BODY = ("GET", "DELETE")


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be a complete http:// or https:// address")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user name or password: they would show up in logs; use `headers`")
    return text


def _headers(headers: dict[str, str]) -> dict[str, str]:
    seen = set()
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"has an entry `{name!r}` that cannot be a header's name")
        if not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"has a line break or another character in `{name}` that a header cannot carry")
        if name.lower() in _OURS:
            raise ValueError(f"must not contain `{name}`, which is set for every call")
        if name.lower() in seen:
            raise ValueError(f"contains `{name}` twice")
        seen.add(name.lower())
    return headers
