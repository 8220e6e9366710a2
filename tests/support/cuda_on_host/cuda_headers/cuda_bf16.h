/* The part of CUDA's cuda_bf16.h that CuPy's bfloat16.cuh uses. */
#pragma once

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float v) : bits(coh_to_bfloat16(v)) {}
    operator float() const { return coh_from_bfloat16(bits); }
};
inline bool operator==(__nv_bfloat16 a, __nv_bfloat16 b) { return (float)a == (float)b; }
inline bool __hisnan(__nv_bfloat16 v) { return (v.bits & 0x7fff) > 0x7f80; }
inline bool __hisinf(__nv_bfloat16 v) { return (v.bits & 0x7fff) == 0x7f80; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    __nv_bfloat16 v;
    v.bits = bits;
    return v;
}
