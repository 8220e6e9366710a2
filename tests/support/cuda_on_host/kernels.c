/* Launches of kernels that were compiled from the IR that a GPU would get (kernel_ir.py), on the calling thread.
 *
 * The threads of a block are fibers: each has a stack, and all run on the thread of the caller. Where they depend on each
 * other (shared memory, atomic operations, barriers), two blocks run at a time, and a fiber gives way at barriers, and at
 * random operations on memory. Where they don't, they run one after the other in a random order, now and then like the
 * former. The seed of a launch alone determines the order.
 *
 * Each access is checked to be in memory that the kernel may use. What is wrong ends the launch: nothing of it runs on.
 * A kernel holds nothing, so that its fibers can be abandoned.
 */
#define _GNU_SOURCE
#include "api.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { TEAMS = 2, RECENT = 8, POISON = 0xdb, STACK = 64 << 10, END = -2 };
/* A thread gives way at one of this many operations on memory, on average; in long launches, after so many pauses, less
 * often. */
enum { PAUSE = 16, RARE_PAUSE = 256, MANY_PAUSES = 100000 };
/* Operations on memory between two looks at the clock. */
enum { PATIENCE = 1 << 20 };
/* Small launches of threads that don't depend on each other run like the others, one of this many. */
enum { SMALL = 8192, MIXED = 4 };

enum { ILLEGAL_ADDRESS = 700, TIMEOUT = 702, MISALIGNED_ADDRESS = 716, LAUNCH_FAILURE = 719 };

/* -- what kernel_ir.py knows of */

typedef struct {
    uintptr_t begin;
    uint64_t nbytes;
} range;

/* What an instruction has accessed before: `room` is the number of addresses from `begin` that it may access. */
typedef struct {
    uintptr_t begin;
    uint64_t room;
} slot;

/* The position of a thread. */
typedef struct {
    uint32_t thread[3], block[3], index[3], grid[3]; /* tid, ntid, ctaid, nctaid */
    uint8_t *shared;
    slot *slots;
} here;

typedef struct state state;

typedef struct {
    const char *name;
    void (*run)(void *const *parameters, here *at, state *launch);
    int64_t shared_nbytes;
    int64_t cooperates;
    int64_t n_sites;
    const char *const *sites; /* instructions, for messages */
    int64_t n_constants;
    const range *constants;
} program;

/* Kinds of faults that the code of a kernel states. */
enum { MISALIGNED = 1, SHIFTED = 2, OVERFLOWED = 3, RAISED = 4, DIVIDED = 5 };

/* -- a launch */

typedef struct {
    int64_t arrived, site; /* at a barrier */
} team;

typedef struct {
    void *sp;
    uint8_t *stack; /* its lowest byte */
    here at;
    team *team;
    uint32_t place; /* among those that can run */
} fiber;

typedef int (*finder)(void *self, uintptr_t address, coh_block *found);

struct state {
    uint64_t countdown; /* to the next pause; kernel_ir.py knows its place */
    const program *program;
    void *const *parameters;
    const coh_launch *launch;
    coh_fault *fault;
    finder find;
    void *find_self;
    uint64_t random;
    int64_t concurrent; /* whether threads give way */
    uint64_t pause;
    fiber *fibers;
    fiber **ready;
    fiber *current;
    void *outside; /* the stack pointer of the caller */
    uint64_t n_ready, threads, blocks, next_block;
    uint32_t *order; /* of blocks */
    uint32_t *turn;  /* of the threads of a block */
    team teams[TEAMS];
    range recent[RECENT];
    uint64_t n_recent;
    struct timespec until;
    uint64_t looks, pauses;
};

static double limit = 100; /* seconds */

static uint64_t next_random(state *s) {
    uint64_t x = s->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    s->random = x;
    return x * 0x9e3779b97f4a7c15u >> 16;
}

static uint64_t below(state *s, uint64_t n) { return ((next_random(s) & 0xffffffffu) * n) >> 32; }

static void shuffle(state *s, uint32_t *numbers, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) numbers[i] = i;
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = below(s, i);
        uint32_t kept = numbers[i - 1];
        numbers[i - 1] = numbers[j];
        numbers[j] = kept;
    }
}

/* -- switches of stacks */

#if defined(__x86_64__) && !defined(COH_UCONTEXT)

