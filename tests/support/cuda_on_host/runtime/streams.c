/* cudaStream…: handles, the default streams, destruction. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "streams.h"

static coh_handles handles = {.first = 0x5c0000000000};
static coh_stream *legacy[MOST_DEVICES];
static __thread coh_stream *per_thread[MOST_DEVICES];
static pthread_key_t of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static long live;

enum { DEFAULT_LEGACY = 1, DEFAULT_PER_THREAD = 2, FLAG_NON_BLOCKING = 1 };

static void end_of_thread(void *streams) {
    if (coh_forked()) return;
    pthread_mutex_lock(&coh_lock);
    for (int i = 0; i < MOST_DEVICES; i++)
        if (((coh_stream **)streams)[i]) coh_stream_end(((coh_stream **)streams)[i]);
    pthread_mutex_unlock(&coh_lock);
}

static void make_key(void) { pthread_key_create(&of_thread, end_of_thread); }

static coh_stream *default_stream(coh_stream **of_devices, coh_kind kind) {
    coh_stream **found = &of_devices[coh_here.device];
    if (!*found) *found = coh_stream_make(kind, coh_here.device, 0, 0);
    return *found;
}

coh_stream *coh_stream_of(void *handle, int *code) {
    coh_stream *found;
    pthread_mutex_lock(&coh_lock);
    if ((uintptr_t)handle <= DEFAULT_LEGACY) {
        found = default_stream(legacy, LEGACY);
    } else if ((uintptr_t)handle == DEFAULT_PER_THREAD) {
        pthread_once(&once, make_key);
        pthread_setspecific(of_thread, per_thread);
        found = default_stream(per_thread, PER_THREAD);
    } else {
        found = coh_handle_object(&handles, handle);
    }
    if (found) coh_ref(found);
    pthread_mutex_unlock(&coh_lock);
    if (!found) coh_note("%d %p is not a stream, or one that was destroyed", INVALID_HANDLE, handle);
    *code = found ? SUCCESS : INVALID_HANDLE;
    return found;
}

static void release(coh_stream *stream) {
    pthread_mutex_lock(&coh_lock);
    coh_unref(stream);
    pthread_mutex_unlock(&coh_lock);
}

void coh_stream_vacate(coh_stream *stream) {
    if (stream->handle) coh_handle_vacate(&handles, stream->handle);
}

long coh_live_streams(void) { return live; }

static int create(void **stream, unsigned flags, int priority) {
    if (!stream || flags > FLAG_NON_BLOCKING) return coh_last(INVALID_VALUE);
    pthread_mutex_lock(&coh_lock);
    coh_kind kind = flags & FLAG_NON_BLOCKING ? NON_BLOCKING : BLOCKING;
    coh_stream *made = coh_stream_make(kind, coh_here.device, flags, priority);
    *stream = made->handle = coh_handle_new(&handles, made);
    live++;
    pthread_mutex_unlock(&coh_lock);
    return SUCCESS;
}

int host_cudaStreamCreate(void **stream) {
    BEGIN(RUNTIME, "create any");
    return create(stream, 0, 0);
}

int host_cudaStreamCreateWithFlags(void **stream, unsigned flags) {
    BEGIN(RUNTIME, "create any");
    return create(stream, flags, 0);
}

int host_cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    BEGIN(RUNTIME, "create any");
    return create(stream, flags, priority);
}

/* Returns at once; what is pending runs. The handle is given out again once it has. */
int host_cudaStreamDestroy(void *stream) {
    BEGIN(RELEASE, "destroy");
    pthread_mutex_lock(&coh_lock);
    coh_stream *found = (uintptr_t)stream > DEFAULT_PER_THREAD ? coh_handle_object(&handles, stream) : NULL;
    if (found) {
        coh_handle_close(&handles, stream);
        live--;
        coh_stream_end(found);
    }
    pthread_mutex_unlock(&coh_lock);
    if (!found) coh_note("%d cudaStreamDestroy: %p is not a stream", INVALID_HANDLE, stream);
    return coh_last(found ? SUCCESS : INVALID_HANDLE);
}

/* A stream that is being captured cannot be asked or waited for: to try ends the capture. */
static int refuse_captured(coh_stream *stream) {
    if (!stream->capturing) return SUCCESS;
    stream->capturing = 2;
    return CAPTURE_UNSUPPORTED;
}

int host_cudaStreamSynchronize(void *stream) {
    BEGIN(RUNTIME, "synchronize any");
    int code;
    coh_stream *found = coh_stream_of(stream, &code);
    if (!found) return coh_last(code);
    code = refuse_captured(found);
    if (!code) code = coh_wait(found, found->enqueued);
    release(found);
    return coh_last(code);
}

