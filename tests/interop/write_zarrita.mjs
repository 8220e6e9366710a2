// Write stores of versions 2 and 3 with zarrita.js, for `ci/interop zarrita`: `SCRIPT DIRECTORY`.
//
// zarrita creates arrays of version 3 only, so documents of version 2 are written here; chunks are its own. It does not
// write shards, nor encode crc32c, vlen-utf8, bitround, scale_offset and cast_value; gzip and zlib are numcodecs.js's.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import FileSystemStore from "@zarrita/storage/fs";
import GZip from "numcodecs/gzip";
import Zlib from "numcodecs/zlib";
import * as zarr from "zarrita";
import { CHUNKS, SHAPE, TYPES, sample, saveExpected, texts } from "./golden_values.mjs";

const codec = (name, configuration) => ({ name, configuration });
const LITTLE = codec("bytes", { endian: "little" });
const BIG = codec("bytes", { endian: "big" });
for (const prefix of ["", "numcodecs."]) {
  zarr.registry.set(`${prefix}gzip`, () => GZip).set(`${prefix}zlib`, () => Zlib);
}

const TYPESTRINGS = { int8: "|i1", uint8: "|u1", int16: "i2", uint16: "u2", int32: "i4", uint32: "u4" };
Object.assign(TYPESTRINGS, { int64: "i8", uint64: "u8", float32: "f4", float64: "f8" });

function* casesV3() {
  const chains = {
    absent: [],
    little: [LITTLE],
    big: [BIG],
    transpose: [codec("transpose", { order: [1, 0] }), LITTLE],
    "numcodecs-delta": [codec("numcodecs.delta", { dtype: "<i4" }), LITTLE],
    gzip: [LITTLE, codec("gzip", { level: 5 })],
    zstd: [LITTLE, codec("zstd", { level: 3, checksum: false })],
    "zstd-gzip": [BIG, codec("zstd", { level: 1, checksum: false }), codec("gzip", { level: 1 })],
    "numcodecs-shuffle": [LITTLE, codec("numcodecs.shuffle", { elementsize: 4 })],
    "numcodecs-zlib": [LITTLE, codec("numcodecs.zlib", { level: 1 })],
    "numcodecs-lz4": [LITTLE, codec("numcodecs.lz4", { acceleration: 1 })],
  };
  for (const cname of ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]) {
    for (const shuffle of ["noshuffle", "shuffle", "bitshuffle"]) {
      const configuration = { cname, clevel: 5, shuffle, blocksize: 0, typesize: 4 };
      chains[`blosc-${cname}-${shuffle}`] = [LITTLE, codec("blosc", configuration)];
    }
  }
  for (const [name, codecs] of Object.entries(chains)) {
    yield { path: `codecs/${name}`, dtype: "int32", codecs };
  }
  for (const dtype of Object.keys(TYPES)) {
    for (const [endian, first] of Object.entries({ little: LITTLE, big: BIG })) {
      const codecs = [first, codec("gzip", { level: 1 })];
      yield { path: `types/${dtype}-${endian}`, dtype, codecs, fillValue: 7, rows: 4 };
    }
  }
  yield { path: "types/nan-fill", dtype: "float32", codecs: [LITTLE], fillValue: "NaN", rows: 4 };
  yield { path: "types/string", dtype: "string", data: texts(), codecs: [codec("numcodecs.json2", {})], fillValue: "" };
  yield { path: "types/bool", dtype: "bool", data: sample("uint8").map((x) => x % 2), codecs: [LITTLE], fillValue: false };
  yield { path: "keys/dots", dtype: "int32", codecs: [LITTLE], chunkSeparator: "." };
}

function* casesV2() {
  const compressors = {
    none: null,
    zlib: { id: "zlib", level: 5 },
    gzip: { id: "gzip", level: 5 },
    lz4: { id: "lz4", acceleration: 1 },
    zstd: { id: "zstd", level: 3 },
  };
  for (const cname of ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]) {
    for (const shuffle of [0, 1, 2]) {
      compressors[`blosc-${cname}-${shuffle}`] = { id: "blosc", cname, clevel: 5, shuffle, blocksize: 0 };
    }
  }
  for (const [name, compressor] of Object.entries(compressors)) {
    for (const order of ["C", "F"]) {
      yield { path: `codecs/${name}/${order}`, dtype: "int32", members: { compressor, order } };
    }
  }
  for (const dtype of Object.keys(TYPES)) {
    for (const endian of TYPESTRINGS[dtype].startsWith("|") ? [""] : ["<", ">"]) {
      const members = { dtype: endian + TYPESTRINGS[dtype] };
      yield { path: `types/${dtype}${endian === ">" ? "-big" : ""}`, dtype, members };
    }
  }
  yield { path: "filters/delta", dtype: "int32", members: { filters: [{ id: "delta", dtype: "<i4" }] } };
  yield { path: "filters/shuffle", dtype: "int32", members: { filters: [{ id: "shuffle", elementsize: 4 }] } };
  yield { path: "keys/slashes", dtype: "int32", members: { dimension_separator: "/" } };
}

/** Assign the first rows, and save what is read afterwards, in C order. */
async function assign(target, location, array, { path, dtype, data = sample(dtype), rows = 7 }) {
  const values = dtype === "bool" ? new zarr.BoolArray(data.buffer) : data.slice(0, rows * 5);
  await zarr.set(array, [zarr.slice(0, rows), null], { data: values, shape: [rows, 5], stride: [5, 1] });
  const again = await zarr.get(await zarr.open(location, { kind: "array" }));
  const items = [];
  for (let row = 0; row < 7; row++) {
    for (let column = 0; column < 5; column++) {
      const offset = row * again.stride[0] + column * again.stride[1];
      items.push(dtype === "bool" ? Number(again.data.get(offset)) : again.data[offset]);
    }
  }
  const isText = dtype === "string";
  saveExpected(target.directory, `${target.store}/${path}`, isText ? "object" : dtype, SHAPE, isText ? items : data.constructor.from(items));
}

async function main(directory) {
  const root3 = zarr.root(new FileSystemStore(join(directory, "v3")));
  await zarr.create(root3, { attributes: { title: "golden" } });
  for (const given of casesV3()) {
    const { path, dtype, codecs, chunkSeparator, fillValue = 0 } = given;
    const location = root3.resolve(path);
    const array = await zarr.create(location, {
      ...{ shape: SHAPE, chunkShape: CHUNKS, dtype, codecs, fillValue, chunkSeparator },
      dimensionNames: ["y", "x"],
      attributes: { units: "m" },
    });
    await assign({ directory, store: "v3" }, location, array, given);
  }
  const root2 = zarr.root(new FileSystemStore(join(directory, "v2")));
  for (const given of casesV2()) {
    const { path, dtype, members } = given;
    const document = { zarr_format: 2, shape: SHAPE, chunks: CHUNKS, dtype: `<${TYPESTRINGS[dtype]}`, fill_value: 0 };
    Object.assign(document, { compressor: null, filters: null, order: "C", ...members });
    mkdirSync(join(directory, "v2", path), { recursive: true });
    writeFileSync(join(directory, "v2", path, ".zarray"), JSON.stringify(document));
    const location = root2.resolve(path);
    await assign({ directory, store: "v2" }, location, await zarr.open.v2(location, { kind: "array" }), given);
  }
}

await main(process.argv[2]);
