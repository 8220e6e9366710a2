/* A stream's queue and the thread that works it off, late.
 *
 * CUDA allows an operation to run at any time after those that it depends on. Programs that forget to wait are right by
 * chance if operations run at once, so most operations here are held back: until somebody waits for them, asks for them
 * again and again, or some milliseconds have passed. How long is drawn from the seed, the stream and the operation.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "streams.h"

pthread_mutex_t coh_lock = PTHREAD_MUTEX_INITIALIZER;
coh_stream *coh_all_streams;

static uint64_t seed;
static int most_late_ms = 60;
static int dropping, running;
static uint64_t names = MOST_DEVICES; /* the legacy streams have the first */
static coh_stream *last_stream;

enum { LEAST_LATE_MS = 5, MUCH_LONGER = 8 };

/* -- what is drawn */

static uint64_t mixed(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t drawn(uint64_t name, uint64_t number) { return mixed(mixed(mixed(seed) ^ name) ^ number); }

uint64_t coh_draw(coh_stream *stream, uint64_t number) { return drawn(stream->name, number - stream->base); }

/* How long an operation is held back if nobody waits for it: one of 16 not at all, one of four much longer than the others. */
static double late_ms(uint64_t draw) {
    if (draw % 16 == 0 || most_late_ms <= 0) return 0;
    double ms = LEAST_LATE_MS + (draw / 16 % 1000) / 1000.0 * (most_late_ms - LEAST_LATE_MS);
    return draw % 16 <= 4 ? MUCH_LONGER * ms : ms;
}

double coh_late_ms(uint64_t name, uint64_t number) { return late_ms(drawn(name, number)); }

/* Begin a new order: streams made from now on are numbered anew, whatever else lives, and those that live by their age. */
void coh_set_seed(uint64_t value, int late) {
    static const uint64_t older = 1ull << 32;
    uint64_t age = 0;
    pthread_mutex_lock(&coh_lock);
    seed = value;
    most_late_ms = late;
    names = MOST_DEVICES;
    for (coh_stream *stream = coh_all_streams; stream; stream = stream->next) {
        if (stream->kind != LEGACY) stream->name = older + age++;
        stream->base = stream->enqueued;
        stream->free_ops = stream->polls = 0;
    }
    pthread_mutex_unlock(&coh_lock);
}

/* -- which operations ran, in order */

enum { TRACED = 4096 };
static struct {
    uint64_t name, number;
    const char *what;
} trace[TRACED];
static size_t traced;

size_t coh_trace(char *text, size_t room) {
    size_t length = 0;
    pthread_mutex_lock(&coh_lock);
    for (size_t i = traced > TRACED ? traced - TRACED : 0; i < traced; i++) {
        size_t at = i % TRACED;
        length += snprintf(text + length, length < room ? room - length : 0, "%lu %lu %s\n",
                           (unsigned long)trace[at].name, (unsigned long)trace[at].number, trace[at].what);
    }
    if (length < room) traced = 0;
    pthread_mutex_unlock(&coh_lock);
    return length;
}

/* -- life */

coh_stream *coh_stream_make(coh_kind kind, int device, unsigned flags, int priority) {
    coh_stream *stream = calloc(1, sizeof *stream);
    *stream = (coh_stream){.kind = kind, .device = device, .flags = flags, .priority = priority, .refs = 1};
    stream->name = kind == LEGACY ? (uint64_t)device : names++;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&stream->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    stream->previous = last_stream;
    if (last_stream) last_stream->next = stream;
    else coh_all_streams = stream;
    last_stream = stream;
    return stream;
}

void coh_ref(coh_stream *stream) { stream->refs++; }

void coh_unref(coh_stream *stream) {
    if (--stream->refs) return;
    if (stream->previous) stream->previous->next = stream->next;
    else coh_all_streams = stream->next;
    if (stream->next) stream->next->previous = stream->previous;
    else last_stream = stream->previous;
    pthread_cond_destroy(&stream->changed);
    free(stream);
}

int coh_device_of(coh_stream *stream) { return stream->device; }
uint64_t coh_enqueued(coh_stream *stream) { return stream->enqueued; }

/* -- waiting */

int coh_is_done(coh_stream *stream, uint64_t number) { return stream->done >= number; }

/* Somebody waits for an operation: it is held back no longer, nor is what it waits for. */
void coh_demand(coh_stream *stream, uint64_t number) {
    if (number <= stream->demanded || stream->done >= number) return;
    uint64_t before = stream->demanded;
    stream->demanded = number;
    for (coh_op *op = stream->head; op && op->number <= number; op = op->next)
        for (size_t i = 0; op->number > before && i < op->n_dependencies; i++)
            coh_demand(op->dependencies[i].stream, op->dependencies[i].number);
    pthread_cond_broadcast(&stream->changed);
}

void coh_poll(coh_stream *stream, uint64_t number) {
    if (++stream->polls < 3 + coh_draw(stream, number) % 14) return;
    stream->polls = 0;
    coh_demand(stream, number);
}

static int wait_locked(coh_stream *stream, uint64_t number) {
    if (coh_here.ticket && stream->done < number) return NOT_PERMITTED;
    coh_ref(stream);
    coh_demand(stream, number);
    while (stream->done < number && !coh_closing) pthread_cond_wait(&stream->changed, &coh_lock);
    int device = stream->device;
    coh_unref(stream);
    return coh_lost[device];
}

int coh_wait(coh_stream *stream, uint64_t number) {
    pthread_mutex_lock(&coh_lock);
    int code = wait_locked(stream, number);
    pthread_mutex_unlock(&coh_lock);
    return code;
}

/* Wait for all that the streams of a device have now. */
int coh_wait_device(int device) {
    if (coh_here.ticket) return NOT_PERMITTED;
    pthread_mutex_lock(&coh_lock);
    size_t n = 0, i = 0;
    for (coh_stream *stream = coh_all_streams; stream; stream = stream->next) n++;
    coh_dependency *pending = calloc(n + 1, sizeof *pending);
    for (coh_stream *stream = coh_all_streams; stream; stream = stream->next)
        if (stream->device == device && stream->done < stream->enqueued) {
            coh_ref(stream);
            coh_demand(stream, stream->enqueued);
            pending[i++] = (coh_dependency){stream, stream->enqueued};
        }
    for (n = i, i = 0; i < n; i++) {
        wait_locked(pending[i].stream, pending[i].number);
        coh_unref(pending[i].stream);
    }
    pthread_mutex_unlock(&coh_lock);
    free(pending);
    return coh_lost[device];
}

/* -- the thread of a stream */

static void sleep_until(coh_stream *stream, const coh_op *op, double ms) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long long ns = end.tv_nsec + (long long)(ms * 1e6);
    end.tv_sec += ns / 1000000000;
    end.tv_nsec = ns % 1000000000;
    while (stream->demanded < op->number && !coh_closing && !dropping)
        if (pthread_cond_timedwait(&stream->changed, &coh_lock, &end) == ETIMEDOUT) break;
}

