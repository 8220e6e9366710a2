/* Device memory and page-locked memory: what is live, where it ends, and who has been given it by CuPy's pool.
 *
 * Fresh memory is garbage. Each allocation ends at an inaccessible page, as nearly as its alignment allows, and has no more
 * alignment than CUDA guarantees. Freed memory is inaccessible, and its addresses are not used again for a while.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host.h"

enum { PAGE = 4096, FRESH = 0xA5, GUARD = 0xC3, DEVICE_ALIGNMENT = 256, PINNED_ALIGNMENT = 64, QUARANTINE = 256 };
/* More than this is not filled at each end of a fresh allocation: it would take real memory. */
static const size_t most_filled = 32u << 20;

typedef struct {
    coh_block block;
    uintptr_t map;
    size_t map_nbytes;
    int registered; /* the caller's memory, page-locked */
    int watched;    /* CuPy's pool has given out parts of it */
    coh_part *parts;
} allocation;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static allocation **table;
static size_t n_table, table_room;
static size_t held[MOST_DEVICES], pinned_held, peak[MOST_DEVICES];
static long n_device[MOST_DEVICES], n_pinned;
static size_t capacity[MOST_DEVICES] = {1ul << 30, 1ul << 30};

/* -- finding */

static size_t place_of(uintptr_t address) { /* number of allocations that begin at or before it */
    size_t low = 0, high = n_table;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle]->block.begin <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static allocation *allocation_of(uintptr_t address) {
    size_t i = place_of(address);
    allocation *found = i ? table[i - 1] : NULL;
    return found && address - found->block.begin < found->block.nbytes ? found : NULL;
}

int coh_find_at(uintptr_t address, uint64_t ticket, coh_block *found) {
    if (coh_forked()) return 0;
    int result = 0;
    pthread_rwlock_rdlock(&lock);
    allocation *in = allocation_of(address);
    if (in && !in->watched) {
        *found = in->block;
        result = 1;
    } else if (in) {
        result = 2;
        for (coh_part *part = in->parts; part; part = part->next)
            if (address - part->begin < part->nbytes && (!ticket || part->taken <= ticket) &&
                (!part->returned || (ticket && ticket < part->returned))) {
                *found = (coh_block){COH_DEVICE, in->block.device, part->begin, part->nbytes};
                result = 1;
                break;
            }
    }
    pthread_rwlock_unlock(&lock);
    return result;
}

int coh_find(uintptr_t address, coh_block *found) { return coh_find_at(address, coh_here.ticket, found) == 1; }

/* -- allocations */

static void add(allocation *made) {
    pthread_rwlock_wrlock(&lock);
    if (n_table == table_room) {
        table_room = table_room ? 2 * table_room : 256;
        table = realloc(table, table_room * sizeof *table);
    }
    size_t i = place_of(made->block.begin);
    memmove(table + i + 1, table + i, (n_table - i) * sizeof *table);
    table[i] = made;
    n_table++;
    if (made->block.kind == COH_DEVICE) {
        size_t *now = &held[made->block.device];
        *now += made->block.nbytes;
        if (*now > peak[made->block.device]) peak[made->block.device] = *now;
        n_device[made->block.device]++;
    } else {
        pinned_held += made->block.nbytes;
        n_pinned++;
    }
    pthread_rwlock_unlock(&lock);
}

/* Take the allocation that begins at an address out of the table. */
static allocation *taken_out(uintptr_t address, int kind, int registered) {
    pthread_rwlock_wrlock(&lock);
    allocation *found = allocation_of(address);
    if (found && (found->block.begin != address || found->block.kind != kind || found->registered != registered))
        found = NULL;
    if (found) {
        size_t i = place_of(address) - 1;
        memmove(table + i, table + i + 1, (n_table - i - 1) * sizeof *table);
        n_table--;
        if (kind == COH_DEVICE) held[found->block.device] -= found->block.nbytes, n_device[found->block.device]--;
        else pinned_held -= found->block.nbytes, n_pinned--;
    }
    pthread_rwlock_unlock(&lock);
    return found;
}

static uintptr_t mapped(size_t nbytes) {
    void *map = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return map == MAP_FAILED ? 0 : (uintptr_t)map;
}