int host_cudaStreamQuery(void *stream) {
    BEGIN(RUNTIME, "query any");
    int code;
    coh_stream *found = coh_stream_of(stream, &code);
    if (!found) return coh_last(code);
    pthread_mutex_lock(&coh_lock);
    code = refuse_captured(found);
    if (!code && !coh_is_done(found, found->enqueued)) {
        coh_poll(found, found->enqueued);
        code = NOT_READY;
    }
    coh_unref(found);
    pthread_mutex_unlock(&coh_lock);
    if (code == NOT_READY) sched_yield();
    return coh_last(code);
}

static int asked(void *stream, unsigned *flags, int *priority) {
    int code;
    coh_stream *found = coh_stream_of(stream, &code);
    if (!found) return coh_last(code);
    if (flags) *flags = found->flags;
    if (priority) *priority = found->priority;
    release(found);
    return SUCCESS;
}

int host_cudaStreamGetFlags(void *stream, unsigned *flags) {
    BEGIN(RUNTIME, "any");
    return asked(stream, flags, NULL);
}

int host_cudaStreamGetPriority(void *stream, int *priority) {
    BEGIN(RUNTIME, "any");
    return asked(stream, NULL, priority);
}

int host_cudaStreamIsCapturing(void *stream, int *status) {
    BEGIN(RUNTIME, "any");
    int code;
    coh_stream *found = coh_stream_of(stream, &code);
    *status = 0;
    if (!found) return coh_last(code);
    *status = found->capturing;
    release(found);
    return SUCCESS;
}

int host_cudaStreamBeginCapture(void *stream, int mode) {
    BEGIN(RUNTIME, "any");
    (void)mode;
    int code;
    coh_stream *found = coh_stream_of(stream, &code);
    if (!found) return coh_last(code);
    code = found->kind == LEGACY ? CAPTURE_UNSUPPORTED : SUCCESS;
    if (!code) found->capturing = 1;
    release(found);
    return coh_last(code);
}

int host_cudaStreamEndCapture(void *stream, void **graph) {
    BEGIN(RUNTIME, "any");
    int code;
    coh_stream *found = coh_stream_of(stream, &code);
    *graph = NULL;
    if (!found) return coh_last(code);
    code = found->capturing == 1 ? SUCCESS : found->capturing ? CAPTURE_INVALIDATED : CAPTURE_UNMATCHED;
    found->capturing = 0;
    release(found);
    return coh_last(code);
}

int host_cudaDeviceSynchronize(void) {
    BEGIN(RUNTIME, "synchronize any");
    return coh_last(coh_wait_device(coh_here.device));
}

int cuStreamGetCtx(void *stream, void **context) {
    BEGIN(CONTEXT, "any");
    int code;
    coh_stream *found = coh_stream_of(stream, &code);
    if (!found) return code;
    *context = (void *)(uintptr_t)(found->device + 1);
    release(found);
    return SUCCESS;
}

/* -- work of others */

int coh_enqueue(void *stream, coh_work work, void *self) {
    BEGIN(RUNTIME, "enqueue any");
    int code;
    coh_stream *found = coh_stream_of(stream, &code);
    if (!found) return coh_last(code);
    if (found->device != coh_here.device) code = INVALID_HANDLE;
    if (!code) code = coh_push(found, (coh_operation){.what = "work", .work = work, .self = self}, NULL);
    release(found);
    return coh_last(code);
}

/* Functions of the host as operations of a stream. */
typedef struct {
    void (*function)(void *argument);
    void (*callback)(void *stream, int status, void *argument);
    void *stream, *argument;
} host_function;

static void call_host(void *self, coh_fault *fault) {
    host_function *given = self;
    (void)fault;
    if (given->function) given->function(given->argument);
    else given->callback(given->stream, SUCCESS, given->argument);
    free(given);
}

static int push_host(host_function given) {
    int code;
    coh_stream *found = coh_stream_of(given.stream, &code);
    if (!found) return coh_last(code);
    host_function *kept = malloc(sizeof *kept);
    *kept = given;
    code = coh_push(found, (coh_operation){.what = "host", .work = call_host, .self = kept, .discard = free}, NULL);
    release(found);
    return coh_last(code);
}

int host_cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
    BEGIN(RUNTIME, "enqueue any");
    return push_host((host_function){.function = function, .stream = stream, .argument = argument});
}

int host_cudaStreamAddCallback(void *stream, void (*callback)(void *, int, void *), void *argument, unsigned flags) {
    BEGIN(RUNTIME, "enqueue any");
    return flags ? coh_last(INVALID_VALUE)
                 : push_host((host_function){.callback = callback, .stream = stream, .argument = argument});
}
