/* cudaEvent…: points in streams. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "streams.h"

typedef struct {
    int refs, device, timed;
    coh_stream *stream; /* of the last record, or 0 */
    uint64_t number;    /* and its place there */
    uint64_t passed_ns; /* when the stream passed it */
} event;

typedef struct {
    event *recorded;
    uint64_t number;
} mark;

static coh_handles handles = {.first = 0x5e0000000000};
static long live;

enum { FLAG_BLOCKING_SYNC = 1, FLAG_NO_TIMING = 2, FLAG_INTERPROCESS = 4 };

static event *find(void *handle, int *code) {
    event *found = handle ? coh_handle_object(&handles, handle) : NULL;
    *code = found ? SUCCESS : INVALID_HANDLE;
    if (!found) coh_note("%d %p is not an event, or one that was destroyed", INVALID_HANDLE, handle);
    return found;
}

static void unref(event *known) {
    if (--known->refs) return;
    if (known->stream) coh_unref(known->stream);
    free(known);
}

long coh_live_events(void) { return live; }

static int create(void **handle, unsigned flags) {
    if (!handle || flags & ~(unsigned)(FLAG_BLOCKING_SYNC | FLAG_NO_TIMING)) return coh_last(INVALID_VALUE);
    event *made = calloc(1, sizeof *made);
    *made = (event){.refs = 1, .device = coh_here.device, .timed = !(flags & FLAG_NO_TIMING)};
    pthread_mutex_lock(&coh_lock);
    *handle = coh_handle_new(&handles, made);
    live++;
    pthread_mutex_unlock(&coh_lock);
    return SUCCESS;
}

int host_cudaEventCreate(void **handle) {
    BEGIN(RUNTIME, "create any");
    return create(handle, 0);
}

int host_cudaEventCreateWithFlags(void **handle, unsigned flags) {
    BEGIN(RUNTIME, "create any");
    return create(handle, flags);
}

int host_cudaEventDestroy(void *handle) {
    BEGIN(RELEASE, "destroy");
    int code;
    pthread_mutex_lock(&coh_lock);
    event *found = find(handle, &code);
    if (found) {
        coh_handle_close(&handles, handle);
        coh_handle_vacate(&handles, handle);
        live--;
        unref(found);
    }
    pthread_mutex_unlock(&coh_lock);
    return coh_last(code);
}

static void forget_mark(void *self) {
    mark *passed = self;
    pthread_mutex_lock(&coh_lock);
    unref(passed->recorded);
    pthread_mutex_unlock(&coh_lock);
    free(passed);
}

static void pass(void *self, coh_fault *fault) {
    mark *passed = self;
    struct timespec now;
    (void)fault;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&coh_lock);
    if (passed->recorded->number == passed->number)
        passed->recorded->passed_ns = now.tv_sec * 1000000000ull + now.tv_nsec;
    pthread_mutex_unlock(&coh_lock);
    forget_mark(passed);
}

int host_cudaEventRecord(void *handle, void *stream) {
    BEGIN(RUNTIME, "record enqueue any");
    int code;
    coh_stream *on = coh_stream_of(stream, &code);
    if (!on) return coh_last(code);
    pthread_mutex_lock(&coh_lock);
    event *found = find(handle, &code);
    if (found && found->device != on->device) {
        coh_note("%d cudaEventRecord: an event of device %d on a stream of device %d", INVALID_HANDLE, found->device,
                 on->device);
        code = INVALID_HANDLE;
    }
    if (!code) {
        mark *passed = malloc(sizeof *passed);
        *passed = (mark){found, on->enqueued + 1};
        coh_operation record = {.what = "record", .work = pass, .self = passed, .discard = forget_mark};
        code = coh_push_locked(on, record, NULL);
        if (code) {
            free(passed);
        } else {
            found->refs++;
            if (found->stream) coh_unref(found->stream);
            coh_ref(on);
            found->stream = on;
            found->number = passed->number;
        }
    }
    coh_unref(on);
    pthread_mutex_unlock(&coh_lock);
    return coh_last(code);
}

/* What was recorded last before this call is waited for; an event that never was is complete. */
int host_cudaStreamWaitEvent(void *stream, void *handle, unsigned flags) {
    BEGIN(RUNTIME, "wait enqueue any");
    int code;
    if (flags) return coh_last(INVALID_VALUE);
    coh_stream *on = coh_stream_of(stream, &code);
    if (!on) return coh_last(code);
    pthread_mutex_lock(&coh_lock);
    event *found = find(handle, &code);
    coh_operation wait = {.what = "wait"};
    if (found && found->stream) {
        wait.wait_for = found->stream;
        wait.wait_number = found->number;
        coh_ref(wait.wait_for);
    }
    pthread_mutex_unlock(&coh_lock);
    if (wait.wait_for) code = coh_push(on, wait, NULL);
    pthread_mutex_lock(&coh_lock);
    if (wait.wait_for) coh_unref(wait.wait_for);
    coh_unref(on);
    pthread_mutex_unlock(&coh_lock);
    return coh_last(code);
}

int host_cudaEventQuery(void *handle) {
    BEGIN(RUNTIME, "query any");
    int code;
    pthread_mutex_lock(&coh_lock);
    event *found = find(handle, &code);
    if (found && found->stream && !coh_is_done(found->stream, found->number)) {
        coh_poll(found->stream, found->number);
        code = NOT_READY;
    }
    pthread_mutex_unlock(&coh_lock);
    if (code == NOT_READY) sched_yield();
    return coh_last(code);
}

int host_cudaEventSynchronize(void *handle) {
    BEGIN(RUNTIME, "synchronize any");
    int code;
    pthread_mutex_lock(&coh_lock);
    event *found = find(handle, &code);
    coh_stream *stream = found ? found->stream : NULL;
    uint64_t number = found ? found->number : 0;
    if (stream) coh_ref(stream);
    pthread_mutex_unlock(&coh_lock);
    if (stream) {
        code = coh_wait(stream, number);
        pthread_mutex_lock(&coh_lock);
        coh_unref(stream);
        pthread_mutex_unlock(&coh_lock);
    }
    return coh_last(code);
}

int host_cudaEventElapsedTime(float *ms, void *from, void *to) {
    BEGIN(RUNTIME, "any");
    int code;
    pthread_mutex_lock(&coh_lock);
    event *first = find(from, &code), *last = code ? NULL : find(to, &code);
    if (!code && (!first->timed || !last->timed || !first->stream || !last->stream)) code = INVALID_HANDLE;
    if (!code && !(coh_is_done(first->stream, first->number) && coh_is_done(last->stream, last->number))) code = NOT_READY;
    if (!code) *ms = ((double)last->passed_ns - (double)first->passed_ns) / 1e6;
    pthread_mutex_unlock(&coh_lock);
    return coh_last(code);
}

int host_cudaEventElapsedTime_v2(float *ms, void *from, void *to) { return host_cudaEventElapsedTime(ms, from, to); }