static allocation *allocate(size_t nbytes, int kind, int device) {
    size_t alignment = kind == COH_DEVICE ? DEVICE_ALIGNMENT : PINNED_ALIGNMENT;
    size_t body = (nbytes + 2 * alignment + PAGE - 1) / PAGE * PAGE;
    uintptr_t map = mapped(body + 2 * PAGE);
    if (!map) return NULL;
    if (mprotect((void *)(map + PAGE), body, PROT_READ | PROT_WRITE)) {
        munmap((void *)map, body + 2 * PAGE);
        return NULL;
    }
    uintptr_t end = map + PAGE + body, begin = (end - nbytes) & ~(2 * alignment - 1);
    begin = begin + alignment <= end - nbytes ? begin + alignment : begin - alignment;
    memset((void *)(map + PAGE), GUARD, begin - map - PAGE);
    memset((void *)(begin + nbytes), GUARD, end - begin - nbytes);
    size_t filled = nbytes < 2 * most_filled ? nbytes : most_filled;
    memset((void *)begin, FRESH, filled);
    if (filled < nbytes) memset((void *)(begin + nbytes - most_filled), FRESH, most_filled);
    allocation *made = calloc(1, sizeof *made);
    made->block = (coh_block){kind, device, begin, nbytes};
    made->map = map;
    made->map_nbytes = body + 2 * PAGE;
    return made;
}

static int is(const uint8_t *bytes, uint8_t value, size_t n) {
    while (n && *bytes == value) bytes++, n--;
    return !n;
}

static void check_guards(const allocation *one) {
    uintptr_t begin = one->block.begin, end = begin + one->block.nbytes;
    uintptr_t first = one->map + PAGE, last = one->map + one->map_nbytes - PAGE;
    if (one->registered || (is((void *)first, GUARD, begin - first) && is((void *)end, GUARD, last - end))) return;
    coh_note("%d something was written outside of an allocation of %zu bytes", ILLEGAL_ADDRESS, one->block.nbytes);
    memset((void *)first, GUARD, begin - first); /* told once */
    memset((void *)end, GUARD, last - end);
}

static void give_up(allocation *one) {
    static struct {
        uintptr_t map;
        size_t nbytes;
    } waiting[QUARANTINE];
    static size_t next;
    static pthread_mutex_t waiting_lock = PTHREAD_MUTEX_INITIALIZER;
    check_guards(one);
    madvise((void *)one->map, one->map_nbytes, MADV_DONTNEED);
    mprotect((void *)one->map, one->map_nbytes, PROT_NONE);
    pthread_mutex_lock(&waiting_lock);
    if (waiting[next].map) munmap((void *)waiting[next].map, waiting[next].nbytes);
    waiting[next].map = one->map;
    waiting[next].nbytes = one->map_nbytes;
    next = (next + 1) % QUARANTINE;
    pthread_mutex_unlock(&waiting_lock);
    for (coh_part *part; (part = one->parts);) {
        one->parts = part->next;
        pthread_mutex_lock(&coh_lock);
        coh_unref(part->stream);
        pthread_mutex_unlock(&coh_lock);
        free(part);
    }
    free(one);
}

static size_t room_of(int device) {
    pthread_rwlock_rdlock(&lock);
    size_t room = held[device] < capacity[device] ? capacity[device] - held[device] : 0;
    pthread_rwlock_unlock(&lock);
    return room;
}

int host_cudaMalloc(void **pointer, size_t nbytes) {
    BEGIN(RUNTIME, "allocate allocate_device any");
    if (!pointer) return coh_last(INVALID_VALUE);
    *pointer = NULL;
    if (!nbytes) return SUCCESS;
    int device = coh_here.device;
    if (nbytes > room_of(device)) return coh_last(OUT_OF_MEMORY);
    allocation *made = allocate(nbytes, COH_DEVICE, device);
    if (!made) return coh_last(OUT_OF_MEMORY);
    add(made);
    *pointer = (void *)made->block.begin;
    return SUCCESS;
}

static int device_at(uintptr_t address) {
    pthread_rwlock_rdlock(&lock);
    allocation *found = allocation_of(address);
    int device = found && found->block.kind == COH_DEVICE ? found->block.device : -1;
    pthread_rwlock_unlock(&lock);
    return device;
}

