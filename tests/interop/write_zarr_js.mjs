// Write stores of version 2 with zarr.js, for `ci/interop zarr-js`: `SCRIPT DIRECTORY`.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { KeyError, NestedArray, addCodec, create, openArray, openGroup, slice } from "zarr";
import LZ4 from "numcodecs/lz4";
import Zstd from "numcodecs/zstd";
import { CHUNKS, SHAPE, TYPES, sample, saveExpected } from "./golden_values.mjs";

addCodec("lz4", () => LZ4);
addCodec("zstd", () => Zstd);

const TYPESTRINGS = { int8: "|i1", uint8: "|u1", int16: "i2", uint16: "u2", int32: "i4", uint32: "u4" };
Object.assign(TYPESTRINGS, { float32: "f4", float64: "f8" });

function* cases() {
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
    yield { path: `codecs/${name}`, name: "int32", options: { compressor } };
  }
  for (const [name, typestring] of Object.entries(TYPESTRINGS)) {
    for (const endian of typestring.startsWith("|") ? [""] : ["<", ">"]) {
      const options = { dtype: endian + typestring, fillValue: 7, compressor: { id: "zlib", level: 1 } };
      yield { path: `types/${name}${endian === ">" ? "-big" : ""}`, name, options, rows: 4 };
    }
  }
  yield { path: "types/nan-fill", name: "float32", options: { dtype: "<f4", fillValue: NaN }, rows: 4 };
  yield { path: "types/infinite-fill", name: "float64", options: { dtype: "<f8", fillValue: -Infinity }, rows: 4 };
  yield { path: "keys/slashes", name: "int32", options: { dimensionSeparator: "/" } };
  yield { path: "no-fill", name: "int32", options: { fillValue: null } };
}

/** Files: zarr.js has no store of its own for them. */
class DirectoryStore {
  constructor(root) {
    this.root = root;
  }

  getItem(key) {
    if (!this.containsItem(key)) throw new KeyError(key);
    return readFileSync(join(this.root, key));
  }

  setItem(key, value) {
    const path = join(this.root, key);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, value instanceof ArrayBuffer ? new Uint8Array(value) : value);
    return true;
  }

  containsItem(key) {
    return existsSync(join(this.root, key));
  }
}

async function main(directory) {
  const store = new DirectoryStore(join(directory, "v2"));
  const root = await openGroup(store, null, "a");
  await root.attrs.setItem("title", "golden");
  for (const { path, name, options, rows = 7 } of cases()) {
    const array = await create({ store, path, shape: SHAPE, chunks: CHUNKS, dtype: "<i4", fillValue: 0, ...options });
    await array.attrs.setItem("units", "m");
    const data = sample(name).slice(0, rows * 5);
    await array.set([slice(0, rows), null], new NestedArray(data, [rows, 5]));
    const { data: read } = await (await openArray({ store, path, mode: "r" })).getRaw(null);
    saveExpected(directory, `v2/${path}`, name, SHAPE, TYPES[name].from(read));
  }
}

await main(process.argv[2]);
