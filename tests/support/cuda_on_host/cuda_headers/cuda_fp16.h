/* The part of CUDA's cuda_fp16.h that CuPy's float16.cuh uses. */
#pragma once

struct __half_raw {
    unsigned short x;
};
struct __half {
    unsigned short bits;
    __half() = default;
    __half(float v) : bits(coh_to_half(v)) {}
    __half(const __half_raw &raw) : bits(raw.x) {}
    explicit __half(double v) : bits(coh_to_half(v)) {}
    explicit __half(int v) : bits(coh_to_half(v)) {}
    explicit __half(unsigned v) : bits(coh_to_half(v)) {}
    /* Beyond 65520 either rounding gives infinity, so a double loses nothing. */
    explicit __half(long long v) : bits(coh_to_half((double)v)) {}
    explicit __half(unsigned long long v) : bits(coh_to_half((double)v)) {}
    operator float() const { return coh_from_half(bits); }
    operator __half_raw() const { return {bits}; }
};
typedef __half half;
inline unsigned short __half_as_ushort(__half v) { return v.bits; }
inline __half __ushort_as_half(unsigned short v) { return __half(__half_raw{v}); }
