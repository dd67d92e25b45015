"""How long is waited: never less than asked, more with every failure, and not for ever."""

from __future__ import annotations

import pytest

from obliq_models.llm.protocol import CallError
from obliq_models.llm.retry import Retries, retriable, wait_asked

NOON = 1_764_504_000.0  # Sun, 30 Nov 2025 12:00:00 GMT


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("0", 0.0),
        ("2.5", 2.5),
        ("Sun, 30 Nov 2025 12:00:20 GMT", 20.0),
        ("Sun, 30 Nov 2025 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("inf", None),
        ("nan", None),
        ("", None),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert wait_asked(header, NOON) == seconds


@pytest.mark.parametrize(
    ("status", "again"),
    [(400, False), (401, False), (403, False), (404, False), (408, True), (409, True), (422, False), (429, True),
     (500, True), (503, True), (529, True)],
)  # fmt: skip
def test_statuses(status: int, again: bool) -> None:
    assert retriable(status) is again


def test_waits_grow_up_to_a_cap() -> None:
    """1, 2, 4, 8 seconds at most and half of it at least, then the cap of 10."""
    error, retries = CallError("busy", retriable=True), Retries(attempts=9, base=1.0, cap=10.0)
    assert [retries.delay(error, n, chance=lambda: 1.0) for n in range(1, 6)] == [1, 2, 4, 8, 10]
    assert [retries.delay(error, n, chance=lambda: 0.0) for n in range(1, 6)] == [0.5, 1, 2, 4, 5]


def test_the_server_is_never_asked_earlier_than_it_says() -> None:
    """Twenty seconds by its clock, and at most one more so that not all come back at once."""
    error = CallError("busy", retriable=True, retry_after="Sun, 30 Nov 2025 12:00:20 GMT")
    waits = [Retries().delay(error, 4, chance=lambda c=c: c, now=lambda: NOON) for c in (0.0, 0.5, 1.0)]
    assert all(20 <= wait <= 21 for wait in waits)


def test_a_wait_of_hours_is_an_error() -> None:
    with pytest.raises(CallError, match=r"asks to wait for 7,200 seconds.*finished answers are kept"):
        Retries().delay(CallError("busy", retriable=True, retry_after="7200"), 1)


def test_final_errors_are_raised_as_they_are() -> None:
    error = CallError("refused")
    with pytest.raises(CallError) as caught:
        Retries().delay(error, 1)
    assert caught.value is error
