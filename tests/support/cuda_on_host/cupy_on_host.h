/* What NVRTC knows without an include, for CuPy's kernels that g++ compiles: threads, barriers, warps, atomics, mathematics.
 *
 * CuPy's own headers come after it, so parameters are packed and indexed by the same code as on a GPU. `carray.cuh` is a
 * copy whose every element goes through `coh_element` (cupy_kernels.py writes it).
 */
#ifndef CUPY_ON_HOST_H
#define CUPY_ON_HOST_H

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <limits>
#include <type_traits>
#include <utility>

#include "api.h"

#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* Blocks of a launch run one after the other on one thread of the CPU. */
#define __shared__ static thread_local

/* -- the launch, in cupy_on_host.cpp */

struct coh_dim3 {
    unsigned x, y, z;
};
extern __thread coh_dim3 coh_thread_index, coh_block_index, coh_block_size, coh_grid_size;
#define threadIdx coh_thread_index
#define blockIdx coh_block_index
#define blockDim coh_block_size
#define gridDim coh_grid_size
enum { coh_warp_size = 32 };
#define warpSize 32

/* Memory that the last accesses were in: [begin, end). */
struct coh_ranges {
    uintptr_t begin[4], end[4];
};
extern __thread coh_ranges coh_known;
[[noreturn]] void coh_stop(int code, const char *format, ...);
void coh_look_up(uintptr_t address, size_t nbytes);
void *coh_dynamic_shared();

template <class T> inline T *coh_element(const T *pointer) {
    uintptr_t address = (uintptr_t)pointer;
    if (address % alignof(T)) coh_stop(716, "an element at %#zx is not aligned to %zu bytes", (size_t)address, alignof(T));
    const coh_ranges &known = coh_known;
    for (int i = 0; i < 4; i++)
        if (address >= known.begin[i] && address + sizeof(T) <= known.end[i]) return const_cast<T *>(pointer);
    coh_look_up(address, sizeof(T));
    return const_cast<T *>(pointer);
}

void coh_block_barrier();
void coh_warp_barrier();
/* Every thread of a warp gives 8 bytes and gets those of another lane. */
uint64_t coh_exchange(uint64_t given, int lane);
unsigned coh_vote(bool given);
inline int coh_lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % coh_warp_size;
}

inline void __syncthreads() { coh_block_barrier(); }
inline void __syncwarp(unsigned = ~0u) { coh_warp_barrier(); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}
inline unsigned __ballot_sync(unsigned, bool given) { return coh_vote(given); }
inline int __any_sync(unsigned, bool given) { return coh_vote(given) != 0; }
inline int __all_sync(unsigned, bool given) { return coh_vote(!given) == 0; }