/* Save what the ABI wants to be kept, and go on where another stack was left. */
__attribute__((visibility("hidden"))) void coh_switch(void **from, void *to);
__asm__(".text\n.hidden coh_switch\n.globl coh_switch\n.type coh_switch, @function\ncoh_switch:\n"
        "  endbr64\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n.size coh_switch, .-coh_switch\n");

static void *prepared(uint8_t *stack, size_t nbytes, void (*begin)(void)) {
    void **sp = (void **)(((uintptr_t)stack + nbytes) & ~(uintptr_t)15);
    *--sp = NULL; /* the return address of `begin`, which never returns; it starts as if called */
    *--sp = (void *)begin;
    for (int i = 0; i < 6; i++) *--sp = NULL;
    return sp;
}

#else

#include <ucontext.h>

/* At the lowest address of each stack, and for the caller on its own. */
static void coh_switch(void **from, void *to) {
    ucontext_t here;
    *from = &here;
    swapcontext(&here, to);
}

static void *prepared(uint8_t *stack, size_t nbytes, void (*begin)(void)) {
    ucontext_t *made = (ucontext_t *)stack;
    getcontext(made);
    made->uc_stack.ss_sp = stack + sizeof *made;
    made->uc_stack.ss_size = nbytes - sizeof *made;
    made->uc_link = NULL;
    makecontext(made, begin, 0);
    return made;
}

#endif

/* -- stacks, kept by each thread of the system */

typedef struct {
    uint8_t *begin;
    uint64_t n;
    state *running;
} stacks;

static pthread_key_t stacks_key;
static pthread_once_t stacks_once = PTHREAD_ONCE_INIT;

static void leave(void *self) {
    stacks *mine = self;
    if (mine->begin) munmap(mine->begin, mine->n * STACK);
    free(mine);
}

static void make_key(void) { pthread_key_create(&stacks_key, leave); }

