// What the scripts for Node share: values to write, and the form of what must be read (see golden_archive.py).

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

export const SHAPE = [7, 5];
export const CHUNKS = [4, 3];

/** Typed arrays by the specification's name of their type. */
export const TYPES = {
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  float32: Float32Array,
  float64: Float64Array,
};

/** Return 35 elements: for integers with extremes, for floats with NaN, infinities and negative zero. */
export function sample(name) {
  const values = new TYPES[name](35);
  const big = name.endsWith("int64");
  for (let i = 0; i < values.length; i++) {
    if (name.startsWith("float")) values[i] = i / 8 - 2;
    else values[i] = big ? (BigInt(i) * 2654435761000n) / 7n : Math.floor((i * 2654435761) / 7);
  }
  if (name.startsWith("float")) values.set([NaN, Infinity, -Infinity, -0]);
  else if (big) values.set([name === "int64" ? -(2n ** 63n) : 2n ** 64n - 1n]);
  else values.set([name.startsWith("u") ? -1 : 2 ** (8 * values.BYTES_PER_ELEMENT - 1)]);
  return values;
}

/** Return 35 strings of different lengths. */
export function texts() {
  const words = ["", "a", "né", "漢字", "word𝄞"];
  return Array.from({ length: 35 }, (_, i) => words[i % 5].repeat(1 + (i % 3)));
}

/** Write what a reader gave for the array `name`: a typed array, or strings and other values that JSON has. */
export function saveExpected(directory, name, dtype, shape, data) {
  const document = { dtype, shape };
  if (ArrayBuffer.isView(data)) {
    document.bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");
  } else {
    document.items = Array.from(data);
  }
  const path = join(directory, "expected", `${name}.json`);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, JSON.stringify(document));
}