static void hold(coh_stream *stream, const coh_op *op) {
    uint64_t draw = coh_draw(stream, op->number);
    if (stream->demanded >= op->number) {
        stream->free_ops = 0;
        if (draw % 16 == 1 && most_late_ms > 0) { /* even then it may take a while */
            pthread_mutex_unlock(&coh_lock);
            usleep(draw / 16 % 300);
            pthread_mutex_lock(&coh_lock);
        }
    } else if (stream->free_ops) {
        stream->free_ops--;
    } else {
        double ms = late_ms(draw);
        if (ms > 0) sleep_until(stream, op, ms);
        if (stream->demanded < op->number) stream->free_ops = draw / 16000 % 4; /* and then several at once */
    }
}

static void run(coh_stream *stream, coh_op *op) {
    coh_fault fault = {0};
    if (op->hang_s > 0) {
        for (double left = op->hang_s; left > 0 && !coh_closing; left -= 0.01) usleep(10000);
    }
    if (op->code) {
        fault.code = op->code;
        snprintf(fault.message, sizeof fault.message, "asked for: %s fails when it runs", op->given.what);
        if (op->given.discard) op->given.discard(op->given.self);
    } else if (op->given.work) {
        coh_here.ticket = op->ticket;
        op->given.work(op->given.self, &fault);
        coh_here.ticket = 0;
    }
    if (fault.code) coh_lose(stream->device, fault.code, "%d %s", fault.code, fault.message);
}