static stacks *stacks_for(uint64_t n) {
    pthread_once(&stacks_once, make_key);
    stacks *mine = pthread_getspecific(stacks_key);
    if (!mine) {
        mine = calloc(1, sizeof *mine);
        pthread_setspecific(stacks_key, mine);
    }
    if (mine->n < n) {
        if (mine->begin) munmap(mine->begin, mine->n * STACK);
        mine->begin =
            mmap(NULL, n * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mine->n = n;
        if (mine->begin == MAP_FAILED) {
            mine->begin = NULL;
            mine->n = 0;
            return NULL;
        }
    }
    return mine;
}

/* -- faults */

static void to_outside(state *s) __attribute__((noreturn));
static void to_outside(state *s) {
    void *never;
    coh_switch(&never, s->outside);
    __builtin_unreachable();
}

static void add(coh_fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(coh_fault *fault, const char *format, ...) {
    size_t used = strlen(fault->message);
    va_list rest;
    va_start(rest, format);
    vsnprintf(fault->message + used, sizeof fault->message - used, format, rest);
    va_end(rest);
}

static void add_position(coh_fault *fault, const uint32_t *p, const uint32_t *n) {
    if (n[1] == 1 && n[2] == 1)
        add(fault, "%u", p[0]);
    else
        add(fault, "(%u, %u, %u)", p[0], p[1], p[2]);
}

/* Begin the message of a fault: the kernel, the thread. */
static void begin_fault(state *s, const here *at, int code) {
    const unsigned *grid = s->launch->grid, *block = s->launch->block;
    s->fault->code = code;
    s->fault->message[0] = 0;
    add(s->fault, "%s, ", s->program->name);
    add(s->fault, grid[1] == 1 && grid[2] == 1 ? "%u" : "%u x %u x %u", grid[0], grid[1], grid[2]);
    add(s->fault, " blocks of ");
    add(s->fault, block[1] == 1 && block[2] == 1 ? "%u" : "%u x %u x %u", block[0], block[1], block[2]);
    add(s->fault, " threads: ");
    if (at) {
        add(s->fault, "thread ");
        add_position(s->fault, at->thread, at->block);
        add(s->fault, " of block ");
        add_position(s->fault, at->index, at->grid);
        add(s->fault, ": ");
    }
}

static const char *site_of(state *s, int64_t site) {
    return site >= 0 && site < s->program->n_sites ? s->program->sites[site] : "";
}

/* Called by the code of a kernel. */
__attribute__((cold, noreturn)) void coh_kernel_fault(here *at, state *s, int64_t kind, int64_t value, int64_t site) {
    const char *instruction = site_of(s, site);
    begin_fault(s, at, kind == MISALIGNED ? MISALIGNED_ADDRESS : LAUNCH_FAILURE);
    if (kind == MISALIGNED)
        add(s->fault, "%#llx does not have the alignment that the operation claims: %s", (unsigned long long)value,
            instruction);
    else if (kind == SHIFTED)
        add(s->fault, "a shift by %lld bits: %s", (long long)value, instruction);
    else if (kind == OVERFLOWED)
        add(s->fault, "a signed number overflows: %s", instruction);
    else if (kind == DIVIDED)
        add(s->fault, "an integer is divided by zero, or the lowest one by -1: %s", instruction);
    else
        add(s->fault, "it raises: a thread of a GPU would end silently");
    to_outside(s);
}

/* -- memory */

static int within(const range *r, uintptr_t at, uint64_t nbytes) {
    return at >= r->begin && at - r->begin < r->nbytes && nbytes <= r->nbytes - (at - r->begin);
}

static int lookup(state *s, here *at, uintptr_t address, uint64_t nbytes, range *found, coh_block *block) {
    memset(block, 0, sizeof *block);
    for (uint64_t i = 0; i < RECENT; i++)
        if (within(&s->recent[i], address, nbytes)) {
            *found = s->recent[i];
            return 1;
        }
    *found = (range){(uintptr_t)at->shared, (uint64_t)s->program->shared_nbytes};
    if (within(found, address, nbytes)) return 1;
    for (int64_t i = 0; i < s->program->n_constants; i++) {
        *found = s->program->constants[i];
        if (within(found, address, nbytes)) return 1;
    }
    /* Variables of the thread. */
    *found = (range){(uintptr_t)s->current->stack, STACK};
    if (within(found, address, nbytes)) return 1;
    if (s->find(s->find_self, address, block)) {
        *found = (range){block->begin, block->nbytes};
        int may = block->kind == COH_PINNED || (block->kind == COH_DEVICE && block->device == s->launch->device);
        if (may && within(found, address, nbytes)) {
            s->recent[s->n_recent++ % RECENT] = *found;
            return 1;
        }
    }
    return 0;
}

__attribute__((cold, noreturn)) static void outside(state *s, here *at, uintptr_t address, uint64_t nbytes, int64_t site,
                                                    const coh_block *block) {
    begin_fault(s, at, ILLEGAL_ADDRESS);
    unsigned long long shown = address;
    if (block->kind == COH_DEVICE && block->device != s->launch->device)
        add(s->fault, "%#llx is memory of device %d, and the kernel runs on device %d", shown, block->device,
            s->launch->device);
    else {
        add(s->fault, "%#llx is outside its memory", shown);
        const slot *before = &at->slots[site];
        if (block->kind != COH_NONE)
            add(s->fault, ", %llu of %llu bytes after the end of a block of %zu",
                (unsigned long long)(address + nbytes - block->begin - block->nbytes), (unsigned long long)nbytes,
                block->nbytes);
        else if (before->room) {
            uint64_t size = before->room + nbytes - 1;
            if (address < before->begin)
                add(s->fault, ", %llu bytes before a block of %llu", (unsigned long long)(before->begin - address),
                    (unsigned long long)size);
            else
                add(s->fault, ", %llu bytes after a block of %llu",
                    (unsigned long long)(address - before->begin - size), (unsigned long long)size);
        }
    }
    add(s->fault, ": %s", site_of(s, site));
    to_outside(s);
}

/* Called by the code of a kernel if an access is not where the last one of this instruction was. */
void coh_kernel_access(here *at, state *s, uintptr_t address, uint64_t nbytes, int64_t site) {
    range found;
    coh_block block;
    if (!lookup(s, at, address, nbytes, &found, &block)) outside(s, at, address, nbytes, site, &block);
    at->slots[site] = (slot){found.begin, found.nbytes - nbytes + 1};
}

/* Called by the code of a kernel for a copy, or for many bytes that are set. */
void coh_kernel_range(here *at, state *s, uintptr_t address, uint64_t nbytes, int64_t site) {
    range found;
    coh_block block;
    if (nbytes && !lookup(s, at, address, nbytes, &found, &block)) outside(s, at, address, nbytes, site, &block);
}

/* -- threads of a block */

static void look_at_clock(state *s) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec < s->until.tv_sec || (now.tv_sec == s->until.tv_sec && now.tv_nsec < s->until.tv_nsec)) return;
    begin_fault(s, NULL, TIMEOUT);
    add(s->fault, "it has not ended after %g s", limit);
    to_outside(s);
}

