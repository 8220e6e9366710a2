/* Devices and contexts: two that say they are H100s. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "host.h"

extern int coh_is_initialised(void);
extern void coh_initialise(void);
extern size_t coh_capacity(int device);

static const int driver_version = 13000;

static int attribute(int which) {
    switch (which) {
    case 1: return 1024;        /* threads of a block */
    case 2: case 3: return 1024; /* along x and y */
    case 4: return 64;
    case 5: return 2147483647;  /* blocks along x */
    case 6: case 7: return 65535;
    case 8: return 49152;       /* shared memory of a block */
    case 9: return 65536;       /* constant memory */
    case 10: return 32;         /* warp */
    case 11: return 2147483647; /* pitch */
    case 12: return 65536;      /* registers of a block */
    case 13: return 1980000;    /* kHz */
    case 14: return 512;        /* alignment of textures */
    case 15: return 1;          /* overlap */
    case 16: return 132;        /* multiprocessors */
    case 18: return 0;          /* integrated */
    case 19: return 1;          /* maps host memory */
    case 31: return 1;          /* concurrent kernels */
    case 32: return 1;          /* ECC */
    case 36: return 2619000;    /* kHz of memory */
    case 37: return 5120;       /* bits of its bus */
    case 38: return 52428800;   /* L2 cache */
    case 39: return 2048;       /* threads of a multiprocessor */
    case 40: return 3;          /* engines for copies */
    case 41: return 1;          /* one address space */
    case 75: return 9;          /* compute capability */
    case 76: return 0;
    case 78: return 1;          /* priorities */
    case 81: return 233472;     /* shared memory of a multiprocessor */
    case 82: return 65536;      /* registers of one */
    case 95: return 1;          /* cooperative launches */
    case 97: return 232448;     /* shared memory of a block, if asked for */
    case 106: return 32;        /* blocks of a multiprocessor */
    case 115: return 1;         /* pools of memory */
    default: return 0;
    }
}

int host_cudaDriverGetVersion(int *version) {
    BEGIN(ALWAYS, "");
    *version = driver_version;
    return SUCCESS;
}

int host_cudaRuntimeGetVersion(int *version) {
    BEGIN(ALWAYS, "");
    *version = driver_version;
    return SUCCESS;
}

int host_cudaGetDeviceCount(int *count) {
    *count = 0;
    BEGIN(DRIVER, "");
    *count = coh_visible;
    return SUCCESS;
}

/* These two work until the end of the process, when CuPy frees what is left. */
int host_cudaGetDevice(int *device) {
    *device = coh_here.device;
    if (coh_closing) return SUCCESS;
    BEGIN(DRIVER, "");
    return SUCCESS;
}

int host_cudaSetDevice(int device) {
    if (coh_closing) return SUCCESS;
    BEGIN(DRIVER, "enter");
    if (!coh_valid_device(device)) return coh_last(INVALID_DEVICE);
    /* cuda_runtime_api.h: this "will also immediately initialize the runtime state on the primary context". */
    int code = coh_make_context(device);
    if (code) return coh_last(code);
    coh_here.device = device;
    coh_here.context = device + 1;
    return SUCCESS;
}

int host_cudaDeviceGetAttribute(int *value, int which, int device) {
    BEGIN(DRIVER, "");
    if (!coh_valid_device(device)) return coh_last(INVALID_DEVICE);
    *value = which == 33 ? 0x1e + device : which == 50 ? 0 : which == 34 ? 0 : attribute(which);
    return SUCCESS;
}

int host_cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    BEGIN(DRIVER, "");
    if (!coh_valid_device(device) || !coh_valid_device(peer)) return coh_last(INVALID_DEVICE);
    *can = 0;
    return SUCCESS;
}

int host_cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    BEGIN(RUNTIME, "any");
    (void)flags;
    return coh_last(coh_valid_device(peer) ? NO_PEER_ACCESS : INVALID_DEVICE);
}

int host_cudaDeviceGetLimit(size_t *value, int limit) {
    BEGIN(RUNTIME, "any");
    (void)limit;
    *value = 1024;
    return SUCCESS;
}

int host_cudaDeviceGetPCIBusId(char *text, int room, int device) {
    BEGIN(DRIVER, "");
    if (!coh_valid_device(device)) return coh_last(INVALID_DEVICE);
    snprintf(text, room, "0000:%02x:00.0", 0x1e + device);
    return SUCCESS;
}

