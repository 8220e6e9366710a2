"""What is known of each label of a block: its elements, their places, and the elements of images there.

Labels are any integers; each gets a place in a table of hashes, which is looked up once a run of equal elements.

Elements of images are added with what the rounding of each sum leaves out. Squares are those of differences to the mean
of a few elements of a run, which are read twice; those of runs are merged (Chan, Golub and LeVeque), so that neither
large numbers nor outliers cost digits.
"""

from __future__ import annotations

from typing import Any

from numba import float64, int64, uint8, uint16, uint32, uint64

from .components import advance
from .jit import entry, in_line, part
from .memory import f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from .slots.regions import (
    AREAS,
    BACKGROUND,
    BOXES,
    CAPACITY,
    COORDS,
    COUNT,
    FIRSTS,
    IMAGE_ROWS,
    IMAGES,
    LABELS,
    LEADING,
    LEAST,
    LENGTH,
    LENGTHS,
    MEASURES,
    MOST,
    NEW,
    OLD,
    OLD_COUNT,
    REST,
    ROWS,
    SOURCE,
    SQUARES,
    STATISTICS,
    SUM,
    SUMS,
    TABLE,
    TABLE_SIZE,
    TARGET,
    TARGET_WIDTH,
    WIDTH,
)


@part
def place_of(job: int, label: Any) -> int:
    """Return the place of a label, a new one if it is new; -1 if there is no room."""
    j = i64(job)
    table = i64(j[TABLE])
    labels = u64(j[LABELS])
    mask = j[TABLE_SIZE] - 1
    # Fibonacci hashing: consecutive labels lie far from each other.
    at = int64((label * uint64(0x9E3779B97F4A7C15)) >> uint64(32)) & mask
    while table[at] != 0:
        if labels[table[at] - 1] == label:
            return table[at] - 1
        at = (at + 1) & mask
    place = j[COUNT]
    if place >= j[CAPACITY]:
        return -1
    table[at] = place + 1
    labels[place] = label
    j[COUNT] = place + 1
    axes = j[LEADING] + 1
    i64(j[AREAS])[place] = 0
    for d in range(axes):
        i64(j[SUMS])[place * axes + d] = 0
        i64(j[BOXES])[2 * (place * axes + d)] = int64(0x7FFFFFFFFFFFFFFF)
        i64(j[BOXES])[2 * (place * axes + d) + 1] = 0
    return place


#: Elements of a run that are read twice, while they are in the cache.
_PIECE = 2048
#: Numbers times this one, less what that adds, have their upper half of digits.
_SPLIT = 134217729.0


@in_line
def rest_of_sum(one: float, other: float, total: float) -> float:
    """Return what the rounding of the sum of two numbers has left out."""
    part_of_other = total - one
    return (one - (total - part_of_other)) + (other - part_of_other)


@in_line
def rest_of_mean(total: float, rest: float, n: float, mean: float) -> float:
    """Return what the rounding of a mean has left out."""
    high_mean = mean * _SPLIT - (mean * _SPLIT - mean)
    high_n = n * _SPLIT - (n * _SPLIT - n)
    low_mean = mean - high_mean
    low_n = n - high_n
    product = mean * n
    left_out = ((high_mean * high_n - product) + high_mean * low_n + low_mean * high_n) + low_mean * low_n
    return ((total - product) - left_out + rest) / n


def _make_image(view: Any, *, exact: bool = False) -> Any:
    """``add(…)`` for an image of one type; the sums of elements of a piece may be exact as int64."""

    @part
    def add(address: int, at: int, begin: int, end: int, known: int) -> None:
        """Add the elements of a run to what is measured of as many as are known."""
        x = view(address + 0)
        m = f64(at)
        if known == 0:
            m[SUM] = 0
            m[REST] = 0
            m[SQUARES] = 0
            m[LEAST] = float64(x[begin])
            m[MOST] = float64(x[begin])
        total = m[SUM]
        rest = m[REST]
        squares = m[SQUARES]
        least = m[LEAST]
        most = m[MOST]
        count = float64(known)
        while begin < end:
            stop = min(begin + _PIECE, end)
            own = 0.0
            own_rest = 0.0
            whole = int64(0)
            for k in range(begin, stop):
                v = float64(x[k])
                if exact:
                    whole += int64(x[k])
                else:
                    next_own = own + v
                    own_rest += rest_of_sum(own, v, next_own)
                    own = next_own
                # Once NaN, always NaN.
                if v < least or v != v:
                    least = v
                if v > most or v != v:
                    most = v
            if exact:
                own = float64(whole)
            n = float64(stop - begin)
            mean = (own + own_rest) / n
            apart = 0.0
            own_squares = 0.0
            for k in range(begin, stop):
                difference = float64(x[k]) - mean
                apart += difference
                own_squares += difference * difference
            squares += own_squares - apart * apart / n
            if count > 0:
                known_mean = (total + rest) / count
                difference = (mean - known_mean) + (apart / n - rest_of_mean(total, rest, count, known_mean))
                squares += difference * difference * (count * n / (count + n))
            next_total = total + own
            rest += rest_of_sum(total, own, next_total) + own_rest
            total = next_total
            count += n
            begin = stop
        m[SUM] = total
        m[REST] = rest
        m[SQUARES] = squares
        m[LEAST] = least
        m[MOST] = most

    return add


_u1, _u2, _u4 = _make_image(u8, exact=True), _make_image(u16, exact=True), _make_image(u32, exact=True)
_i1, _i2, _i4 = _make_image(i8, exact=True), _make_image(i16, exact=True), _make_image(i32, exact=True)
_u8, _i8 = _make_image(u64), _make_image(i64)
_f4, _f8 = _make_image(f32), _make_image(f64)


