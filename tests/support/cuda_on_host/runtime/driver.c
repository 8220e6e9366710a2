/* Modules, functions and launches. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { MOST_BLOCKS_X = 2147483647, MOST_BLOCKS_YZ = 65535, MOST_THREADS = 1024, MOST_THREADS_Z = 64, MOST_SHARED = 232448 };

typedef struct {
    uint64_t magic;
    int device;
    void *image;
} module;

typedef struct {
    uint64_t magic;
    int device;
    coh_kernel kernel;
    int shared_nbytes; /* that launches may ask for */
    coh_call launches; /* counted under the name of the entry */
    char name[];
} function;

static const uint64_t module_magic = 0x6d6f64756c65, function_magic = 0x66756e6374;
static const char launch_prefix[] = "launch ";
static _Atomic(coh_resolver) resolver;

void coh_set_resolver(coh_resolver given) { resolver = given; }

/* -- modules */

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static size_t nbytes_of(const uint8_t *image) {
    static const uint32_t fatbin = 0xBA55ED50;
    if (!memcmp(image, ELFMAG, SELFMAG)) {
        const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
        size_t end = most(header->e_shoff + (size_t)header->e_shnum * header->e_shentsize,
                          header->e_phoff + (size_t)header->e_phnum * header->e_phentsize);
        for (int i = 0; i < header->e_shnum; i++) {
            const Elf64_Shdr *section = (const Elf64_Shdr *)(image + header->e_shoff + i * header->e_shentsize);
            if (section->sh_type != SHT_NOBITS) end = most(end, section->sh_offset + section->sh_size);
        }
        return end;
    }
    if (!memcmp(image, &fatbin, sizeof fatbin)) {
        uint16_t header;
        uint64_t body;
        memcpy(&header, image + 6, sizeof header);
        memcpy(&body, image + 8, sizeof body);
        return header + body;
    }
    return strlen((const char *)image) + 1; /* PTX */
}

int cuModuleLoadData(void **found, const void *image) {
    BEGIN(CONTEXT, "load any");
    if (!image) return INVALID_VALUE;
    size_t nbytes = nbytes_of(image);
    module *made = malloc(sizeof *made);
    *made = (module){module_magic, coh_here.device, malloc(nbytes)};
    memcpy(made->image, image, nbytes);
    *found = made;
    return SUCCESS;
}

/* Its functions may still be enqueued, so the memory stays. */
int cuModuleUnload(void *given) {
    BEGIN(CONTEXT, "any");
    module *known = given;
    if (!known || known->magic != module_magic) return INVALID_HANDLE;
    known->magic = 0;
    return SUCCESS;
}

int cuModuleGetFunction(void **found, void *given, const char *name) {
    BEGIN(CONTEXT, "load any");
    module *known = given;
    if (!known || known->magic != module_magic) return INVALID_HANDLE;
    coh_resolver resolve = resolver;
    size_t length = strlen(launch_prefix) + strlen(name) + 1;
    function *made = calloc(1, sizeof *made + length);
    int code = resolve ? resolve(known->image, name, &made->kernel) : NOT_FOUND;
    if (!code && (made->kernel.n_parameters < 0 || made->kernel.n_parameters > COH_MOST_PARAMETERS)) code = INVALID_IMAGE;
    if (code) {
        coh_note("%d cuModuleGetFunction: no kernel %s", code, name);
        free(made);
        return code;
    }
    made->magic = function_magic;
    made->device = known->device;
    made->shared_nbytes = 49152;
    snprintf(made->name, length, "%s%s", launch_prefix, name);
    made->launches.name = made->name;
    *found = made;
    return SUCCESS;
}

static function *function_of(void *given) {
    function *known = given;
    return known && known->magic == function_magic ? known : NULL;
}

int cuFuncGetAttribute(int *value, int which, void *given) {
    BEGIN(CONTEXT, "any");
    enum { THREADS, SHARED, CONSTANT, LOCAL, REGISTERS, PTX, BINARY, CACHE, DYNAMIC };
    function *known = function_of(given);
    if (!known) return INVALID_HANDLE;
    switch (which) {
    case THREADS: *value = MOST_THREADS; break;
    case REGISTERS: *value = 32; break;
    case PTX: case BINARY: *value = 90; break;
    case DYNAMIC: *value = known->shared_nbytes; break;
    default: *value = 0;
    }
    return SUCCESS;
}

int cuFuncSetAttribute(void *given, int which, int value) {
    BEGIN(CONTEXT, "any");
    enum { DYNAMIC = 8 };
    function *known = function_of(given);
    if (!known) return INVALID_HANDLE;
    if (which == DYNAMIC && (value < 0 || value > MOST_SHARED)) return INVALID_VALUE;
    if (which == DYNAMIC) known->shared_nbytes = value;
    return SUCCESS;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *given, int threads, size_t shared_nbytes) {
    BEGIN(CONTEXT, "any");
    if (!function_of(given) || threads < 1 || threads > MOST_THREADS) return INVALID_VALUE;
    int by_threads = 2048 / threads, by_shared = shared_nbytes ? 233472 / (int)shared_nbytes : 32;
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    if (*blocks > 32) *blocks = 32;
    return SUCCESS;
}

