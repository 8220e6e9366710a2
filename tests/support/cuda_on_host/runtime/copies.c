/* cudaMemcpy… and cudaMemset…: checked at the call, and once more when they run.
 *
 * From page-locked memory a copy reads when it runs, from pageable memory at the call; one to pageable memory has run when the
 * call returns.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { HOST_TO_HOST = 0, HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2, DEVICE_TO_DEVICE = 3, BY_POINTERS = 4 };

typedef struct {
    uintptr_t at;
    size_t pitch, extent; /* from the first to the last byte */
    int kind, device;     /* COH_NONE: pageable */
} side;

typedef struct {
    const char *what;
    side to, from;
    size_t width, height;
    int value;      /* of a memset */
    void *snapshot; /* what was in pageable memory */
} copy;

static int is_whole(const char *what, const char *which, side *one, uint64_t ticket) {
    coh_block block;
    int found = coh_find_at(one->at, ticket, &block);
    one->kind = found == 1 ? block.kind : COH_NONE;
    one->device = found == 1 && block.kind == COH_DEVICE ? block.device : -1;
    if (found == 2) {
        coh_note("%d %s: %s %p is memory that CuPy's pool has got back", INVALID_VALUE, what, which, (void *)one->at);
        return 0;
    }
    if (found && one->extent > block.nbytes - (one->at - block.begin)) {
        coh_note("%d %s: %s of %zu bytes at %p, in %zu bytes at %p", INVALID_VALUE, what, which, one->extent,
                 (void *)one->at, block.nbytes, (void *)block.begin);
        return 0;
    }
    return 1;
}

static int is_still(const copy *given, const char *which, const side *one, coh_fault *fault) {
    side now = *one;
    if (one->kind == COH_NONE) return 1;
    if (is_whole(given->what, which, &now, coh_here.ticket) && now.kind == one->kind) return 1;
    fault->code = ILLEGAL_ADDRESS;
    strcpy(fault->message, "a copy runs after its memory was freed or given back: ");
    strncat(fault->message, which, 60);
    return 0;
}

static void discard(void *self) {
    copy *given = self;
    free(given->snapshot);
    free(given);
}

static void run(void *self, coh_fault *fault) {
    copy *given = self;
    if (is_still(given, "target", &given->to, fault) && is_still(given, "source", &given->from, fault)) {
        const uint8_t *from = given->snapshot ? given->snapshot : (const uint8_t *)given->from.at;
        for (size_t row = 0; row < given->height; row++) {
            uint8_t *to = (uint8_t *)given->to.at + row * given->to.pitch;
            if (given->from.at) memmove(to, from + row * given->from.pitch, given->width);
            else memset(to, given->value, given->width);
        }
    }
    discard(given);
}

static int direction_fits(int direction, const side *to, const side *from) {
    int to_device = to->kind == COH_DEVICE, from_device = from->kind == COH_DEVICE;
    switch (direction) {
    case HOST_TO_HOST: return !to_device && !from_device;
    case HOST_TO_DEVICE: return to_device && !from_device;
    case DEVICE_TO_HOST: return !to_device && from_device;
    case DEVICE_TO_DEVICE: return to_device && from_device;
    default: return direction == BY_POINTERS;
    }
}

static void count(const copy *given) {
    long nbytes = given->width * given->height;
    int to_device = given->to.kind == COH_DEVICE, from_device = given->from.kind == COH_DEVICE;
    if (!given->from.at) COUNT("memset", 1);
    else if (to_device && from_device) { COUNT("copy_within", 1); COUNT("copy_within_bytes", nbytes); }
    else if (to_device) { COUNT("copy_in", 1); COUNT("copy_in_bytes", nbytes); }
    else if (from_device) { COUNT("copy_out", 1); COUNT("copy_out_bytes", nbytes); }
    else COUNT("copy_host", 1);
}

