/* What CuPy's pool has given out and got back.
 *
 * The pool takes memory back while operations of its stream still use it, and gives it out again to later operations of
 * that stream. So it is poisoned right after the last operation that the stream has then: at once if that is done.
 * Whoever uses it in another stream, without waiting, meets poison or a fault.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { RETURNED = 0x5A };

static atomic_long live;
static atomic_long live_nbytes;

long coh_live_parts(void) { return live; }
long coh_live_part_bytes(void) { return live_nbytes; }

static void add(coh_part **parts, void *self) {
    coh_part *made = self;
    for (coh_part *part = *parts; part; part = part->next) /* whose return was not told */
        if (!part->returned && made->begin < part->begin + part->nbytes && part->begin < made->begin + made->nbytes) {
            part->returned = made->taken - 1;
            live--;
            live_nbytes -= part->nbytes;
        }
    made->next = *parts;
    *parts = made;
    live++;
    live_nbytes += made->nbytes;
}

static uint64_t take(uintptr_t address, size_t nbytes, void *stream) {
    int code;
    if (coh_forked() || coh_closing || !nbytes) return 0;
    coh_stream *on = coh_stream_of(stream, &code);
    if (!on) return 0;
    coh_part *made = malloc(sizeof *made);
    coh_next_ticket();
    *made = (coh_part){.begin = address, .nbytes = nbytes, .taken = coh_next_ticket(), .stream = on};
    uint64_t taken = made->taken;
    if (coh_with_parts(address, 1, add, made)) return taken;
    coh_note("%d CuPy's pool gives out %p, which is not device memory", INVALID_VALUE, (void *)address);
    pthread_mutex_lock(&coh_lock);
    coh_unref(on);
    pthread_mutex_unlock(&coh_lock);
    free(made);
    return 0;
}

typedef struct {
    uintptr_t address;
    uint64_t taken; /* 0: the one that is live */
    coh_part *found;
} reference;

static int is_meant(const coh_part *part, const reference *meant) {
    return part->begin == meant->address && (meant->taken ? part->taken == meant->taken : !part->returned);
}

static void mark_returned(coh_part **parts, void *self) {
    reference *meant = self;
    for (coh_part *part = *parts; part; part = part->next)
        if (is_meant(part, meant)) {
            if (!part->returned) {
                part->returned = coh_next_ticket();
                live--;
                live_nbytes -= part->nbytes;
                meant->found = part; /* lives until it is removed, below */
                meant->taken = part->taken;
            }
            return;
        }
}

static void fill(coh_part **parts, void *self) {
    for (coh_part *part = *parts; part; part = part->next)
        if (is_meant(part, self)) memset((void *)part->begin, RETURNED, part->nbytes);
}

static void take_off(coh_part **parts, void *self) {
    reference *meant = self;
    for (coh_part **at = parts; *at; at = &(*at)->next)
        if (is_meant(*at, meant)) {
            meant->found = *at;
            *at = (*at)->next;
            return;
        }
}

static void poison(void *self) {
    reference *meant = self;
    coh_with_parts(meant->address, 0, fill, meant);
    meant->found = NULL;
    coh_with_parts(meant->address, 1, take_off, meant);
    if (meant->found) {
        pthread_mutex_lock(&coh_lock);
        coh_unref(meant->found->stream);
        pthread_mutex_unlock(&coh_lock);
        free(meant->found);
    }
    free(meant);
}

static void give_back(uintptr_t address, uint64_t taken) {
    if (coh_forked() || coh_closing) return;
    reference *meant = malloc(sizeof *meant);
    *meant = (reference){address, taken, NULL};
    coh_with_parts(address, 1, mark_returned, meant);
    if (meant->found) coh_after_last(meant->found->stream, poison, meant);
    else free(meant);
}

void coh_pool_taken(uintptr_t address, size_t nbytes, void *stream) { take(address, nbytes, stream); }

void coh_pool_returned(uintptr_t address) { give_back(address, 0); }

/* -- for Python: an object that tells of the return when it dies, in the same breath as CuPy's memory */

extern void *PyCapsule_New(void *pointer, const char *name, void (*destroy)(void *capsule));
extern void *PyCapsule_GetPointer(void *capsule, const char *name);

static const char capsule_name[] = "memory of CuPy's pool";

static void destroy(void *capsule) {
    reference *kept = PyCapsule_GetPointer(capsule, capsule_name);
    if (kept->taken) give_back(kept->address, kept->taken);
    free(kept);
}

void *coh_pool_watch(uintptr_t address, size_t nbytes, void *stream) {
    reference *kept = malloc(sizeof *kept);
    *kept = (reference){address, take(address, nbytes, stream), NULL};
    return PyCapsule_New(kept, capsule_name, destroy);
}