int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *given, void *shared_of, size_t shared_nbytes, int limit) {
    BEGIN(CONTEXT, "any");
    (void)shared_of, (void)shared_nbytes;
    if (!function_of(given)) return INVALID_HANDLE;
    *block = limit > 0 && limit < MOST_THREADS ? limit : MOST_THREADS;
    *grid = 132 * 2;
    return SUCCESS;
}

/* -- launches */

typedef struct {
    function *launched;
    coh_launch launch;
    void *parameters[COH_MOST_PARAMETERS];
    _Alignas(16) uint8_t copies[];
} launched;

static void run(void *self, coh_fault *fault) {
    launched *given = self;
    const coh_kernel *kernel = &given->launched->kernel;
    int code = kernel->run(kernel->self, given->parameters, &given->launch, fault);
    if (code && !fault->code) fault->code = code;
    if (fault->code && strlen(fault->message) + strlen(given->launched->name) + 5 < sizeof fault->message) {
        strcat(fault->message, " in ");
        strcat(fault->message, given->launched->name);
    }
    free(given);
}

static int fits(const unsigned grid[3], const unsigned block[3]) {
    return grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2] && grid[0] <= MOST_BLOCKS_X &&
           grid[1] <= MOST_BLOCKS_YZ && grid[2] <= MOST_BLOCKS_YZ && block[0] <= MOST_THREADS && block[1] <= MOST_THREADS &&
           block[2] <= MOST_THREADS_Z && (uint64_t)block[0] * block[1] * block[2] <= MOST_THREADS;
}

int cuLaunchKernel(void *given, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_nbytes, void *stream, void **parameters, void **extra) {
    BEGIN(CONTEXT, "launch enqueue any");
    function *known = function_of(given);
    if (!known) return INVALID_HANDLE;
    int code = coh_apply_rules(known->name + strlen(launch_prefix), "");
    if (code) return code;
    coh_launch launch = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_nbytes, known->device, 0};
    if (extra || (known->kernel.n_parameters && !parameters)) return INVALID_VALUE;
    if (!fits(launch.grid, launch.block) || shared_nbytes > (unsigned)known->shared_nbytes) {
        coh_note("%d %s: %u×%u×%u blocks of %u×%u×%u threads, %u bytes of shared memory", INVALID_VALUE, known->name, grid_x,
                 grid_y, grid_z, block_x, block_y, block_z, shared_nbytes);
        return INVALID_VALUE;
    }
    coh_stream *on = coh_stream_of(stream, &code);
    if (!on) return code;
    if (known->device != coh_here.device || coh_device_of(on) != coh_here.device) {
        coh_note("%d %s: a kernel of device %d, a stream of device %d, the context of device %d", INVALID_HANDLE, known->name,
                 known->device, coh_device_of(on), coh_here.device);
        code = INVALID_HANDLE;
    }
    if (!code) {
        enum { ROOM = 16 };
        size_t nbytes = 0;
        for (int i = 0; i < known->kernel.n_parameters; i++)
            nbytes += (known->kernel.parameter_nbytes[i] + ROOM - 1) / ROOM * ROOM;
        launched *kept = malloc(sizeof *kept + nbytes);
        kept->launched = known;
        kept->launch = launch;
        uint8_t *copied = kept->copies;
        for (int i = 0; i < known->kernel.n_parameters; i++) {
            kept->parameters[i] = memcpy(copied, parameters[i], known->kernel.parameter_nbytes[i]);
            copied += (known->kernel.parameter_nbytes[i] + ROOM - 1) / ROOM * ROOM;
        }
        kept->launch.seed = coh_draw(on, coh_enqueued(on) + 1);
        coh_count(&known->launches, 1);
        code = coh_push(on, (coh_operation){.what = known->name, .work = run, .self = kept, .discard = free}, NULL);
    }
    pthread_mutex_lock(&coh_lock);
    coh_unref(on);
    pthread_mutex_unlock(&coh_lock);
    return code;
}

/* -- what CuPy may ask for, and there is not */

extern int coh_missing(const char *name);
#define MISSING(name)                                                                                                      \
    int name(void) { return coh_missing(#name); }

MISSING(cuCtxCreate_v2)
MISSING(cuCtxDestroy_v2)
MISSING(cuLinkCreate_v2)
MISSING(cuLinkAddData_v2)
MISSING(cuLinkAddFile_v2)
MISSING(cuLinkComplete)
MISSING(cuLinkDestroy)
MISSING(cuModuleLoad)
MISSING(cuModuleGetGlobal_v2)
MISSING(cuLaunchCooperativeKernel)
