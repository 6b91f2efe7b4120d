"""Protocol buffers without their schema: the fields of one message, by number."""

import struct
from collections.abc import Container

Value = int | float | bytes

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_LONGEST_VARINT = 10


def message_fields(message: bytes, numbers: Container[int]) -> dict[int, list[Value]]:
    """Return the values of some fields of a message, in order; raise `ValueError` for bytes that are no message.

    A varint is an integer, eight bytes are a double, four a float, and everything else is bytes.

    Examples
    --------
    >>> message_fields(bytes([0x0A, 2, 0x68, 0x69, 0x10, 0x96, 0x01]), range(1, 3))
    {1: [b'hi'], 2: [150]}
    """
    found: dict[int, list[Value]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        value: Value
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
            if at + size > len(message):
                raise ValueError("a number is cut short")
            [value] = struct.unpack_from("<d" if kind == _EIGHT_BYTES else "<f", message, at)
            at += size
        elif kind == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("a text is cut short")
            value = message[at : at + size]
            at += size
        else:
            raise ValueError(f"a field is of the unknown kind {kind}")
        if number in numbers:  # a hostile message may have very many others
            found.setdefault(number, []).append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return an integer, and where the next value begins."""
    made = 0
    for shift in range(_LONGEST_VARINT):
        if at + shift >= len(message):
            raise ValueError("an integer is cut short")
        byte = message[at + shift]
        made |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return made, at + shift + 1
    raise ValueError("an integer is too long")
