"""Connected components of a block of any number of axes: runs of elements along the last axis, joined by union-find.

``find`` finds the runs of each row and joins them with those of the rows before it, so most of the work is done once a
run. ``paint`` writes the number of each component to a box: all of the block, or a face of it.

Components have the numbers 1, 2, …, in the order of their first elements.
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint8, uint16, uint32, uint64

from .jit import entry, in_line, part
from .memory import i32, i64, u8, u16, u32, u64
from .slots.components import (
    BACKGROUND,
    BEGINS,
    BOX,
    BY_VALUE,
    CAPACITY,
    COORDS,
    COUNT,
    ENDS,
    FIRSTS,
    LEADING,
    LENGTH,
    LENGTHS,
    NEIGHBOUR_COUNT,
    NEIGHBOUR_SIZE,
    NEIGHBOURS,
    NUMBERS,
    PARENTS,
    ROWS,
    ROWS_BEFORE,
    RUNS,
    SOURCE,
    STARTS,
    TARGET,
    TARGET_WIDTH,
    TOLERANCE,
    VALUES,
    WIDTH,
)


@in_line
def root_of(parents: int, run: int) -> int:
    """Return the first run of a component, and shorten the way to it."""
    p = i32(parents)
    while p[run] != run:
        p[run] = p[p[run]]
        run = int64(p[run])
    return run


@in_line
def unite_runs(parents: int, one: int, other: int) -> None:
    """Join the components of two runs; the first run of all stays the root."""
    a = root_of(parents, one)
    b = root_of(parents, other)
    if a < b:
        i32(parents)[b] = a
    elif b < a:
        i32(parents)[a] = b


@in_line
def advance(coords: int, lengths: int, axes: int) -> None:
    """Go to the next row."""
    c = i64(coords)
    n = i64(lengths)
    for d in range(axes - 1, -1, -1):
        c[d] += 1
        if c[d] < n[d]:
            return
        c[d] = 0


def _make(view: Any, kind: Any, width: int) -> Any:
    """``components(job)`` for elements of one width."""
    in_word = 8 // width
    ones = sum(1 << (8 * width * i) for i in range(in_word))

    @part
    def row_runs(
        address: int, n: int, background: Any, by_value: int, begins: int, ends: int, at: int, most: int
    ) -> int:
        """Store the runs of a row from run ``at`` on; return the next run, -1 if there is no room."""
        s = view(address)
        first = i32(begins)
        last = i32(ends)
        x = int64(0)
        while x < n:
            v = s[x]
            # Eight bytes at a time: most neighbours are equal.
            word = uint64(v) * uint64(ones)
            begin = x
            x += 1
            while x + in_word <= n and u64(address + x * width)[0] == word:
                x += in_word
            while x < n and s[x] == v:
                x += 1
            if v == background:
                continue
            if by_value == 0:
                while x < n and s[x] != background:
                    x += 1
            if at >= most:
                return -1
            first[at] = begin
            last[at] = x
            at += 1
        return at

    @part
    def join_rows(job: int, row: int, before: int, tolerance: int) -> None:
        """Join the runs of a row with those of a row before it."""
        j = i64(job)
        starts = i32(j[STARTS])
        begins = i32(j[BEGINS])
        ends = i32(j[ENDS])
        parents = j[PARENTS]
        by_value = j[BY_VALUE]
        mine = view(j[SOURCE] + row * j[LENGTH] * width)
        theirs = view(j[SOURCE] + before * j[LENGTH] * width)
        a = int64(starts[before])
        a_end = int64(starts[before + 1])
        b = int64(starts[row])
        b_end = int64(starts[row + 1])
        while a < a_end and b < b_end:
            if (
                begins[a] < ends[b] + tolerance
                and begins[b] < ends[a] + tolerance
                and (by_value == 0 or theirs[begins[a]] == mine[begins[b]])
            ):
                unite_runs(parents, a, b)
            if ends[a] < ends[b]:
                a += 1
            elif ends[b] < ends[a]:
                b += 1
            else:
                # Both next runs may begin right here, each a neighbour of the other's last one.
                if (
                    tolerance > 0
                    and by_value != 0
                    and b + 1 < b_end
                    and begins[b + 1] == ends[a]
                    and theirs[begins[a]] == mine[begins[b + 1]]
                ):
                    unite_runs(parents, a, b + 1)
                a += 1

    @part
    def components(job: int) -> None:
        j = i64(job)
        starts = i32(j[STARTS])
        p = i32(j[PARENTS])
        coords = i64(j[COORDS])
        lengths = i64(j[LENGTHS])
        axes = j[LEADING]
        n = j[LENGTH]
        background = kind(j[BACKGROUND])
        for d in range(axes):
            coords[d] = 0
        starts[0] = 0
        for row in range(j[ROWS]):
            at = int64(starts[row])
            end = row_runs(j[SOURCE] + row * n * width, n, background, j[BY_VALUE], j[BEGINS], j[ENDS], at, j[CAPACITY])
            if end < 0:
                j[RUNS] = -1
                return
            starts[row + 1] = end
            for k in range(at, end):
                p[k] = k
            # In values, neighbours within a row that are equal are one run; others are no neighbours.
            if end > at:
                for i in range(j[NEIGHBOUR_COUNT]):
                    neighbour = i64(j[NEIGHBOURS] + 8 * i * (NEIGHBOUR_SIZE + axes))
                    there = True
                    for d in range(axes):
                        place = coords[d] + neighbour[NEIGHBOUR_SIZE + d]
                        if place < 0 or place >= lengths[d]:
                            there = False
                    if there:
                        join_rows(job, row, row - neighbour[ROWS_BEFORE], neighbour[TOLERANCE])
            advance(j[COORDS], j[LENGTHS], axes)
        runs = int64(starts[j[ROWS]])
        count = int64(0)
        for k in range(runs):
            # Roots come before all others of their component, so these have their numbers already.
            if p[k] == k:
                count += 1
                p[k] = count
            else:
                p[k] = p[p[k]]
        j[RUNS] = runs
        j[COUNT] = count

    @part
    def describe_components(job: int) -> None:
        j = i64(job)
        starts = i32(j[STARTS])
        begins = i32(j[BEGINS])
        p = i32(j[PARENTS])
        firsts = i64(j[FIRSTS])
        values = u64(j[VALUES])
        s = view(j[SOURCE])
        known = int64(0)
        for row in range(j[ROWS]):
            for k in range(int64(starts[row]), int64(starts[row + 1])):
                if p[k] > known:
                    firsts[known] = row * j[LENGTH] + begins[k]
                    values[known] = s[firsts[known]]
                    known += 1

    return components, describe_components


_components_1, _describe_1 = _make(u8, uint8, 1)
_components_2, _describe_2 = _make(u16, uint16, 2)
_components_4, _describe_4 = _make(u32, uint32, 4)
_components_8, _describe_8 = _make(u64, uint64, 8)


def _make_painter(view: Any, kind: Any, width: int) -> Any:
    """``painted(job)`` for numbers of one width."""

    @part
    def painted(job: int) -> None:
        j = i64(job)
        starts = i32(j[STARTS])
        begins = i32(j[BEGINS])
        ends = i32(j[ENDS])
        p = i32(j[PARENTS])
        coords = i64(j[COORDS])
        lengths = i64(j[LENGTHS])
        box = i64(j[BOX])
        axes = j[LEADING]
        low = box[2 * axes]
        high = box[2 * axes + 1]
        numbers = u64(j[NUMBERS])
        at = j[TARGET]
        rows = int64(1)
        for d in range(axes):
            coords[d] = box[2 * d]
            rows *= box[2 * d + 1] - box[2 * d]
        for _ in range(rows):
            row = int64(0)
            for d in range(axes):
                row = row * lengths[d] + coords[d]
            target = view(at)
            x = low
            for k in range(int64(starts[row]), int64(starts[row + 1])):
                if begins[k] >= high:
                    break
                if ends[k] <= low:
                    continue
                begin = max(int64(begins[k]), low)
                end = min(int64(ends[k]), high)
                number = kind(p[k])
                if j[NUMBERS] != 0:
                    number = kind(numbers[int64(p[k])])
                while x < begin:
                    target[x - low] = 0
                    x += 1
                while x < end:
                    target[x - low] = number
                    x += 1
            while x < high:
                target[x - low] = 0
                x += 1
            at += (high - low) * width
            for d in range(axes - 1, -1, -1):
                coords[d] += 1
                if coords[d] < box[2 * d + 1]:
                    break
                coords[d] = box[2 * d]

    return painted


_painted_2 = _make_painter(u16, uint16, 2)
_painted_4 = _make_painter(u32, uint32, 4)
_painted_8 = _make_painter(u64, uint64, 8)


@entry(1)
def find(job: int) -> None:
    """Find the components of a block; see ``slots/components.py``."""
    width = i64(job)[WIDTH]
    if width == 1:
        _components_1(job)
    elif width == 2:
        _components_2(job)
    elif width == 4:
        _components_4(job)
    else:
        _components_8(job)


@entry(1)
def describe(job: int) -> None:
    """Store the first element of each component, and its bits, after ``find``."""
    width = i64(job)[WIDTH]
    if width == 1:
        _describe_1(job)
    elif width == 2:
        _describe_2(job)
    elif width == 4:
        _describe_4(job)
    else:
        _describe_8(job)


@entry(1)
def paint(job: int) -> None:
    """Write the number of each component to a box, and 0 elsewhere, after ``find``."""
    width = i64(job)[TARGET_WIDTH]
    if width == 2:
        _painted_2(job)
    elif width == 4:
        _painted_4(job)
    else:
        _painted_8(job)


@entry(4)
def unite(parents: int, count: int, pairs: int, pair_count: int) -> None:
    """Join members of a set, and give each the first one of those that it is joined with.

    Parameters
    ----------
    parents
        Address of int64 0, 1, …, ``count`` - 1, which are replaced.
    count
        Number of members.
    pairs
        Address of the pairs that are joined, int64 ``(pair_count, 2)``.
    pair_count
        Their number.
    """
    p = i64(parents)
    pair = i64(pairs)
    for k in range(pair_count):
        a = pair[2 * k]
        b = pair[2 * k + 1]
        while p[a] != a:
            p[a] = p[p[a]]
            a = p[a]
        while p[b] != b:
            p[b] = p[p[b]]
            b = p[b]
        if a < b:
            p[b] = a
        elif b < a:
            p[a] = b
    for k in range(count):
        p[k] = p[p[k]]
