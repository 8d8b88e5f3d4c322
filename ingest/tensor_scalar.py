"""The one number of a tensor of one element, as TensorFlow writes it."""

from __future__ import annotations

import struct
from typing import Any

TENSOR = {
    "Tensor": {
        "dtype": (1, "int32"),
        "shape": (2, "Shape"),
        "content": (4, "bytes"),
        "float_val": (5, "*float"),
        "double_val": (6, "*double"),
        "int_val": (7, "*int32"),
        "int64_val": (10, "*int64"),
        "bool_val": (11, "*bool"),
        "half_val": (13, "*int32"),
        "uint32_val": (16, "*int64"),
        "uint64_val": (17, "*uint64"),
    },
    "Shape": {"dim": (2, "*Dim"), "is_unknown": (3, "bool")},
    "Dim": {"size": (1, "int64")},
}
"""The fields of the message, as `message_classes` takes them."""

_FLOAT, _DOUBLE, _HALF, _BFLOAT16 = 1, 2, 19, 14
_CONTENT = {
    _FLOAT: "<f",
    _DOUBLE: "<d",
    _HALF: "<e",
    3: "<i",
    4: "<B",
    5: "<h",
    6: "<b",
    9: "<q",
    10: "<?",
    17: "<H",
    22: "<I",
    23: "<Q",
}
_LISTS = {
    _FLOAT: "float_val",
    _DOUBLE: "double_val",
    3: "int_val",
    4: "int_val",
    5: "int_val",
    6: "int_val",
    9: "int64_val",
    10: "bool_val",
    17: "int_val",
    22: "uint32_val",
    23: "uint64_val",
}


def scalar_of(tensor: Any) -> float | None:
    """The number of a parsed ``Tensor`` of one element; None for anything else."""
    if any(dim.size != 1 for dim in tensor.shape.dim):
        return None
    if tensor.dtype in (_HALF, _BFLOAT16) and len(tensor.half_val) == 1:
        return _from_bits(tensor.dtype, tensor.half_val[0])
    if tensor.content:
        return _from_content(tensor.dtype, tensor.content)
    values: Any = getattr(tensor, _LISTS.get(tensor.dtype, ""), ())
    return float(values[0]) if len(values) == 1 else None


def _from_content(dtype: int, content: bytes) -> float | None:
    if dtype == _BFLOAT16 and len(content) == 2:
        return _from_bits(dtype, int.from_bytes(content, "little"))
    form = _CONTENT.get(dtype)
    if form is None or len(content) != struct.calcsize(form):
        return None
    value: float = struct.unpack(form, content)[0]
    return float(value)


def _from_bits(dtype: int, bits: int) -> float | None:
    if not 0 <= bits < 1 << 16:
        return None
    if dtype == _HALF:
        return float(struct.unpack("<e", bits.to_bytes(2, "little"))[0])
    return float(struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0])