static void finish(coh_stream *stream, coh_op *op) {
    for (coh_after *after; (after = op->after);) {
        op->after = after->next;
        pthread_mutex_unlock(&coh_lock);
        after->run(after->self);
        free(after);
        pthread_mutex_lock(&coh_lock);
    }
    stream->head = op->next;
    if (!stream->head) {
        stream->tail = NULL;
        stream->free_ops = 0;
    }
    stream->done = op->number;
    for (size_t i = 0; i < op->n_dependencies; i++) coh_unref(op->dependencies[i].stream);
    free(op->dependencies);
    free(op);
    pthread_cond_broadcast(&stream->changed);
}

static void work_off(coh_stream *stream) {
    coh_op *op = stream->head;
    for (size_t i = 0; i < op->n_dependencies; i++) {
        coh_dependency on = op->dependencies[i];
        while (on.stream->done < on.number && !coh_closing) pthread_cond_wait(&on.stream->changed, &coh_lock);
    }
    if (!coh_lost[stream->device] && !dropping && !coh_closing) hold(stream, op);
    int dropped = coh_lost[stream->device] || dropping || coh_closing;
    if (!dropped) {
        traced += 1;
        trace[(traced - 1) % TRACED].name = stream->name;
        trace[(traced - 1) % TRACED].number = op->number - stream->base;
        trace[(traced - 1) % TRACED].what = op->given.what;
        running++;
    }
    pthread_mutex_unlock(&coh_lock);
    if (!dropped) run(stream, op);
    else if (op->given.discard) op->given.discard(op->given.self);
    pthread_mutex_lock(&coh_lock);
    finish(stream, op);
    if (!dropped) running--;
}

static void retire(coh_stream *stream);

static void *thread(void *self) {
    coh_stream *stream = self;
    pthread_setname_np(pthread_self(), "stream");
    coh_here.device = stream->device;
    pthread_mutex_lock(&coh_lock);
    for (;;) {
        while (!stream->head && !stream->destroyed) pthread_cond_wait(&stream->changed, &coh_lock);
        if (!stream->head) break;
        work_off(stream);
    }
    retire(stream);
    pthread_mutex_unlock(&coh_lock);
    return NULL;
}

/* -- enqueuing */

static void depend(coh_op *op, coh_stream *on, uint64_t number) {
    if (on->done >= number) return;
    op->dependencies = realloc(op->dependencies, (op->n_dependencies + 1) * sizeof *op->dependencies);
    op->dependencies[op->n_dependencies++] = (coh_dependency){on, number};
    coh_ref(on);
}

/* The legacy default stream waits for all blocking streams of its device, and they wait for it. */
static int waits_as_legacy(const coh_stream *stream, const coh_stream *other) {
    return other != stream && other->device == stream->device && stream->kind != NON_BLOCKING &&
           other->kind != NON_BLOCKING && (stream->kind == LEGACY || other->kind == LEGACY);
}

static void depend_on_legacy(coh_op *op, coh_stream *stream) {
    for (coh_stream *other = coh_all_streams; other; other = other->next)
        if (waits_as_legacy(stream, other)) depend(op, other, other->enqueued);
}

