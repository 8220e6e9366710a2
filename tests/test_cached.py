"""Cached properties have no lock that a forked child could inherit."""

from __future__ import annotations

import threading

from gzarr.cached import cached_property


class Slow:
    """Two objects whose values wait for each other."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self.barrier = barrier
        self.times = 0

    @cached_property
    def value(self) -> int:
        """A value."""
        self.times += 1
        self.barrier.wait(20)
        return 5


def test_objects_do_not_wait_for_each_other() -> None:
    barrier = threading.Barrier(2)
    one, other = Slow(barrier), Slow(barrier)
    thread = threading.Thread(target=lambda: other.value)
    thread.start()
    # The property of Python 3.11's standard library breaks the barrier here.
    assert one.value == 5
    thread.join()
    assert (one.value, other.value, one.times, other.times) == (5, 5, 1, 1)


def test_it_is_a_property() -> None:
    assert isinstance(Slow.__dict__["value"], cached_property)
    assert Slow.value is Slow.__dict__["value"]
    assert Slow.value.__doc__ == "A value."