static int free_device(void *pointer) {
    allocation *found = taken_out((uintptr_t)pointer, COH_DEVICE, 0);
    if (found) give_up(found);
    else coh_note("%d cudaFree: %p is not the begin of device memory", INVALID_VALUE, pointer);
    return found ? SUCCESS : INVALID_VALUE;
}

static int free_pinned(void *pointer) {
    allocation *found = taken_out((uintptr_t)pointer, COH_PINNED, 0);
    if (found) give_up(found);
    else coh_note("%d cudaFreeHost: %p is not the begin of page-locked memory", INVALID_VALUE, pointer);
    return found ? SUCCESS : INVALID_VALUE;
}

static void free_device_later(void *pointer) { free_device(pointer); }
static void free_pinned_later(void *pointer) { free_pinned(pointer); }

/* Waits for all work of the device, as CUDA does. Python that an operation runs may collect garbage, which frees memory on
 * the stream's own thread: that cannot wait, so it is freed later. */
int host_cudaFree(void *pointer) {
    BEGIN(RELEASE, "free");
    if (!pointer) return SUCCESS;
    int device = device_at((uintptr_t)pointer);
    int code = device < 0 ? SUCCESS : coh_wait_device(device);
    if (code == NOT_PERMITTED) {
        coh_after_device(device, free_device_later, pointer);
        return SUCCESS;
    }
    return coh_last(code ? code : free_device(pointer));
}

/* Memory in the order of a stream: one pool for each device, which keeps nothing. */

typedef struct {
    uint64_t most_kept;
} memory_pool;

static memory_pool pools[MOST_DEVICES];
enum { FIRST_OF_64_BITS = 4, RELEASE_THRESHOLD = 4 }; /* attributes */

int host_cudaDeviceGetMemPool(void **pool, int device) {
    BEGIN(RUNTIME, "any");
    if (!coh_valid_device(device)) return coh_last(INVALID_DEVICE);
    *pool = &pools[device];
    return SUCCESS;
}

int host_cudaDeviceSetMemPool(int device, void *pool) {
    BEGIN(RUNTIME, "any");
    return coh_last(coh_valid_device(device) && pool == &pools[device] ? SUCCESS : INVALID_VALUE);
}

int host_cudaMemPoolTrimTo(void *pool, size_t nbytes) {
    BEGIN(RUNTIME, "any");
    (void)pool, (void)nbytes;
    return SUCCESS;
}

int host_cudaMemPoolSetAttribute(void *pool, int which, void *value) {
    BEGIN(RUNTIME, "any");
    if (which == RELEASE_THRESHOLD) ((memory_pool *)pool)->most_kept = *(uint64_t *)value;
    return SUCCESS;
}

int host_cudaMemPoolGetAttribute(void *pool, int which, void *value) {
    BEGIN(RUNTIME, "any");
    memset(value, 0, which < FIRST_OF_64_BITS ? sizeof(int) : sizeof(uint64_t));
    /* CuPy takes it for a limit. */
    if (which == RELEASE_THRESHOLD) *(uint64_t *)value = ((memory_pool *)pool)->most_kept;
    return SUCCESS;
}

int host_cudaMallocAsync(void **pointer, size_t nbytes, void *stream) {
    (void)stream; /* new memory, which nobody has used */
    return host_cudaMalloc(pointer, nbytes);
}

/* Right after what the stream has then; what other streams do later is a fault. */
int host_cudaFreeAsync(void *pointer, void *stream) {
    BEGIN(RELEASE, "free");
    int code;
    coh_stream *on = coh_stream_of(stream, &code);
    if (!on) return coh_last(code);
    coh_after_last(on, free_device_later, pointer);
    pthread_mutex_lock(&coh_lock);
    coh_unref(on);
    pthread_mutex_unlock(&coh_lock);
    return SUCCESS;
}

int host_cudaHostAlloc(void **pointer, size_t nbytes, unsigned flags) {
    BEGIN(RUNTIME, "allocate allocate_pinned any");
    if (!pointer || flags > 7) return coh_last(INVALID_VALUE);
    *pointer = NULL;
    if (!nbytes) return SUCCESS;
    allocation *made = allocate(nbytes, COH_PINNED, coh_here.device);
    if (!made) return coh_last(OUT_OF_MEMORY);
    add(made);
    *pointer = (void *)made->block.begin;
    return SUCCESS;
}

