"""Writes to Kafka what no decent client would: the bytes of a produce request, made by hand."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

_CRC32C = 0x82F63B78


def produce(address: str, topic: str, key: bytes, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """One record to partition 0. Names of headers are bytes: they need not be UTF-8."""
    batch = _batch(_record(key, value, headers))
    name = topic.encode()
    request = b"".join(
        [
            struct.pack(">hhih", 0, 7, 1, 3) + b"raw",
            struct.pack(">hhi", -1, -1, 10_000),
            struct.pack(">ih", 1, len(name)) + name,
            struct.pack(">iii", 1, 0, len(batch)) + batch,
        ]
    )
    host, port = address.split(",", maxsplit=1)[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(request)) + request)
        body = answer.read(struct.unpack(">i", answer.read(4))[0])
    at_error = 4 + 4 + 2 + len(name) + 4 + 4
    assert body[at_error : at_error + 2] == b"\0\0", f"Kafka refused the batch: {body!r}"


def _record(key: bytes, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    fields = [_sized(key), _sized(value), _varint(len(headers))]
    fields += [_sized(name) + _sized(content) for name, content in headers]
    return _sized(b"\0" + _varint(0) + _varint(0) + b"".join(fields))


def _batch(record: bytes) -> bytes:
    checked = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + record
    return struct.pack(">qiib", 0, len(checked) + 9, -1, 2) + struct.pack(">I", _crc32c(checked)) + checked


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    zigzag = number << 1
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _crc32c(content: bytes) -> int:
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (_CRC32C if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF
