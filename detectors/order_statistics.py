"""The middle of a set of numbers, and of what is left when one of them is taken out.

Parts of compiled folds (see `kernels`): plain loops over flat arrays, without a call into numpy, so that
the compiled and the plain form give the same bits.
"""

from __future__ import annotations

from collections.abc import MutableSequence

Numbers = MutableSequence[float]


def select(values: Numbers, count: int, at: int) -> None:
    """Reorder the first ``count`` of ``values`` so that ``values[at]`` is what sorting would put there.

    What is left of it is not greater, what is right of it not less. Hoare's selection with the middle
    element as pivot: linear on average, also for values that are sorted already.

    >>> numbers = [5.0, 1.0, 4.0, 2.0, 3.0]
    >>> select(numbers, 5, 2)
    >>> numbers[2], max(numbers[:2]), min(numbers[3:])
    (3.0, 2.0, 4.0)
    """
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if at <= right:
            high = right
        elif at >= left:
            low = left
        else:
            return


def middle_three(values: Numbers, count: int, three: Numbers) -> None:
    """Write the values around place ``count // 2`` of the sorted ``values`` to ``three``; reorders them.

    ``three`` is the one below the middle, the middle, the one above; a missing neighbour is the middle.
    """
    at = count // 2
    select(values, count, at)
    middle = values[at]
    below, above = middle, middle
    if at > 0:
        below = values[0]
        for i in range(1, at):
            below = max(below, values[i])
    if at + 1 < count:
        above = values[at + 1]
        for i in range(at + 2, count):
            above = min(above, values[i])
    three[0] = below
    three[1] = middle
    three[2] = above


def median_of(count: int, three: Numbers) -> float:
    """The median of ``count`` values whose middle is ``three``.

    >>> three = [0.0, 0.0, 0.0]
    >>> middle_three([4.0, 1.0, 3.0, 2.0], 4, three)
    >>> median_of(4, three)
    2.5
    """
    return three[1] if count % 2 == 1 else 0.5 * (three[0] + three[1])


def median_without(value: float, count: int, three: Numbers) -> float:
    """The median of the others when ``value``, one of the ``count`` (at least 2) values, is left out.

    >>> three = [0.0, 0.0, 0.0]
    >>> middle_three([1.0, 2.0, 3.0, 9.0, 7.0], 5, three)
    >>> [median_without(value, 5, three) for value in (1.0, 3.0, 9.0)]
    [5.0, 4.5, 2.5]
    """
    if count % 2 == 0:
        return three[1] if value <= three[0] else three[0]
    if value < three[1]:
        return 0.5 * (three[1] + three[2])
    if value > three[1]:
        return 0.5 * (three[0] + three[1])
    return 0.5 * (three[0] + three[2])