/* Wait for all work of all devices; returns whether this thread may. */
static int wait_for_all(void) {
    int may = 1;
    for (int device = 0; device < MOST_DEVICES; device++) may &= coh_wait_device(device) != NOT_PERMITTED;
    return may;
}

int host_cudaFreeHost(void *pointer) {
    BEGIN(RELEASE, "free");
    if (!pointer) return SUCCESS;
    if (wait_for_all()) return coh_last(free_pinned(pointer));
    coh_after_device(-1, free_pinned_later, pointer);
    return SUCCESS;
}

int host_cudaHostRegister(void *pointer, size_t nbytes, unsigned flags) {
    BEGIN(RUNTIME, "any");
    (void)flags;
    if (!pointer || !nbytes) return coh_last(INVALID_VALUE);
    pthread_rwlock_rdlock(&lock);
    size_t i = place_of((uintptr_t)pointer + nbytes - 1);
    int overlaps = i && table[i - 1]->block.begin + table[i - 1]->block.nbytes > (uintptr_t)pointer;
    pthread_rwlock_unlock(&lock);
    if (overlaps) return coh_last(REGISTERED_ALREADY);
    allocation *made = calloc(1, sizeof *made);
    made->block = (coh_block){COH_PINNED, coh_here.device, (uintptr_t)pointer, nbytes};
    made->registered = 1;
    add(made);
    return SUCCESS;
}

int host_cudaHostUnregister(void *pointer) {
    BEGIN(RELEASE, "free");
    wait_for_all(); /* or not: the memory is the caller's, who may free it then */
    allocation *found = taken_out((uintptr_t)pointer, COH_PINNED, 1);
    if (!found) coh_note("%d cudaHostUnregister: %p is not the begin of page-locked memory", NOT_REGISTERED, pointer);
    free(found);
    return coh_last(found ? SUCCESS : NOT_REGISTERED);
}

int host_cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    BEGIN(RUNTIME, "any");
    *total = capacity[coh_here.device];
    *free_bytes = room_of(coh_here.device);
    return SUCCESS;
}

typedef struct {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
} attributes;

int host_cudaPointerGetAttributes(attributes *found, const void *pointer) {
    BEGIN(RUNTIME, "any");
    enum { UNREGISTERED = 0, HOST = 1, DEVICE = 2, NO_DEVICE_NUMBER = -2 };
    *found = (attributes){.type = UNREGISTERED, .device = NO_DEVICE_NUMBER, .host_pointer = (void *)pointer};
    pthread_rwlock_rdlock(&lock);
    allocation *in = allocation_of((uintptr_t)pointer);
    if (in) {
        int on_device = in->block.kind == COH_DEVICE;
        *found = (attributes){on_device ? DEVICE : HOST, in->block.device, (void *)pointer,
                              on_device ? NULL : (void *)pointer, {0}};
    }
    pthread_rwlock_unlock(&lock);
    return SUCCESS;
}

/* -- for Python */

void coh_set_capacity(int device, size_t nbytes) { capacity[device] = nbytes; }
size_t coh_capacity(int device) { return capacity[device]; }
size_t coh_held(int device) { return device < 0 ? pinned_held : held[device]; }
size_t coh_peak(int device) { return peak[device]; }
void coh_reset_peak(int device) { peak[device] = held[device]; }
long coh_live_allocations(int device) { return device < 0 ? n_pinned : n_device[device]; }

/* Look for writes outside of allocations now. */
void coh_check_guards(void) {
    pthread_rwlock_rdlock(&lock);
    for (size_t i = 0; i < n_table; i++) check_guards(table[i]);
    pthread_rwlock_unlock(&lock);
}

/* -- for CuPy's pool: see pool.c */

int coh_with_parts(uintptr_t address, int alone, void (*function)(coh_part **parts, void *self), void *self) {
    if (alone) pthread_rwlock_wrlock(&lock);
    else pthread_rwlock_rdlock(&lock);
    allocation *in = allocation_of(address);
    int found = in && in->block.kind == COH_DEVICE;
    if (found) {
        if (alone) in->watched = 1;
        function(&in->parts, self);
    }
    pthread_rwlock_unlock(&lock);
    return found;
}