static int start(coh_stream *stream) {
    pthread_t started;
    pthread_attr_t attributes;
    sigset_t others, before;
    sigfillset(&others); /* signals are for the interpreter's threads, but for a kernel's own faults */
    for (int i = 0; i < 4; i++) sigdelset(&others, (int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL}[i]);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    int failed = pthread_create(&started, &attributes, thread, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (!failed) {
        stream->working = 1;
        coh_ref(stream);
    }
    return failed;
}

/* What becomes of an operation of a stream that is being captured: there are no graphs here, only what CUDA refuses. */
static int captured(coh_stream *stream, const coh_operation *given) {
    stream->capturing = 2;
    if (given->wait_for) return CAPTURE_ISOLATION; /* for work that is not captured */
    coh_note("%d %s on a stream that is being captured into a graph", NOT_SUPPORTED, given->what);
    return NOT_SUPPORTED;
}

int coh_push_locked(coh_stream *stream, coh_operation given, uint64_t *number) {
    int code = coh_closing ? UNLOADING : stream->destroyed ? INVALID_HANDLE : coh_lost[stream->device];
    if (!code && stream->capturing) code = captured(stream, &given);
    if (!code && !stream->working && start(stream)) code = OUT_OF_MEMORY;
    if (code) return code;
    coh_op *op = calloc(1, sizeof *op);
    op->given = given;
    op->code = coh_here.op_code;
    op->hang_s = coh_here.op_hang_s;
    coh_here.op_code = 0;
    coh_here.op_hang_s = 0;
    if (given.wait_for) depend(op, given.wait_for, given.wait_number);
    depend_on_legacy(op, stream);
    op->number = ++stream->enqueued;
    op->ticket = coh_next_ticket();
    if (stream->tail) stream->tail->next = op;
    else stream->head = op;
    stream->tail = op;
    if (number) *number = op->number;
    pthread_cond_broadcast(&stream->changed);
    return SUCCESS;
}

int coh_push(coh_stream *stream, coh_operation given, uint64_t *number) {
    pthread_mutex_lock(&coh_lock);
    int code = coh_push_locked(stream, given, number);
    pthread_mutex_unlock(&coh_lock);
    if (code && given.discard) given.discard(given.self);
    return code;
}

static void append(coh_op *op, void (*run)(void *self), void *self) {
    coh_after *after = malloc(sizeof *after);
    *after = (coh_after){run, self, NULL};
    coh_after **end = &op->after;
    while (*end) end = &(*end)->next;
    *end = after;
}

typedef struct {
    atomic_size_t left; /* streams that have not come to it */
    void (*run)(void *self);
    void *self;
} after_several;

static void one_less(void *self) {
    after_several *counted = self;
    if (atomic_fetch_sub(&counted->left, 1) > 1) return;
    counted->run(counted->self);
    free(counted);
}

/* What comes next on the stream runs after all of them. */
void coh_after_last(coh_stream *stream, void (*run)(void *self), void *self) {
    after_several *counted = malloc(sizeof *counted);
    *counted = (after_several){1, run, self};
    pthread_mutex_lock(&coh_lock);
    for (coh_stream *other = coh_all_streams; other; other = other->next)
        if (other->tail && (other == stream || waits_as_legacy(stream, other))) {
            counted->left++;
            append(other->tail, one_less, counted);
        }
    pthread_mutex_unlock(&coh_lock);
    one_less(counted);
}

void coh_after_device(int device, void (*run)(void *self), void *self) {
    after_several *counted = malloc(sizeof *counted);
    *counted = (after_several){1, run, self};
    pthread_mutex_lock(&coh_lock);
    for (coh_stream *stream = coh_all_streams; stream; stream = stream->next)
        if (stream->tail && (device < 0 || stream->device == device)) {
            atomic_fetch_add(&counted->left, 1);
            append(stream->tail, one_less, counted);
        }
    pthread_mutex_unlock(&coh_lock);
    one_less(counted);
}

/* -- the end */

extern void coh_stream_vacate(coh_stream *stream);

static void retire(coh_stream *stream) {
    stream->working = 0;
    coh_stream_vacate(stream);
    coh_unref(stream);
}

void coh_stream_end(coh_stream *stream) {
    stream->destroyed = 1;
    if (!stream->working) coh_stream_vacate(stream);
    pthread_cond_broadcast(&stream->changed);
    coh_unref(stream);
}

static int is_idle(void) {
    for (coh_stream *stream = coh_all_streams; stream; stream = stream->next)
        if (stream->head) return 0;
    return !running;
}

/* Let all streams come to their end: what is pending runs, or is dropped. Returns 1 if they do within some seconds. */
int coh_drain(int drop, double seconds) {
    if (coh_forked()) return 1;
    pthread_mutex_lock(&coh_lock);
    dropping = drop;
    for (coh_stream *stream = coh_all_streams; stream; stream = stream->next) {
        coh_demand(stream, stream->enqueued);
        pthread_cond_broadcast(&stream->changed);
    }
    int idle;
    while (!(idle = is_idle()) && seconds > 0) {
        pthread_mutex_unlock(&coh_lock);
        usleep(1000);
        seconds -= 0.001;
        pthread_mutex_lock(&coh_lock);
    }
    dropping = 0;
    pthread_mutex_unlock(&coh_lock);
    return idle;
}

/* The process ends: nothing runs any more, and calls that release something succeed. */
void coh_shut_down(void) {
    if (coh_forked()) return;
    coh_closing = 1;
    coh_drain(1, 5);
}
