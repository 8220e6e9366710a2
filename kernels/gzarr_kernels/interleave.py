"""Vector building blocks for unshuffling, written with LLVM vectors of 32 bytes.

LLVM turns them into AVX2, NEON or whatever the machine has. Loops over single bytes vectorise well for 2 planes; for 4
and 8 planes, and for transposing bits, explicit vectors are faster.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I8 = ir.IntType(8)
_I64 = ir.IntType(64)
_LANES = 32
_V = ir.VectorType(_I8, _LANES)
_W = ir.VectorType(_I64, _LANES // 8)


def _constant_mask(values: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(values)), values)


def _unpack(builder: Any, a: Any, b: Any, lanes: int, unit: int, high: bool) -> Any:
    """Interleave units of ``unit`` bytes of the low or high half of each 16-byte lane (x86's punpck)."""
    width = min(lanes, 16)
    mask = []
    for lane in range(0, lanes, width):
        for i in range(width // 2 // unit):
            first = lane + (width // 2 if high else 0) + i * unit
            mask += [first + j for j in range(unit)]
            mask += [lanes + first + j for j in range(unit)]
    return builder.shuffle_vector(a, b, _constant_mask(mask))


def interleaved(builder: Any, vectors: list[Any], lanes: int, unit: int = 1) -> list[Any]:
    """Return vectors whose 16-byte lanes hold units of all inputs in turn, in the order of ``_store_lanes``.

    If there are as many inputs as units of ``unit`` bytes in a lane, this transposes each lane.
    """
    # Each group holds the pieces, low to high, of some neighbouring planes; groups are joined in pairs.
    groups = [[vector] for vector in vectors]
    while len(groups) > 1:
        groups = [
            [
                _unpack(builder, left, right, lanes, unit, high)
                for left, right in zip(groups[i], groups[i + 1], strict=True)
                for high in (False, True)
            ]
            for i in range(0, len(groups), 2)
        ]
        unit *= 2
    return groups[0]


def reversed_units(builder: Any, vector: Any, width: int) -> Any:
    """Return a vector of bytes with each unit of ``width`` bytes (a power of two) reversed."""
    if width < 2:
        return vector
    return builder.shuffle_vector(vector, vector, _constant_mask([i ^ (width - 1) for i in range(vector.type.count)]))


def _load_planes(builder: Any, source: Any, plane: Any, count: int, lanes: int = _LANES) -> list[Any]:
    pointer = ir.VectorType(_I8, lanes).as_pointer()
    vectors = []
    address = source
    for _ in range(count):
        vectors.append(builder.load(builder.inttoptr(address, pointer), align=1))
        address = builder.add(address, plane)
    return vectors


def store(builder: Any, vector: Any, target: Any, offset: int, stream: bool) -> None:
    """Store a vector ``offset`` bytes after an address; with ``stream``, bypass the caches."""
    at = builder.inttoptr(builder.add(target, ir.Constant(_I64, offset)), vector.type.as_pointer())
    store = builder.store(vector, at, align=_LANES if stream else 1)
    if stream:
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))


def _store_lanes(builder: Any, pieces: list[Any], target: Any, lanes: int, stream: bool) -> None:
    """Store the lanes of all pieces: the first lane of each piece in turn, then the second of each."""
    if lanes <= 16:
        for i, piece in enumerate(pieces):
            store(builder, piece, target, i * lanes, False)
        return
    for lane in range(lanes // 16):
        for i in range(0, len(pieces), 2):
            mask = [lane * 16 + j for j in range(16)] + [lanes + lane * 16 + j for j in range(16)]
            both = builder.shuffle_vector(pieces[i], pieces[i + 1], _constant_mask(mask))
            store(builder, both, target, (lane * len(pieces) + i) * 16, stream)


def _make_interleave(count: int, lanes: int = _LANES, stream: bool = False) -> Any:
    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def interleave(typing_context: Any, source: Any, plane: Any, target: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vectors = _load_planes(builder, args[0], args[1], count, lanes)
            _store_lanes(builder, interleaved(builder, vectors, lanes), args[2], lanes, stream)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return interleave


#: ``interleaveN(source, plane, target)``: 32 bytes of each of N planes become 32 elements of N bytes.
interleave2 = _make_interleave(2)
interleave4 = _make_interleave(4)
interleave8 = _make_interleave(8)
#: The same with 8 bytes of each plane, for short rows.
short2 = _make_interleave(2, 8)
short4 = _make_interleave(4, 8)
short8 = _make_interleave(8, 8)
#: With 32 bytes, bypassing the caches, for outputs larger than these; ``target`` must be a multiple of 32.
stream2 = _make_interleave(2, stream=True)
stream4 = _make_interleave(4, stream=True)
stream8 = _make_interleave(8, stream=True)


def make_move(vectors: int, stream: bool, swap: int = 0) -> Any:
    """``move(source, target)``: copy vectors of 32 bytes, with units of ``swap`` bytes reversed."""

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def move(typing_context: Any, source: Any, target: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            step = ir.Constant(_I64, _LANES)
            loaded = _load_planes(builder, args[0], step, vectors)
            for i, vector in enumerate(loaded):
                store(builder, reversed_units(builder, vector, swap), args[1], i * _LANES, stream)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return move


#: ``move32(source, target)``, ``move64(source, target)``: 32 or 64 bytes.
move32 = make_move(1, False)
move64 = make_move(2, False)
#: 64 bytes, bypassing the caches; ``target`` must be a multiple of 32.
stream64 = make_move(2, True)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def fence(typing_context: Any) -> Any:
    """``fence()``: make stores that bypassed the caches visible to other threads before anything that follows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def _transpose_bits(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose the 8 × 8 bits at each byte position: bit ``i`` of row ``k`` becomes bit ``k`` of row ``i``.

    Three rounds of swaps (Warren, Hacker's Delight, 7-3) on 64-bit lanes; the masks keep bytes apart.
    """
    rows = list(rows)
    for distance, mask in ((4, 0x0F), (2, 0x33), (1, 0x55)):
        keep = ir.Constant(_W, [int.from_bytes(bytes([mask] * 8), "little")] * (_LANES // 8))
        by = ir.Constant(_W, [distance] * (_LANES // 8))
        for k in range(8):
            if k & distance:
                continue
            low, high = rows[k], rows[k + distance]
            swap = builder.and_(builder.xor(builder.lshr(low, by), high), keep)
            rows[k + distance] = builder.xor(high, swap)
            rows[k] = builder.xor(low, builder.shl(swap, by))
    return rows


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def interleave_bits(typing_context: Any, source: Any, plane: Any, target: Any) -> Any:
    """``interleave_bits(source, plane, target)``: 32 bytes of each of 8 bit planes become 256 bytes.

    Bit ``b`` of output byte ``8 m + k`` is bit ``k`` of byte ``m`` of plane ``b``.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows = [builder.bitcast(v, _W) for v in _load_planes(builder, args[0], args[1], 8)]
        rows = [builder.bitcast(v, _V) for v in _transpose_bits(builder, rows)]
        _store_lanes(builder, interleaved(builder, rows, _LANES), args[2], _LANES, False)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def prefetch(typing_context: Any, address: Any) -> Any:
    """Prefetch the cache line at an address; the address may be invalid."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _I8.as_pointer()
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        # For reading; into all cache levels; data.
        flags = [ir.Constant(i32, value) for value in (0, 3, 1)]
        builder.call(function, [builder.inttoptr(args[0], pointer), *flags])
        return context.get_dummy_value()

    return types.void(types.int64), codegen