int host_cudaDeviceGetByPCIBusId(int *device, const char *text) {
    BEGIN(DRIVER, "");
    for (int i = 0; i < coh_visible; i++) {
        char of_device[32];
        snprintf(of_device, sizeof of_device, "0000:%02x:00.0", 0x1e + i);
        if (!strcmp(of_device, text)) return *device = i, SUCCESS;
    }
    return coh_last(INVALID_VALUE);
}

static void name(char *text, size_t room, int device) {
    (void)device;
    snprintf(text, room, "NVIDIA H100 in host memory");
}

static void uuid(uint8_t *bytes, int device) {
    for (int i = 0; i < 16; i++) bytes[i] = 0x10 * (device + 1) + i;
}

/* Places in struct cudaDeviceProp of CUDA 13. */
int host_cudaGetDeviceProperties(uint8_t *found, int device) {
    enum { NBYTES = 1008 };
    static const struct { int at, which; } integers[] = {
        {304, 12}, {308, 10}, {320, 1}, {324, 2}, {328, 3}, {332, 4}, {336, 5}, {340, 6}, {344, 7}, {360, 75}, {364, 76},
        {384, 16}, {388, 18}, {392, 19}, {560, 31}, {564, 32}, {584, 40}, {588, 41}, {592, 37}, {596, 38}, {604, 39},
        {608, 78}, {632, 82}, {668, 95}, {688, 106},
    };
    static const struct { int at, which; } sizes[] = {{296, 8}, {312, 11}, {352, 9}, {368, 14}, {376, 14}, {624, 81}, {672, 97}};
    BEGIN(DRIVER, "");
    if (!coh_valid_device(device)) return coh_last(INVALID_DEVICE);
    memset(found, 0, NBYTES);
    name((char *)found, 256, device);
    uuid(found + 256, device);
    size_t total = coh_capacity(device);
    memcpy(found + 288, &total, sizeof total);
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int value = attribute(integers[i].which);
        memcpy(found + integers[i].at, &value, sizeof value);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t value = attribute(sizes[i].which);
        memcpy(found + sizes[i].at, &value, sizeof value);
    }
    int bus = 0x1e + device;
    memcpy(found + 568, &bus, sizeof bus);
    return SUCCESS;
}

/* -- the driver's own */

int cuInit(unsigned flags) {
    (void)flags;
    BEGIN(DRIVER, "");
    return SUCCESS;
}

int cuDriverGetVersion(int *version) {
    BEGIN(ALWAYS, "");
    *version = driver_version;
    return SUCCESS;
}

/* Before cuInit, every function says so. */
#define NEEDS_INIT                                                                                                         \
    if (!coh_is_initialised()) return NOT_INITIALISED;                                                                     \
    BEGIN(DRIVER, "")

int cuDeviceGetCount(int *count) {
    NEEDS_INIT;
    *count = coh_visible;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    NEEDS_INIT;
    if (!coh_valid_device(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

int cuDeviceGetName(char *text, int room, int device) {
    NEEDS_INIT;
    if (!coh_valid_device(device)) return INVALID_DEVICE;
    name(text, room, device);
    return SUCCESS;
}

int cuDeviceGetUuid_v2(uint8_t *bytes, int device) {
    NEEDS_INIT;
    if (!coh_valid_device(device)) return INVALID_DEVICE;
    uuid(bytes, device);
    return SUCCESS;
}

int cuDeviceGetUuid(uint8_t *bytes, int device) { return cuDeviceGetUuid_v2(bytes, device); }

int cuDeviceTotalMem_v2(size_t *nbytes, int device) {
    NEEDS_INIT;
    if (!coh_valid_device(device)) return INVALID_DEVICE;
    *nbytes = coh_capacity(device);
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int which, int device) {
    NEEDS_INIT;
    return host_cudaDeviceGetAttribute(value, which, device);
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    NEEDS_INIT;
    if (!coh_valid_device(device)) return INVALID_DEVICE;
    *context = (void *)(uintptr_t)(device + 1);
    return coh_make_context(device);
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    NEEDS_INIT;
    return coh_valid_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuCtxGetCurrent(void **context) {
    NEEDS_INIT;
    *context = (void *)(uintptr_t)coh_here.context;
    return SUCCESS;
}

int cuCtxSetCurrent(void *context) {
    NEEDS_INIT;
    if (context && !coh_valid_device((int)(uintptr_t)context - 1)) return INVALID_CONTEXT;
    coh_here.context = (int)(uintptr_t)context;
    if (context) coh_here.device = coh_here.context - 1;
    return SUCCESS;
}

int cuCtxGetDevice(int *device) {
    NEEDS_INIT;
    if (!coh_here.context) return INVALID_CONTEXT;
    *device = coh_here.context - 1;
    return SUCCESS;
}