static int push(copy given, void *stream, int direction, int waits) {
    if (!given.width || !given.height) return SUCCESS;
    given.to.extent = (given.height - 1) * given.to.pitch + given.width;
    given.from.extent = (given.height - 1) * given.from.pitch + given.width;
    if (given.height > 1 && (given.to.pitch < given.width || (given.from.at && given.from.pitch < given.width)))
        return INVALID_VALUE;
    int is_copy = direction >= 0, code;
    if (!is_whole(given.what, "target", &given.to, 0)) return INVALID_VALUE;
    if (is_copy && !is_whole(given.what, "source", &given.from, 0)) return INVALID_VALUE;
    if (is_copy ? !direction_fits(direction, &given.to, &given.from) : given.to.kind == COH_NONE) {
        static const char *const kinds[] = {"pageable", "device", "page-locked"};
        coh_note("%d %s: from %s to %s memory in direction %d", INVALID_DIRECTION, given.what, kinds[given.from.kind],
                 kinds[given.to.kind], direction);
        return is_copy ? INVALID_DIRECTION : INVALID_VALUE;
    }
    coh_stream *on = coh_stream_of(stream, &code);
    if (!on) return code;
    int device = coh_device_of(on), from = given.from.device, to = given.to.device;
    int fits = from >= 0 && to >= 0 ? from == device || to == device : (from < 0 || from == device) && (to < 0 || to == device);
    if (!is_copy) fits = to < 0 || to == device;
    if (!fits) {
        coh_note("%d %s: a stream of device %d for memory of device %d", INVALID_VALUE, given.what, device,
                 from >= 0 ? from : to);
        code = INVALID_VALUE;
    }
    copy *kept = NULL;
    if (!code) {
        count(&given);
        kept = malloc(sizeof *kept);
        *kept = given;
        if (is_copy && given.from.kind == COH_NONE) {
            kept->snapshot = malloc(given.from.extent);
            memcpy(kept->snapshot, (void *)given.from.at, given.from.extent);
        }
        uint64_t number;
        code = coh_push(on, (coh_operation){.what = given.what, .work = run, .self = kept, .discard = discard}, &number);
        if (!code && (waits || given.to.kind == COH_NONE)) code = coh_wait(on, number);
    }
    pthread_mutex_lock(&coh_lock);
    coh_unref(on);
    pthread_mutex_unlock(&coh_lock);
    return code;
}

static copy plain(const char *what, void *to, const void *from, size_t nbytes) {
    return (copy){.what = what, .to = {.at = (uintptr_t)to}, .from = {.at = (uintptr_t)from, .device = -1}, .width = nbytes, .height = 1};
}

/* Returns before it has run if it is within the device, or from pageable memory. */
int host_cudaMemcpy(void *to, const void *from, size_t nbytes, int direction) {
    BEGIN(RUNTIME, "copy enqueue any");
    coh_block block;
    if (direction < HOST_TO_HOST || direction > BY_POINTERS) return coh_last(INVALID_DIRECTION);
    int from_pinned = coh_find_at((uintptr_t)from, 0, &block) == 1 && block.kind == COH_PINNED;
    return coh_last(push(plain("copy", to, from, nbytes), NULL, direction, from_pinned));
}

int host_cudaMemcpyAsync(void *to, const void *from, size_t nbytes, int direction, void *stream) {
    BEGIN(RUNTIME, "copy enqueue any");
    if (direction < HOST_TO_HOST || direction > BY_POINTERS) return coh_last(INVALID_DIRECTION);
    return coh_last(push(plain("copy", to, from, nbytes), stream, direction, 0));
}

static copy rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height) {
    copy given = plain("copy2d", to, from, width);
    given.height = height;
    given.to.pitch = to_pitch;
    given.from.pitch = from_pitch;
    return given;
}

int host_cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int direction) {
    BEGIN(RUNTIME, "copy enqueue any");
    if (direction < HOST_TO_HOST || direction > BY_POINTERS) return coh_last(INVALID_DIRECTION);
    return coh_last(push(rows(to, to_pitch, from, from_pitch, width, height), NULL, direction, 1));
}

int host_cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                           int direction, void *stream) {
    BEGIN(RUNTIME, "copy enqueue any");
    if (direction < HOST_TO_HOST || direction > BY_POINTERS) return coh_last(INVALID_DIRECTION);
    return coh_last(push(rows(to, to_pitch, from, from_pitch, width, height), stream, direction, 0));
}

static int between(void *to, int to_device, const void *from, int from_device, size_t nbytes, void *stream) {
    coh_block first, second;
    if (!nbytes) return SUCCESS;
    if (coh_find_at((uintptr_t)to, 0, &first) != 1 || coh_find_at((uintptr_t)from, 0, &second) != 1 ||
        first.kind != COH_DEVICE || second.kind != COH_DEVICE || first.device != to_device || second.device != from_device)
        return INVALID_VALUE;
    return push(plain("copy", to, from, nbytes), stream, DEVICE_TO_DEVICE, 0);
}

int host_cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t nbytes) {
    BEGIN(RUNTIME, "copy enqueue any");
    return coh_last(between(to, to_device, from, from_device, nbytes, NULL));
}

int host_cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t nbytes, void *stream) {
    BEGIN(RUNTIME, "copy enqueue any");
    return coh_last(between(to, to_device, from, from_device, nbytes, stream));
}

static int set(void *to, int value, size_t nbytes, void *stream) {
    copy given = plain("memset", to, NULL, nbytes);
    given.value = value;
    return push(given, stream, -1, 0);
}

int host_cudaMemset(void *to, int value, size_t nbytes) {
    BEGIN(RUNTIME, "memset enqueue any");
    return coh_last(set(to, value, nbytes, NULL));
}

int host_cudaMemsetAsync(void *to, int value, size_t nbytes, void *stream) {
    BEGIN(RUNTIME, "memset enqueue any");
    return coh_last(set(to, value, nbytes, stream));
}
