"""Objects as a spawned worker process receives them."""

from multiprocessing.reduction import ForkingPickler
from typing import TypeVar

T = TypeVar("T")


def as_in_a_worker(value: T) -> T:
    """The copy that multiprocessing would hand to a spawned process."""
    copy: T = ForkingPickler.loads(ForkingPickler.dumps(value))
    return copy
