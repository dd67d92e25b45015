"""One way to read a TOML file, and to say why one cannot be read."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_eval.toml import read_toml

if TYPE_CHECKING:
    from pathlib import Path


def test_a_byte_order_mark_is_no_content_and_numbers_are_as_asked(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(b"\xef\xbb\xbfprice = 0.1\n")
    assert read_toml(file) == {"price": 0.1}
    assert read_toml(file, Decimal) == {"price": Decimal("0.1")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"= =", "is not a TOML file"),
        (b'a = "\xff"', "is not a TOML file"),
        (b"a = " + b"1" * 5_000, "is not a TOML file"),
        (b"a = " + b"[" * 100_000, "too deeply"),
        (b"a" + b".a" * 900 + b" = 1", "too deeply"),
        (None, "No such file"),
    ],
)
def test_what_cannot_be_read_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_toml(file)
    assert str(file) in str(caught.value)
