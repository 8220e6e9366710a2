/* What the parts of the CUDA runtime in host memory know of each other.
 *
 * runtime.c    memory, streams, events, copies, devices, faults: stands in place of cudart's and the driver's functions
 * kernels      run launches: gzarr's from the IR that a GPU would get, CuPy's own by a compiler for the host
 * nvCOMP       the host's decoders and encoders, enqueued on a stream
 */
#ifndef CUDA_ON_HOST_API_H
#define CUDA_ON_HOST_API_H

#include <stddef.h>
#include <stdint.h>

/* -- faults: what is undefined or an error on a GPU */

typedef struct {
    int code;          /* CUDA's number of the error: 700 illegal address, 716 misaligned address, 719 launch failure */
    char message[512]; /* for the person who reads the failed test */
} coh_fault;

/* -- memory */

enum { COH_NONE = 0, COH_DEVICE = 1, COH_PINNED = 2 };

typedef struct {
    int kind;   /* one of the above */
    int device; /* of device memory */
    uintptr_t begin;
    size_t nbytes; /* as asked for, not rounded up */
} coh_block;

/* Find the live memory that contains an address. Where CuPy's pool has been watched (coh_pool_taken), a block is what the
 * pool has given out, not the whole that it was cut from. Returns 1 if there is one, else 0; takes no lock that a running
 * operation may hold. */
int coh_find(uintptr_t address, coh_block *found);

/* A block that CuPy's pool has given out on a stream, and one that it has got back: poisoned in the order of that stream. */
void coh_pool_taken(uintptr_t address, size_t nbytes, void *stream);
void coh_pool_returned(uintptr_t address);

/* -- work on streams */

/* Enqueue a function. It runs on the stream's thread, after what was enqueued before. Returns a CUDA error: 0 if enqueued.
 * If it sets fault->code, the device is lost from then on: all later calls fail, as CUDA's do. */
typedef void (*coh_work)(void *self, coh_fault *fault);
int coh_enqueue(void *stream, coh_work work, void *self);

/* -- kernels */

typedef struct {
    unsigned grid[3], block[3], shared_nbytes;
    int device;    /* whose memory the kernel may use */
    uint64_t seed; /* of the order of blocks and threads */
} coh_launch;

/* Runs a whole launch on the calling thread, the stream's. `parameters` are addresses of copies made at the launch.
 * Returns 0, or the code that it has set in the fault. */
typedef int (*coh_run)(void *self, void *const *parameters, const coh_launch *launch, coh_fault *fault);

enum { COH_MOST_PARAMETERS = 64 };

typedef struct {
    coh_run run;
    void *self;
    int n_parameters;
    uint32_t parameter_nbytes[COH_MOST_PARAMETERS]; /* how much the launch copies of each */
} coh_kernel;

/* Called for cuModuleGetFunction, on the calling thread, without locks held. `image` is what cuModuleLoadData was given.
 * Returns 0, or a CUDA error: 500 if there is no such entry. */
typedef int (*coh_resolver)(const void *image, const char *entry, coh_kernel *found);
void coh_set_resolver(coh_resolver resolver);

#endif
