"""LZ4 encoder that writes only long matches, for byte planes of numbers.

LZ4's own encoder takes the first match of four bytes or more. If a plane has few distinct bytes, nearly every position
has a match, and taking it cuts longer matches that begin a little later. This encoder searches only for matches of
eight bytes. It writes fewer sequences, so it is faster and its blocks are smaller. In text it finds fewer matches; a
trial decides whether it does well (``gzarr.engines.cpu.effort``).

Two measures keep the processor from waiting for one match after the other: lengths are found by comparing 64 bytes at
once rather than in a loop with unpredictable branches; and both halves of a block are searched at the same time, in
alternating steps, each with its own table. Source: lz4, ``doc/lz4_Block_format.md`` (format).
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import int64, types, uint64
from numba.extending import intrinsic

from .jit import in_line, part, unit
from .memory import copy, u8, u16, u32, u64
from .symbols import c_memset

_HASH_LOG: Final = 11
_TABLE_BYTES: Final = 4 << _HASH_LOG
#: Shorter blocks are searched from end to end.
_LEAST_HALF: Final = 4 << 10
_MATCH: Final = 8
_VECTOR: Final = 64
#: A match begins at least this many bytes before the end: the format requires 12, but vectors extend further.
_END: Final = _VECTOR + 16
_MOST_DISTANCE: Final = 65535
#: After this many positions (log2) without a match, each step skips one more byte.
_PATIENCE_LOG: Final = 5
_LEAST_MATCH: Final = 4
_LONG: Final = 15
_PRIME: Final = 0x9E3779B185EBCA87

_I8 = ir.IntType(8)
_I64 = ir.IntType(64)
_V = ir.VectorType(_I8, _VECTOR)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _equal_after(typing_context: Any, a: Any, b: Any) -> Any:
    """``_equal_after(a, b)``: number of leading equal bytes among the 64 bytes at ``a`` and ``b``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right = (builder.load(builder.inttoptr(x, _V.as_pointer()), align=1) for x in args)
        other = builder.bitcast(builder.icmp_unsigned("!=", left, right), _I64)
        return builder.cttz(other, ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _equal_before(typing_context: Any, a: Any, b: Any) -> Any:
    """``_equal_before(a, b)``: number of trailing equal bytes among the 8 bytes before ``a`` and ``b``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        eight = ir.Constant(_I64, 8)
        left, right = (builder.load(builder.inttoptr(builder.sub(x, eight), _I64.as_pointer()), align=1) for x in args)
        zeros = builder.ctlz(builder.xor(left, right), ir.Constant(ir.IntType(1), 0))
        return builder.lshr(zeros, ir.Constant(_I64, 3))

    return types.int64(types.int64, types.int64), codegen


@in_line
def _slot(eight: Any) -> Any:
    return int64((eight * uint64(_PRIME)) >> uint64(64 - _HASH_LOG))


@part
def _rest(out: int, length: int) -> int:
    """Write the part of a length that does not fit the token; return the address after it."""
    length -= _LONG
    while length >= 255:
        u8(out)[0] = 255
        out += 1
        length -= 255
    u8(out)[0] = length
    return out + 1


@in_line
def _literals(out: int, source: int, nbytes: int, match: int) -> int:
    """Write the token of a sequence and its literals; at least 16 bytes must be readable and writable."""
    if nbytes < _LONG:
        u8(out)[0] = (nbytes << 4) | match
        copy(out + 1, source, 16)
        return out + 1 + nbytes
    u8(out)[0] = (_LONG << 4) | match
    out = _rest(out + 1, nbytes)
    copy(out, source, nbytes)
    return out + nbytes


@in_line
def _most_rest(nbytes: int) -> int:
    """Return an upper limit of the bytes of a sequence for ``nbytes`` bytes, without its literals."""
    return (nbytes >> 8) + (nbytes >> 15) + 8


@in_line
def _sequence(out: int, begin: int, at: int, length: int, distance: int) -> int:
    """Write the literals from ``begin`` to ``at`` and a match; return the address after them."""
    code = length - _LEAST_MATCH
    out = _literals(out, begin, at - begin, min(code, _LONG))
    u16(out)[0] = distance
    out += 2
    if code < _LONG + 255:
        # If this byte is not needed, the next write overwrites it.
        u8(out)[0] = (code - _LONG) & 0xFF
        return out + 1 if code >= _LONG else out
    return _rest(out, code)


@in_line
def _find(table: int, source: int, begin: int, at: int, last: int) -> Any:
    """Search for a match at ``at``; return its begin, its length (0: none) and its distance."""
    t = u32(table)
    eight = u64(at)[0]
    slot = _slot(eight)
    earlier = source + int64(t[slot])
    t[slot] = at - source
    if u64(earlier)[0] != eight or at - earlier > _MOST_DISTANCE or earlier >= at:
        return at, 0, 0
    length = _equal_after(at, earlier)
    if length == _VECTOR:
        while at + length < last:
            more = _equal_after(at + length, earlier + length)
            if more < _VECTOR:
                length += more
                break
            length += _VECTOR
    distance = at - earlier
    if at > begin and earlier >= source + _MATCH:
        back = min(_equal_before(at, earlier), at - begin)
        at -= back
        length += back
    behind = at + length - 2
    t[_slot(u64(behind)[0])] = behind - source
    return at, length, distance


@in_line
def _step(table: int, source: int, begin: int, at: int, tries: int, out: int, last: int, stop: int) -> Any:
    """Search for a match at ``at``; return the new ``begin``, ``at``, ``tries`` and ``out`` (0: no room)."""
    found, length, distance = _find(table, source, begin, at, last)
    if length == 0:
        return begin, at + (tries >> _PATIENCE_LOG), tries + 1, out
    end = found + length
    if stop - out < found - begin + _most_rest(end - begin):
        return end, last, tries, 0
    return end, end, 1 << _PATIENCE_LOG, _sequence(out, begin, found, length, distance)


@part
def workspace_nbytes(nbytes: int) -> int:
    """Return the size of the workspace of ``lz4_encode``: two tables, and the encoded second half."""
    half = nbytes - nbytes // 2
    return 2 * _TABLE_BYTES + half + half // 255 + 64


@unit(types.int64, 5)
def lz4_encode(workspace: int, source: int, nbytes: int, target: int, capacity: int) -> int:
    """Write one LZ4 block; return its size, or 0 if it does not fit.

    Parameters
    ----------
    workspace
        Address of ``workspace_nbytes(nbytes)`` bytes.
    source, nbytes
        Address and size of the data, less than 2 GiB.
    target, capacity
        Address and size of the output; up to 16 bytes after it may be overwritten.
    """
    c_memset(workspace, 0, 2 * _TABLE_BYTES)
    second = workspace + _TABLE_BYTES
    stop = target + capacity
    end = source + nbytes
    middle = source + nbytes // 2 if nbytes >= 2 * _LEAST_HALF else end
    last, last2 = middle - _END, end - _END
    begin, at, tries, out = source, source + 1, 1 << _PATIENCE_LOG, target
    # The first match of the second half: it is written after the first half.
    begin2, at2, tries2 = middle, middle, 1 << _PATIENCE_LOG
    joint, joint_length, joint_distance = end, 0, 0
    while at2 < last2:
        joint, joint_length, joint_distance = _find(second, source, begin2, at2, last2)
        if joint_length > 0:
            at2 = begin2 = joint + joint_length
            break
        at2 += tries2 >> _PATIENCE_LOG
        tries2 += 1
    tries2 = 1 << _PATIENCE_LOG
    first2 = out2 = second + _TABLE_BYTES
    stop2 = workspace + workspace_nbytes(nbytes)
    while at < last and at2 < last2:
        begin, at, tries, out = _step(workspace, source, begin, at, tries, out, last, stop)
        begin2, at2, tries2, out2 = _step(second, source, begin2, at2, tries2, out2, last2, stop2)
    while at < last:
        begin, at, tries, out = _step(workspace, source, begin, at, tries, out, last, stop)
    while at2 < last2:
        begin2, at2, tries2, out2 = _step(second, source, begin2, at2, tries2, out2, last2, stop2)
    if out == 0 or out2 == 0:
        return 0
    if joint_length > 0:
        written = out2 - first2
        if stop - out < joint - begin + _most_rest(joint + joint_length - begin) + written:
            return 0
        out = _sequence(out, begin, joint, joint_length, joint_distance)
        copy(out, first2, written)
        out += written
        begin = begin2
    # As in a sequence, but without reading beyond the end. Sharing one function between both makes the loop slower.
    literals = end - begin
    if stop - out < 1 + literals + literals // 255 + 1:
        return 0
    if literals < _LONG:
        u8(out)[0] = literals << 4
        out += 1
    else:
        u8(out)[0] = _LONG << 4
        out = _rest(out + 1, literals)
    copy(out, begin, literals)
    return out + literals - target