static void go_on_with(state *s, fiber *other) {
    fiber *self = s->current;
    if (other == self) return;
    s->current = other;
    coh_switch(&self->sp, other->sp);
}

static void any_other(state *s) {
    if (!s->n_ready) to_outside(s);
    if (++s->looks % 16384 == 0) look_at_clock(s);
    go_on_with(s, s->ready[below(s, s->n_ready)]);
}

static void set_countdown(state *s) {
    s->countdown = s->concurrent ? 1 + below(s, 2 * s->pause - 1) : PATIENCE;
}

/* Called by the code of a kernel at an operation on memory, now and then. */
void coh_kernel_pause(state *s) {
    if (++s->pauses == MANY_PAUSES) s->pause = RARE_PAUSE;
    set_countdown(s);
    if (s->concurrent)
        any_other(s);
    else
        look_at_clock(s);
}

static int start_block(state *s, uint64_t which) {
    if (s->next_block == s->blocks) return 0;
    uint32_t block = s->order[s->next_block++];
    const unsigned *grid = s->launch->grid;
    fiber *first = &s->fibers[which * s->threads];
    uint64_t n = s->concurrent ? s->threads : 1;
    memset(first->at.shared, POISON, s->program->shared_nbytes);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t *index = first[i].at.index;
        index[0] = block % grid[0];
        index[1] = block / grid[0] % grid[1];
        index[2] = block / grid[0] / grid[1];
    }
    return 1;
}

static void make_ready(state *s, fiber *f) {
    f->place = s->n_ready;
    s->ready[s->n_ready++] = f;
}

/* A thread waits at a barrier, or at its end, for the others of its block. Two that do so at different places never would
 * go on on a GPU, or worse. */
static void meet(state *s, int64_t site) {
    fiber *self = s->current;
    team *mine = self->team;
    if (mine->arrived && mine->site != site) {
        begin_fault(s, &self->at, LAUNCH_FAILURE);
        add(s->fault, "threads of a block wait at different barriers, or end while others wait: %s",
            site_of(s, site >= 0 ? site : mine->site));
        to_outside(s);
    }
    mine->site = site;
    fiber *last = s->ready[--s->n_ready];
    last->place = self->place;
    s->ready[self->place] = last;
    if (++mine->arrived == (int64_t)s->threads) {
        uint64_t which = mine - s->teams;
        mine->arrived = 0;
        if (site != END || start_block(s, which))
            for (uint64_t i = 0; i < s->threads; i++) make_ready(s, &s->fibers[which * s->threads + i]);
    }
    any_other(s);
}

/* Called by the code of a kernel. */
void coh_kernel_barrier(here *at, state *s, int64_t site) {
    (void)at;
    meet(s, site);
}

static state *running(void) { return ((stacks *)pthread_getspecific(stacks_key))->running; }

static void a_thread(void) {
    state *s = running();
    for (;;) {
        s->program->run(s->parameters, &s->current->at, s);
        meet(s, END);
    }
}

static void place_in_block(here *at, const coh_launch *launch, uint32_t thread) {
    at->thread[0] = thread % launch->block[0];
    at->thread[1] = thread / launch->block[0] % launch->block[1];
    at->thread[2] = thread / launch->block[0] / launch->block[1];
}

static void all_threads(void) {
    state *s = running();
    here *at = &s->current->at;
    while (start_block(s, 0)) {
        uint64_t skip = below(s, s->blocks * s->threads) % s->threads;
        for (uint64_t i = 0; i < s->threads; i++) {
            uint64_t j = i + skip;
            place_in_block(at, s->launch, s->turn[j < s->threads ? j : j - s->threads]);
            s->program->run(s->parameters, at, s);
        }
    }
    to_outside(s);
}

/* -- entry */

