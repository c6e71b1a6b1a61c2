"""Values as a schema registry wants them: Avro, behind the number of its schema."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator

from sensors.actions.base import ActionError
from sensors.actions.http import BasicAuth, valid_url
from sensors.actions.http_client import HttpClient
from sensors.actions.values import reading_secrets
from sensors.spec.base import SpecModel
from sensors.spec.fields import CountFromOne, Text

AVRO = "avro/binary"
"""The content type of such a value."""
_MAGIC = 0
_TIMEOUT_SECONDS = 10.0
_MAX_SCHEMA = 1 << 20


class SchemaRegistry(SpecModel):
    """Write the payload as Avro, with a schema from a registry. Needs `kafka-eventbus[avro]`."""

    url: Annotated[Text, AfterValidator(valid_url)]
    """Where the registry is."""
    schemaId: CountFromOne
    """The number of the schema there."""
    auth: BasicAuth | None = None


class AvroEncoder:
    """Fetches the schema once, when the first value is written. Thread-safe: at worst it is fetched twice."""

    def __init__(self, spec: SchemaRegistry) -> None:
        self._spec = spec
        self._client = HttpClient(_TIMEOUT_SECONDS, max_body=_MAX_SCHEMA)
        self._schema: Any = None

    def encode(self, value: bytes) -> bytes:
        """From JSON. Raises `ActionError`."""
        from fastavro import schemaless_writer  # noqa: PLC0415 - only who writes Avro needs it

        schema = self._schema = self._schema or self._fetch()
        stream = BytesIO(struct.pack(">bI", _MAGIC, self._spec.schemaId))
        stream.seek(0, 2)
        try:
            schemaless_writer(stream, schema, msgspec.json.decode(value))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            message = f"the payload does not fit the schema {self._spec.schemaId}: {error}"
            raise ActionError(message, retriable=False, sent=False) from None
        return stream.getvalue()

    def _fetch(self) -> Any:
        from fastavro import parse_schema  # noqa: PLC0415
        from fastavro.schema import SchemaParseException  # noqa: PLC0415

        url = f"{self._spec.url.rstrip('/')}/schemas/ids/{self._spec.schemaId}"
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
            raise ActionError(message, retriable=answer.status >= 500 or answer.status == 429, sent=False)
        try:
            return parse_schema(msgspec.json.decode(msgspec.json.decode(answer.body)["schema"]))
        except (KeyError, TypeError, ValueError, RecursionError, SchemaParseException) as error:
            message = f"the schema registry's answer for {url} is no Avro schema: {error}"
            raise ActionError(message, retriable=False, sent=False) from None

    def close(self) -> None:
        self._client.close()