@in_line
def add_of_kind(kind: int, address: int, at: int, begin: int, end: int, known: int) -> None:
    """Add the elements of a run of an image of a kind."""
    if kind == 0:
        _u1(address, at, begin, end, known)
    elif kind == 1:
        _u2(address, at, begin, end, known)
    elif kind == 2:
        _u4(address, at, begin, end, known)
    elif kind == 3:
        _u8(address, at, begin, end, known)
    elif kind == 4:
        _i1(address, at, begin, end, known)
    elif kind == 5:
        _i2(address, at, begin, end, known)
    elif kind == 6:
        _i4(address, at, begin, end, known)
    elif kind == 7:
        _i8(address, at, begin, end, known)
    elif kind == 8:
        _f4(address, at, begin, end, known)
    else:
        _f8(address, at, begin, end, known)


@part
def add_run(job: int, place: int, row: int, begin: int, end: int) -> None:
    """Add a run of equal labels to what is measured of them."""
    j = i64(job)
    axes = j[LEADING] + 1
    last = axes - 1
    n = end - begin
    areas = i64(j[AREAS])
    sums = i64(j[SUMS] + 8 * place * axes)
    box = i64(j[BOXES] + 16 * place * axes)
    coords = i64(j[COORDS])
    known = areas[place]
    first = row * j[LENGTH]
    if known == 0:
        i64(j[FIRSTS])[place] = first + begin
    areas[place] += n
    for d in range(last):
        c = coords[d]
        sums[d] += c * n
        box[2 * d] = min(box[2 * d], c)
        box[2 * d + 1] = max(box[2 * d + 1], c + 1)
    sums[last] += (begin + end - 1) * n // 2
    box[2 * last] = min(box[2 * last], begin)
    box[2 * last + 1] = max(box[2 * last + 1], end)
    images = i64(j[IMAGE_ROWS])
    for i in range(j[IMAGES]):
        at = j[MEASURES] + 8 * STATISTICS * (i * j[CAPACITY] + place)
        add_of_kind(images[2 * i + 1], images[2 * i], at, first + begin, first + end, known)


def _make(view: Any, kind: Any, width: int) -> tuple[Any, Any, Any]:
    """Return functions for labels of one width: what is measured, and new numbers of 4 and of 8 bytes."""

    @part
    def measured(job: int) -> None:
        j = i64(job)
        coords = i64(j[COORDS])
        n = j[LENGTH]
        background = kind(j[BACKGROUND])
        known = kind(background)
        place = int64(-1)
        for d in range(j[LEADING]):
            coords[d] = 0
        for row in range(j[ROWS]):
            s = view(j[SOURCE] + row * n * width)
            x = int64(0)
            while x < n:
                v = s[x]
                begin = x
                x += 1
                while x < n and s[x] == v:
                    x += 1
                if v == background:
                    continue
                if v != known:
                    place = place_of(job, uint64(v))
                    if place < 0:
                        j[COUNT] = -1
                        return
                    known = v
                add_run(job, place, row, begin, x)
            advance(j[COORDS], j[LENGTHS], j[LEADING])

    def make_renaming(into: Any, number: Any, size: int) -> Any:
        @part
        def renamed(job: int) -> None:
            j = i64(job)
            old = u64(j[OLD])
            new = u64(j[NEW])
            s = view(j[SOURCE])
            t = into(j[TARGET])
            n = j[ROWS] * j[LENGTH]
            x = int64(0)
            while x < n:
                v = s[x]
                label = uint64(v)
                # The first one that is not below it.
                low = int64(0)
                high = j[OLD_COUNT]
                while low < high:
                    middle = (low + high) // 2
                    if old[middle] < label:
                        low = middle + 1
                    else:
                        high = middle
                found = number(0)
                if low < j[OLD_COUNT] and old[low] == label:
                    found = number(new[low])
                while x < n and s[x] == v:
                    t[x] = found
                    x += 1

        return renamed

    return measured, make_renaming(u32, uint32, 4), make_renaming(u64, uint64, 8)


_measured_1, _renamed_1_4, _renamed_1_8 = _make(u8, uint8, 1)
_measured_2, _renamed_2_4, _renamed_2_8 = _make(u16, uint16, 2)
_measured_4, _renamed_4_4, _renamed_4_8 = _make(u32, uint32, 4)
_measured_8, _renamed_8_4, _renamed_8_8 = _make(u64, uint64, 8)


@entry(1)
def measure(job: int) -> None:
    """Measure the labels of a block; see ``slots/regions.py``."""
    width = i64(job)[WIDTH]
    if width == 1:
        _measured_1(job)
    elif width == 2:
        _measured_2(job)
    elif width == 4:
        _measured_4(job)
    else:
        _measured_8(job)


@entry(1)
def rename(job: int) -> None:
    """Give labels new numbers; those that are not known get 0."""
    width = i64(job)[WIDTH]
    narrow = i64(job)[TARGET_WIDTH] == 4
    if width == 1:
        if narrow:
            _renamed_1_4(job)
        else:
            _renamed_1_8(job)
    elif width == 2:
        if narrow:
            _renamed_2_4(job)
        else:
            _renamed_2_8(job)
    elif width == 4:
        if narrow:
            _renamed_4_4(job)
        else:
            _renamed_4_8(job)
    elif narrow:
        _renamed_8_4(job)
    else:
        _renamed_8_8(job)