static int run(const program *self, void *const *parameters, const coh_launch *launch, coh_fault *fault, finder find,
               void *find_self) {
    fault->code = 0;
    state s = {.program = self, .parameters = parameters, .launch = launch, .fault = fault, .find = find,
               .find_self = find_self, .random = launch->seed * 2 + 1};
    for (int i = 0; i < 4; i++) next_random(&s);
    s.threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    s.blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    s.concurrent = self->cooperates || (s.threads * s.blocks <= SMALL && below(&s, MIXED) == 0);
    s.pause = self->cooperates ? PAUSE : RARE_PAUSE;
    clock_gettime(CLOCK_MONOTONIC, &s.until);
    s.until.tv_sec += (time_t)limit;
    s.until.tv_nsec += (long)((limit - (double)(time_t)limit) * 1e9);
    s.until.tv_sec += s.until.tv_nsec / 1000000000;
    s.until.tv_nsec %= 1000000000;

    uint64_t n_teams = s.concurrent && s.blocks > 1 ? TEAMS : 1, n = s.concurrent ? n_teams * s.threads : 1;
    uint64_t shared_nbytes = (self->shared_nbytes + 63) / 64 * 64, n_sites = self->n_sites + 1;
    stacks *mine = stacks_for(n);
    fiber *fibers = s.fibers = calloc(n, sizeof(fiber));
    fiber **ready = s.ready = calloc(n, sizeof(fiber *));
    uint32_t *order = s.order = malloc(s.blocks * sizeof(uint32_t)), *turn = s.turn = malloc(s.threads * sizeof(uint32_t));
    slot *slots = calloc(n_teams * n_sites, sizeof(slot));
    uint8_t *shared = aligned_alloc(64, n_teams * shared_nbytes + 64);
    if (!mine || !fibers || !ready || !order || !turn || !slots || !shared) {
        snprintf(fault->message, sizeof fault->message, "%s: no memory for a launch", self->name);
        fault->code = LAUNCH_FAILURE;
    } else {
        mine->running = &s;
        shuffle(&s, order, s.blocks);
        shuffle(&s, turn, s.threads);
        for (uint64_t i = 0; i < n; i++) {
            fiber *f = &fibers[i];
            uint64_t which = i / s.threads;
            f->team = &s.teams[which];
            f->stack = mine->begin + i * STACK;
            /* Stacks whose tops were multiples of a page apart would share few lines of the cache. */
            f->sp = prepared(f->stack, STACK - i % 31 * 128, s.concurrent ? a_thread : all_threads);
            f->at.shared = shared + which * shared_nbytes;
            f->at.slots = slots + which * n_sites;
            memcpy(f->at.block, launch->block, sizeof f->at.block);
            memcpy(f->at.grid, launch->grid, sizeof f->at.grid);
            place_in_block(&f->at, launch, i % s.threads);
        }
        if (s.concurrent)
            for (uint64_t which = 0; which < n_teams; which++) {
                start_block(&s, which);
                for (uint64_t i = 0; i < s.threads; i++) make_ready(&s, &fibers[which * s.threads + i]);
            }
        set_countdown(&s);
        s.current = s.concurrent ? ready[below(&s, s.n_ready)] : fibers;
        coh_switch(&s.outside, s.current->sp);
    }
    free(fibers);
    free(ready);
    free(order);
    free(turn);
    free(slots);
    free(shared);
    return fault->code;
}

typedef int (*coh_find_type)(uintptr_t address, coh_block *found);
static coh_find_type runtime_find;

static int by_runtime(void *self, uintptr_t address, coh_block *found) {
    (void)self;
    return runtime_find && runtime_find(address, found);
}

/* The runtime's coh_find. */
__attribute__((visibility("default"))) void kernels_set_find(coh_find_type find) { runtime_find = find; }

__attribute__((visibility("default"))) void kernels_set_limit(double seconds) { limit = seconds; }

/* A coh_run. */
__attribute__((visibility("default"))) int kernels_run(void *self, void *const *parameters, const coh_launch *launch,
                                                       coh_fault *fault) {
    return run(self, parameters, launch, fault, by_runtime, NULL);
}

/* -- launches outside a runtime: the memory is a table, sorted by address */

typedef struct {
    int64_t n;
    const coh_block *blocks;
} table;

static int in_table(void *self, uintptr_t address, coh_block *found) {
    const table *t = self;
    int64_t low = 0, high = t->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (t->blocks[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low || address - t->blocks[low - 1].begin >= t->blocks[low - 1].nbytes) return 0;
    *found = t->blocks[low - 1];
    return 1;
}

__attribute__((visibility("default"))) int kernels_run_in(void *self, void *const *parameters, const coh_launch *launch,
                                                          coh_fault *fault, const coh_block *blocks, int64_t n) {
    table memory = {n, blocks};
    return run(self, parameters, launch, fault, in_table, &memory);
}