template <class T> inline T coh_shuffled(T given, int lane) {
    static_assert(sizeof(T) <= 8, "a shuffle of more than 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, (const void *)&given, sizeof(T));
    bits = coh_exchange(bits, lane);
    memcpy((void *)&given, &bits, sizeof(T));
    return given;
}
template <class T> inline T __shfl_sync(unsigned, T given, int lane, int width = 32) {
    int first = coh_lane() / width * width;
    return coh_shuffled(given, first + lane % width);
}
template <class T> inline T __shfl_up_sync(unsigned, T given, unsigned delta, int width = 32) {
    int lane = coh_lane(), from = lane - (int)delta;
    return coh_shuffled(given, from < lane / width * width ? lane : from);
}
template <class T> inline T __shfl_down_sync(unsigned, T given, unsigned delta, int width = 32) {
    int lane = coh_lane(), from = lane + (int)delta;
    return coh_shuffled(given, from >= lane / width * width + width ? lane : from);
}
template <class T> inline T __shfl_xor_sync(unsigned, T given, int mask, int width = 32) {
    int lane = coh_lane(), from = lane ^ mask;
    return coh_shuffled(given, from >= lane / width * width + width ? lane : from);
}

/* -- atomics: other launches may run at the same time */

template <class T, class F> inline T coh_atomically(T *address, F changed) {
    using B = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    static_assert(sizeof(T) == sizeof(B), "atomics have 4 or 8 bytes");
    B before = __atomic_load_n((B *)address, __ATOMIC_SEQ_CST), after;
    T old, now;
    do {
        memcpy(&old, &before, sizeof(T));
        now = changed(old);
        memcpy(&after, &now, sizeof(T));
    } while (!__atomic_compare_exchange_n((B *)address, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
#define COH_ATOMIC(T)                                                                                                     \
    inline T atomicAdd(T *a, T v) { return coh_atomically(a, [=](T o) { return (T)(o + v); }); }                          \
    inline T atomicExch(T *a, T v) { return coh_atomically(a, [=](T) { return v; }); }
#define COH_ATOMIC_INTEGER(T)                                                                                             \
    inline T atomicSub(T *a, T v) { return coh_atomically(a, [=](T o) { return (T)(o - v); }); }                          \
    inline T atomicMin(T *a, T v) { return coh_atomically(a, [=](T o) { return o < v ? o : v; }); }                       \
    inline T atomicMax(T *a, T v) { return coh_atomically(a, [=](T o) { return o > v ? o : v; }); }                       \
    inline T atomicAnd(T *a, T v) { return coh_atomically(a, [=](T o) { return (T)(o & v); }); }                          \
    inline T atomicOr(T *a, T v) { return coh_atomically(a, [=](T o) { return (T)(o | v); }); }                           \
    inline T atomicXor(T *a, T v) { return coh_atomically(a, [=](T o) { return (T)(o ^ v); }); }                          \
    inline T atomicCAS(T *a, T c, T v) { return coh_atomically(a, [=](T o) { return o == c ? v : o; }); }
COH_ATOMIC(int)
COH_ATOMIC(unsigned)
COH_ATOMIC(unsigned long long)
COH_ATOMIC(float)
COH_ATOMIC(double)
COH_ATOMIC_INTEGER(int)
COH_ATOMIC_INTEGER(unsigned)
COH_ATOMIC_INTEGER(unsigned long long)
COH_ATOMIC_INTEGER(long long)

/* -- bits */

template <class To, class From> inline To coh_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x) { return coh_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return coh_bits<unsigned>(x); }
inline float __int_as_float(int x) { return coh_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return coh_bits<float>(x); }
inline long long __double_as_longlong(double x) { return coh_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return coh_bits<double>(x); }
inline int __double2hiint(double x) { return (int)(coh_bits<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return (int)coh_bits<uint64_t>(x); }
inline double __hiloint2double(int high, int low) {
    return coh_bits<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
template <class T> inline T __ldg(const T *address) { return *coh_element(address); }

/* -- mathematics that CUDA has in the global namespace */

#define COH_MIN_MAX(A, B, R)                                                                                              \
    inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }                                                          \
    inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
COH_MIN_MAX(int, int, int)
COH_MIN_MAX(unsigned, unsigned, unsigned)
COH_MIN_MAX(int, unsigned, unsigned)
COH_MIN_MAX(unsigned, int, unsigned)
COH_MIN_MAX(long, long, long)
COH_MIN_MAX(unsigned long, unsigned long, unsigned long)
COH_MIN_MAX(long, unsigned long, unsigned long)
COH_MIN_MAX(unsigned long, long, unsigned long)
COH_MIN_MAX(long long, long long, long long)
COH_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
COH_MIN_MAX(long long, unsigned long long, unsigned long long)
COH_MIN_MAX(unsigned long long, long long, unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
#undef COH_MIN_MAX
inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __dadd_rn(double x, double y) { return x + y; }

/* -- half precision, rounded to nearest, ties to even */

inline uint16_t coh_to_half(double value) {
    uint64_t bits = coh_bits<uint64_t>(value);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t fraction = bits & ((1ull << 52) - 1);
    if (exponent == 1024) return fraction ? 0x7fff : sign | 0x7c00;
    if (exponent > 15) return sign | 0x7c00;
    if (exponent < -25) return sign;
    int dropped = 42;
    uint64_t significand = fraction | (exponent >= -1022 ? 1ull << 52 : 0);
    uint64_t result = 0;
    if (exponent < -14)
        dropped += -14 - exponent;
    else {
        significand = fraction;
        result = (uint64_t)(exponent + 15) << 10;
    }
    uint64_t rest = significand & ((1ull << dropped) - 1), half = 1ull << (dropped - 1);
    result += significand >> dropped;
    if (rest > half || (rest == half && (result & 1))) result++;
    return sign | (uint16_t)result;
}
inline float coh_from_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                     : ldexpf((float)fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}
inline uint16_t coh_to_bfloat16(float value) {
    uint32_t bits = coh_bits<uint32_t>(value);
    if (value != value) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float coh_from_bfloat16(uint16_t bits) { return coh_bits<float>((uint32_t)bits << 16); }

/* -- a kernel as cupy_on_host.cpp runs it */

struct coh_compiled {
    void (*thread)(void *const *parameters);
    int waits; /* whether its threads wait for each other */
    int n_parameters;
    uint32_t parameter_nbytes[COH_MOST_PARAMETERS];
    uint64_t pointers; /* which parameters are addresses */
};

template <class F> struct coh_signature;
template <class... A> struct coh_signature<void (*)(A...)> {
    static_assert(sizeof...(A) <= COH_MOST_PARAMETERS, "too many parameters");
    template <size_t... I> static void call(void (*f)(A...), void *const *parameters, std::index_sequence<I...>) {
        (void)parameters;
        f(*(std::decay_t<A> *)parameters[I]...);
    }
    static void call(void (*f)(A...), void *const *parameters) { call(f, parameters, std::index_sequence_for<A...>{}); }
    static constexpr uint64_t pointers() {
        uint64_t found = 0;
        int i = 0;
        ((found |= (uint64_t)std::is_pointer<std::decay_t<A>>::value << i++), ...);
        return found;
    }
    static constexpr coh_compiled compiled(void (*thread)(void *const *), int waits) {
        return {thread, waits, (int)sizeof...(A), {(uint32_t)sizeof(std::decay_t<A>)...}, pointers()};
    }
};
#define COH_KERNEL(entry, waits)                                                                                          \
    static void coh_thread(void *const *parameters) {                                                                     \
        coh_signature<decltype(&entry)>::call(&entry, parameters);                                                        \
    }                                                                                                                     \
    extern "C" const coh_compiled coh_kernel_of_image;                                                                    \
    const coh_compiled coh_kernel_of_image = coh_signature<decltype(&entry)>::compiled(coh_thread, waits);

#endif
