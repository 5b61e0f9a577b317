"""Sizes as people write and read them, by the rules of `ullage run -m` (src/base/size.c).

4GiB, 4G, 4096M and 512Ki are 1024-based, 4GB is decimal, a bare number is bytes; 40% is a share of
something whose size the caller gives.
"""

import re

_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_UNITS = {"": 1, "B": 1}
for _letter, _bytes in _BINARY.items():
    _UNITS.update({_letter: _bytes, _letter + "i": _bytes, _letter + "iB": _bytes})
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[_letter + "B"] = 1000**_power

_NUMBER = re.compile(r"([0-9]+)(?:\.([0-9]+))?(.*)", re.ASCII | re.DOTALL)
_LARGEST = 2**63 - 1
_EXPECTED = (
    "expected a size such as 4GiB, 4G, 4096M or 512Ki (1024-based), 4GB (decimal) or bare bytes"
)


def parse_size(size, total=None):
    """Bytes of a size: an int, or a text; of a share ("40%") of `total` bytes.

    Raises ValueError, with a message that names the text, and TypeError for what is neither.
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError("{!r} is not a size: expected a text such as 4GiB, or bytes".format(size))
    text = str(size)
    match = _NUMBER.fullmatch(text)
    if not match:
        raise ValueError("'{}' is not a size: {}".format(text, _EXPECTED))
    whole, fraction, unit = match.group(1), match.group(2) or "", match.group(3)
    number = int(whole + fraction)
    scale = 10 ** len(fraction)
    if unit == "%":
        if not 0 < number <= 100 * scale:
            raise ValueError(
                "'{}' is not a share of a card: expected above 0% and at most 100%".format(text)
            )
        if total is None:
            raise ValueError("'{}' is a share, and of what is not known here".format(text))
        return total * number // (100 * scale)
    if unit not in _UNITS:
        raise ValueError("'{}' is not a size (unit '{}' unknown): {}".format(text, unit, _EXPECTED))
    value = number * _UNITS[unit] // scale
    if value > _LARGEST:
        raise ValueError("'{}' is too large: expected less than 8 EiB".format(text))
    if value == 0:
        raise ValueError("'{}' is zero: expected at least one byte".format(text))
    return value


def size_text(size):
    """Bytes for a person: "3.4 GiB", "512 B"."""
    if size < 1024:
        return "{} B".format(size)
    unit = min((size.bit_length() - 1) // 10, 6)
    tenths = (size * 10 + (1 << (10 * unit - 1))) >> (10 * unit)
    if tenths >= 10240 and unit < 6:
        unit, tenths = unit + 1, 10
    return "{}.{} {}".format(
        tenths // 10, tenths % 10, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[unit]
    )
