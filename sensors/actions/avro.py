"""Values as a schema registry wants them: Avro, behind the number of its schema."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator

from sensors.actions.base import ActionError
from sensors.actions.http import BasicAuth, valid_url
from sensors.actions.http_client import HttpClient
from sensors.actions.values import reading_secrets
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import CountFromOne, Text

AVRO = "avro/binary"
"""The content type of such a value."""
_MAGIC = 0
_HEAD = struct.Struct(">bI")
_TIMEOUT_SECONDS = 10.0
_MAX_SCHEMA = 1 << 20
_MOST_SCHEMAS = 100
"""How many are kept."""
_UNKNOWN = "404"


class RegistryAddress(SpecModel):
    """Where a schema registry is. Needs `kafka-eventbus[avro]`."""

    url: Annotated[Text, AfterValidator(valid_url)]
    """Where the registry is."""
    auth: BasicAuth | None = None


class SchemaRegistry(RegistryAddress):
    """Write the payload as Avro, with a schema from a registry. Needs `kafka-eventbus[avro]`."""

    schemaId: CountFromOne
    """The number of the schema there."""


def lacking_avro(data: Any) -> Iterator[Flaw]:
    """Of whoever has a field `schemaRegistry`."""
    if get(data, "schemaRegistry") is not None and find_spec("fastavro") is None:
        message = "this needs packages that are not installed: install `kafka-eventbus[avro]`"
        yield Flaw(("schemaRegistry",), message, about_key=True)


class AvroEncoder:
    """Fetches the schema once, when the first value is written. Thread-safe: at worst it is fetched twice."""

    def __init__(self, spec: SchemaRegistry) -> None:
        self._number = spec.schemaId
        self._registry = _Registry(spec)

    def encode(self, value: bytes) -> bytes:
        """From JSON. Raises `ActionError`."""
        from fastavro import schemaless_writer  # noqa: PLC0415 - only who writes Avro needs it

        schema = self._registry.schema(self._number)
        stream = BytesIO(_HEAD.pack(_MAGIC, self._number))
        stream.seek(0, 2)
        try:
            schemaless_writer(stream, schema, msgspec.json.decode(value))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            message = f"the payload does not fit the schema {self._number}: {error}"
            raise ActionError(message, retriable=False, sent=False) from None
        return stream.getvalue()

    def close(self) -> None:
        self._registry.close()


class AvroDecoder:
    """Fetches every schema once, when a value names it."""

    def __init__(self, spec: RegistryAddress) -> None:
        self._registry = _Registry(spec)

    def decode(self, value: bytes) -> msgspec.Raw:
        """To JSON. Raises `ValueError` for what is no such value, and `ActionError` when the registry cannot tell."""
        from fastavro import schemaless_reader  # noqa: PLC0415 - only who reads Avro needs it

        if len(value) < _HEAD.size or value[0] != _MAGIC:
            raise ValueError("it does not begin with the number of a schema")
        _, number = _HEAD.unpack_from(value)
        try:
            schema = self._registry.schema(number)
        except ActionError as error:
            if error.retriable or error.status not in {None, _UNKNOWN}:
                raise
            raise ValueError(f"it names a schema that cannot be had: {error}") from None
        try:
            return msgspec.Raw(msgspec.json.encode(schemaless_reader(BytesIO(value[_HEAD.size :]), schema, None)))
        except Exception as error:  # fastavro raises whatever the wrong bytes lead it to
            raise ValueError(f"it does not fit the schema {number}: {type(error).__name__}") from None

    def close(self) -> None:
        self._registry.close()


class _Registry:
    """Fetches schemas."""

    def __init__(self, spec: RegistryAddress) -> None:
        self._spec = spec
        self._client = HttpClient(_TIMEOUT_SECONDS, max_body=_MAX_SCHEMA)
        self.schema = lru_cache(_MOST_SCHEMAS)(self._fetch)

    def close(self) -> None:
        self._client.close()

    def _fetch(self, number: int) -> Any:
        from fastavro import parse_schema  # noqa: PLC0415
        from fastavro.schema import SchemaParseException  # noqa: PLC0415

        url = f"{self._spec.url.rstrip('/')}/schemas/ids/{number}"
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self._spec.auth is not None:
            with reading_secrets():
                headers["Authorization"] = self._spec.auth.header().reveal()
        try:
            answer = self._client.request("GET", url, headers, None)
        except ActionError as error:  # to the registry, that is: nothing was sent to Kafka
            raise ActionError(f"the schema registry: {error}", retriable=True, sent=False) from None
        if answer.status != 200:  # whatever it is, nothing was written yet
            message = f"the schema registry answered {answer.status} for {url}"
            retriable = answer.status >= 500 or answer.status == 429
            raise ActionError(message, retriable=retriable, sent=False, status=str(answer.status))
        try:
            return parse_schema(msgspec.json.decode(msgspec.json.decode(answer.body)["schema"]))
        except (KeyError, TypeError, ValueError, RecursionError, SchemaParseException) as error:
            message = f"the schema registry's answer for {url} is no Avro schema: {error}"
            raise ActionError(message, retriable=False, sent=False) from None
