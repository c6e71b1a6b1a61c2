"""What the clients of argo-events' gRPC services share: channels, and messages that are made at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from sensors.secrets import Secret

BYTES, TEXT, BOOL = FieldDescriptorProto.TYPE_BYTES, FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BOOL


def message_classes(
    package: str, messages: Mapping[str, Mapping[str, FieldDescriptorProto.Type.ValueType]]
) -> dict[str, type[Message]]:
    """By name. Fields are numbered in their order, from 1."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            message.field.add(name=field, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def serialized(message: Message) -> bytes:
    return message.SerializeToString()


def credentials(secure: bool, authorities: Secret | None) -> grpc.ChannelCredentials | None:
    """None where there is no TLS. Without authorities, those of the system are trusted."""
    if not secure:
        return None
    return grpc.ssl_channel_credentials(None if authorities is None else authorities.reveal().encode())


def open_channel(
    address: str, credentials: grpc.ChannelCredentials | None, options: Sequence[tuple[str, Any]]
) -> grpc.Channel:
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)
