"""Messages of other tools' protocol buffers: only the fields that are read, by number.

The parser is protobuf's own; the descriptions are made here, so that neither the tools that wrote the
files nor generated code need be installed. Fields that are not listed are skipped by the parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields = Mapping[str, tuple[int, str]]
"""Field name to its number and type; a type that is no scalar names a message, ``*`` means repeated."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "double": _Field.TYPE_DOUBLE,
    "float": _Field.TYPE_FLOAT,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "sint64": _Field.TYPE_SINT64,
    "uint64": _Field.TYPE_UINT64,
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
}


def message_classes(package: str, messages: Mapping[str, Fields]) -> Mapping[str, Any]:
    """A class for each message, to be parsed with ``FromString``.

    Text is described as bytes: a name that is not UTF-8 is then a name to refuse, and no damage.
    Optional scalars know whether they were set (``HasField``).
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            base = kind.removeprefix("*")
            label = _Field.LABEL_REPEATED if kind.startswith("*") else _Field.LABEL_OPTIONAL
            entry = message.field.add(name=field, number=number, label=label)
            if base in _SCALARS:
                entry.type = _SCALARS[base]
            else:
                entry.type, entry.type_name = _Field.TYPE_MESSAGE, f".{package}.{base}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }
