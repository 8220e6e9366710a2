/* What the files of the runtime know of each other. */
#ifndef CUDA_ON_HOST_HOST_H
#define CUDA_ON_HOST_HOST_H

#include <pthread.h>
#include <stdatomic.h>

#include "../api.h"

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALISED = 3,
    UNLOADING = 4,
    INVALID_DIRECTION = 21,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    DEVICES_UNAVAILABLE = 46,
    NO_PEER_ACCESS = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    REGISTERED_ALREADY = 712,
    NOT_REGISTERED = 713,
    LAUNCH_FAILURE = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_ISOLATION = 905,
};

enum { MOST_DEVICES = 2 };

/* -- calls.c: what is common to all functions: threads, contexts, counts, errors */

typedef struct {
    int device;
    int context;      /* 0: none, else the device's number + 1 */
    int last;         /* for cudaGetLastError */
    int op_code;      /* error that the operation of this call is to set, by a rule */
    double op_hang_s; /* seconds that it takes, by a rule */
    uint64_t ticket;  /* of the operation that this thread runs, or 0 */
} coh_thread;

extern __thread coh_thread coh_here;

typedef enum {
    ALWAYS,         /* works without a driver */
    DRIVER,         /* initialises the driver */
    RUNTIME,        /* makes the device's context the thread's; fails once the device is lost */
    CONTEXT,        /* the driver's own: needs a context; fails once the device is lost */
    RELEASE,        /* like RUNTIME; succeeds when the process ends */
} coh_needs;

typedef struct coh_call {
    const char *name;
    const char *groups; /* names by which rules may also refer to it, between spaces */
    coh_needs needs;
    atomic_long n;
    atomic_int known;
    struct coh_call *next;
} coh_call;

int coh_begin(coh_call *call);
void coh_count(coh_call *call, long n);
int coh_last(int code);

/* Begins each function: counts it, makes rules fail it, checks what it needs. */
#define BEGIN(needs_, groups_)                                                                                             \
    static coh_call call_ = {.name = __func__, .groups = groups_, .needs = needs_};                                        \
    do {                                                                                                                   \
        int code_ = coh_begin(&call_);                                                                                     \
        if (code_) return code_ < 0 ? SUCCESS : coh_last(code_);                                                           \
    } while (0)

/* Count an event of a name that is no function of CUDA. */
#define COUNT(name_, n_)                                                                                                   \
    do {                                                                                                                   \
        static coh_call counted_ = {.name = name_};                                                                        \
        coh_count(&counted_, n_);                                                                                          \
    } while (0)

int coh_forked(void);
extern atomic_int coh_closing; /* the process ends */
extern atomic_int coh_visible; /* how many devices CUDA reports */
extern atomic_int coh_lost[MOST_DEVICES]; /* the error of all calls from now on, or 0 */
void coh_lose(int device, int code, const char *format, ...);
/* Keep a line for whoever reads a failed test. */
void coh_note(const char *format, ...);
/* Apply the rules for a name to the call of this thread; returns an error that the call must return. */
int coh_apply_rules(const char *name, const char *groups);
uint64_t coh_next_ticket(void);
int coh_valid_device(int device);
/* Make a device's primary context if there is none yet. Fails if the device is another process's alone. */
int coh_make_context(int device);

/* -- streams.c */

typedef struct coh_stream coh_stream;
typedef struct coh_after coh_after;

extern pthread_mutex_t coh_lock; /* of streams and events */

/* Return a stream by its handle, with a reference for the caller, or 0 and set the code. */
coh_stream *coh_stream_of(void *handle, int *code);
void coh_unref(coh_stream *stream); /* with the lock held */
void coh_ref(coh_stream *stream);
int coh_device_of(coh_stream *stream);

typedef struct {
    const char *what;
    coh_work work;
    void *self;
    void (*discard)(void *self); /* frees self if the work is not done; may be 0 */
    coh_stream *wait_for;        /* and the number of the operation that it waits for */
    uint64_t wait_number;
} coh_operation;

/* Enqueue; returns a CUDA error, and the number of the operation in its stream. */
int coh_push(coh_stream *stream, coh_operation operation, uint64_t *number);
/* Wait for an operation of a stream; returns the error of a lost device. While an operation runs, its thread must not wait:
 * what it waits for may wait for this operation. CUDA's error of calls from host functions is returned. */
int coh_wait(coh_stream *stream, uint64_t number);
int coh_wait_device(int device);
/* Whether an operation is done; whoever asks often enough is taken for somebody who waits. With the lock held. */
int coh_is_done(coh_stream *stream, uint64_t number);
void coh_poll(coh_stream *stream, uint64_t number);
uint64_t coh_draw(coh_stream *stream, uint64_t number);
uint64_t coh_enqueued(coh_stream *stream);

/* Do something right after the last operation that a stream has, or now if all are done. `self` is freed by it. */
void coh_after_last(coh_stream *stream, void (*run)(void *self), void *self);
/* The same for all that the streams of a device have now; negative: of all devices. */
void coh_after_device(int device, void (*run)(void *self), void *self);

/* -- handles.c: numbers for streams and events, used again as an allocator does */

typedef struct {
    uintptr_t first;
    void **objects;
    size_t n, room;
    size_t *vacant;
    size_t n_vacant, room_vacant;
} coh_handles;

void *coh_handle_new(coh_handles *handles, void *object);
void *coh_handle_object(coh_handles *handles, void *handle);
void coh_handle_close(coh_handles *handles, void *handle);  /* no longer valid */
void coh_handle_vacate(coh_handles *handles, void *handle); /* may be given out again */

/* -- memory.c */

/* Like coh_find, for what an operation with a ticket may use: 0 for now. Returns 2 if the address is in device memory that
 * nobody has been given by CuPy's pool. */
int coh_find_at(uintptr_t address, uint64_t ticket, coh_block *found);

/* A part of an allocation that CuPy's pool has given out. */
typedef struct coh_part {
    uintptr_t begin;
    size_t nbytes;
    uint64_t taken, returned; /* tickets: operations in between may use it; 0: not returned */
    coh_stream *stream;       /* in whose order it is used again */
    struct coh_part *next;
} coh_part;

/* Call a function with the parts of the device allocation that contains an address, which it may change if it is alone. */
int coh_with_parts(uintptr_t address, int alone, void (*function)(coh_part **parts, void *self), void *self);

#endif
