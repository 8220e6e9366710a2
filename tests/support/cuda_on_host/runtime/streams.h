/* The inside of streams, for queue.c and streams.c. */
#ifndef CUDA_ON_HOST_STREAMS_H
#define CUDA_ON_HOST_STREAMS_H

#include "host.h"

typedef enum { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING } coh_kind;

typedef struct {
    coh_stream *stream;
    uint64_t number;
} coh_dependency;

struct coh_after {
    void (*run)(void *self);
    void *self;
    coh_after *next;
};

typedef struct coh_op {
    struct coh_op *next;
    uint64_t number, ticket;
    coh_operation given;
    coh_dependency *dependencies;
    size_t n_dependencies;
    coh_after *after;
    int code;
    double hang_s;
} coh_op;

struct coh_stream {
    void *handle;
    coh_kind kind;
    int device, priority;
    unsigned flags;
    int refs;
    int destroyed, working; /* whether it has a thread */
    int capturing;          /* cudaStreamCaptureStatus: 0 no, 1 into a graph, 2 that has failed */
    uint64_t name, base;    /* what delays are drawn from: the stream's number, and the operation that counts as its first */
    coh_op *head, *tail;
    uint64_t enqueued, done;
    uint64_t demanded; /* somebody waits for this operation */
    unsigned polls, free_ops;
    pthread_cond_t changed;
    coh_stream *previous, *next; /* of all streams */
};

extern coh_stream *coh_all_streams;

coh_stream *coh_stream_make(coh_kind kind, int device, unsigned flags, int priority);
void coh_stream_end(coh_stream *stream); /* with the lock held: no more operations will come */
/* Like coh_push, with the lock held; what is given is not discarded. */
int coh_push_locked(coh_stream *stream, coh_operation operation, uint64_t *number);
void coh_demand(coh_stream *stream, uint64_t number);

#endif
