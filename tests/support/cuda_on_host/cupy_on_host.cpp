/* Runs a launch of one of CuPy's kernels on the calling thread: its blocks one after the other, the threads of a block one
 * after the other too, or as fibers if they wait for each other. The seed gives the order of both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <vector>

#include "cupy_on_host.h"

__thread coh_dim3 coh_thread_index, coh_block_index, coh_block_size, coh_grid_size;
__thread coh_ranges coh_known;

namespace {

int (*find_block)(uintptr_t, coh_block *);
__thread int device, next_range;
__thread unsigned char *dynamic_shared;

struct stopped {
    coh_fault fault;
};

/* A permutation of 0 … n - 1. */
struct order {
    uint64_t n, first, step;
    order(uint64_t n, uint64_t seed) : n(n), first(seed % n), step(1 + (seed >> 20) % n) {
        while (gcd(step, n) != 1) step++;
    }
    uint64_t operator[](uint64_t i) const { return (first + (unsigned __int128)i * step) % n; }
    static uint64_t gcd(uint64_t a, uint64_t b) { return b ? gcd(b, a % b) : a; }
};

/* Of the current launch: indices of threads, and their order. */
thread_local std::vector<coh_dim3> thread_indices;
thread_local std::vector<unsigned> thread_order;

void lay_out_threads(unsigned n, uint64_t seed) {
    order permuted(n, seed);
    thread_indices.resize(n);
    thread_order.resize(n);
    unsigned x = coh_block_size.x, y = coh_block_size.y;
    for (unsigned i = 0; i < n; i++) {
        thread_indices[i] = {i % x, i / x % y, i / x / y};
        thread_order[i] = (unsigned)permuted[i];
    }
}

/* -- fibers */

enum waiting { RUNS, FOR_BLOCK, FOR_WARP, ENDED };
/* Not a power of two: all stacks would share few lines of the caches. */
const size_t STACK = (64 << 10) + 4096 + 5 * 64;
const unsigned MOST_THREADS = 1024;

struct fiber {
    jmp_buf at;
    waiting state;
    bool begun;
};
struct fibers {
    unsigned char *stacks;
    fiber all[MOST_THREADS];
    jmp_buf scheduler;
    ucontext_t main, entry;
    unsigned n, current;
    const coh_dim3 *indices;
    uint64_t given[MOST_THREADS];
    uint64_t gone[MOST_THREADS / 32]; /* exchanges that a warp has done */
    const coh_compiled *kernel;
    void *const *parameters;
    bool failed;
    coh_fault fault;
    fibers() {
        stacks = (unsigned char *)mmap(0, STACK * MOST_THREADS, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) abort();
    }
    ~fibers() { munmap(stacks, STACK * MOST_THREADS); }
};
thread_local fibers *block;
struct freed_at_exit {
    ~freed_at_exit() { delete block; }
};

void begin() {
    fibers *f = block;
    try {
        f->kernel->thread(f->parameters);
    } catch (const stopped &stop) {
        f->failed = true;
        f->fault = stop.fault;
    }
    f->all[f->current].state = ENDED;
    _longjmp(f->scheduler, 1);
}

__attribute__((noinline)) void wait_for(waiting state) {
    fibers *f = block;
    if (!f || !f->n) coh_stop(719, "a barrier in a kernel whose text has none");
    unsigned me = f->current;
    f->all[me].state = state;
    if (!_setjmp(f->all[me].at)) _longjmp(f->scheduler, 1);
    coh_thread_index = f->indices[me];
}

void enter(unsigned i) {
    fibers *f = block;
    f->current = i;
    coh_thread_index = f->indices[i];
    if (_setjmp(f->scheduler)) return;
    fiber &it = f->all[i];
    it.state = RUNS;
    if (it.begun) _longjmp(it.at, 1);
    it.begun = true;
    getcontext(&f->entry);
    f->entry.uc_stack.ss_sp = f->stacks + STACK * i;
    f->entry.uc_stack.ss_size = STACK;
    f->entry.uc_link = 0;
    makecontext(&f->entry, begin, 0);
    setcontext(&f->entry);
}

/* Lets go what waits, if all that live have come: whether any thread can go on. */
bool release(waiting state, unsigned first, unsigned end) {
    bool any = false;
    for (unsigned i = first; i < end; i++) {
        if (block->all[i].state == RUNS || (block->all[i].state != ENDED && block->all[i].state != state)) return false;
        any |= block->all[i].state == state;
    }
    if (!any) return false;
    for (unsigned i = first; i < end; i++)
        if (block->all[i].state == state) block->all[i].state = RUNS;
    return true;
}

void run_block_of_fibers(const unsigned *threads) {
    fibers *f = block;
    unsigned n = f->n;
    f->failed = false;
    for (unsigned i = 0; i < n; i++) f->all[i].state = RUNS, f->all[i].begun = false;
    memset(f->gone, 0, sizeof f->gone);
    for (;;) {
        bool live = false;
        for (unsigned k = 0; k < n; k++) {
            unsigned i = threads[k];
            if (f->all[i].state != RUNS) continue;
            enter(i);
            if (f->failed) throw stopped{f->fault};
        }
        bool goes_on = false;
        for (unsigned i = 0; i < n; i += 32) goes_on |= release(FOR_WARP, i, i + 32 < n ? i + 32 : n);
        if (!goes_on) goes_on = release(FOR_BLOCK, 0, n);
        for (unsigned i = 0; i < n; i++) live |= f->all[i].state != ENDED;
        if (!live) return;
        if (!goes_on) coh_stop(719, "threads of a block wait for each other for ever: not all come to the same barrier");
    }
}

} /* namespace */

void coh_stop(int code, const char *format, ...) {
    stopped stop;
    stop.fault.code = code;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(stop.fault.message, sizeof stop.fault.message, format, arguments);
    va_end(arguments);
    if (n > 0 && n < (int)sizeof stop.fault.message)
        snprintf(stop.fault.message + n, sizeof stop.fault.message - n, " (block %u, thread %u)", coh_block_index.x,
                 coh_thread_index.x);
    throw stop;
}

void coh_look_up(uintptr_t address, size_t nbytes) {
    coh_block found;
    if (!find_block || !find_block(address, &found))
        coh_stop(700, "%zu bytes at %#zx are in no live memory of a device", nbytes, (size_t)address);
    if (address - found.begin + nbytes > found.nbytes)
        coh_stop(700, "%zu bytes at %#zx end after their block of %zu bytes at %#zx", nbytes, (size_t)address, found.nbytes,
                 (size_t)found.begin);
    if (found.kind == COH_DEVICE && found.device != device)
        coh_stop(700, "%zu bytes at %#zx are on device %d, the kernel on device %d", nbytes, (size_t)address, found.device,
                 device);
    coh_known.begin[next_range] = found.begin;
    coh_known.end[next_range] = found.begin + found.nbytes;
    next_range = (next_range + 1) % 4;
}

void *coh_dynamic_shared() { return dynamic_shared; }
void coh_block_barrier() { wait_for(FOR_BLOCK); }
void coh_warp_barrier() { wait_for(FOR_WARP); }

uint64_t coh_exchange(uint64_t given, int lane) {
    unsigned me = block->current, from = me / 32 * 32 + (unsigned)lane;
    block->given[me] = given;
    wait_for(FOR_WARP);
    uint64_t got = from < block->n ? block->given[from] : given;
    wait_for(FOR_WARP);
    return got;
}

unsigned coh_vote(bool given) {
    unsigned me = block->current, first = me / 32 * 32, votes = 0;
    block->given[me] = given;
    wait_for(FOR_WARP);
    for (unsigned i = first; i < first + 32 && i < block->n; i++)
        if (block->all[i].state != ENDED && block->given[i]) votes |= 1u << (i - first);
    wait_for(FOR_WARP);
    return votes;
}

extern "C" void coh_cupy_find(int (*find)(uintptr_t, coh_block *)) { find_block = find; }

/* A coh_run; `self` is the coh_compiled of a kernel. */
extern "C" int coh_cupy_run(void *self, void *const *parameters, const coh_launch *launch, coh_fault *fault) {
    static thread_local freed_at_exit freed;
    (void)freed;
    const coh_compiled *kernel = (const coh_compiled *)self;
    unsigned threads = launch->block[0] * launch->block[1] * launch->block[2];
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    memset(&coh_known, 0, sizeof coh_known);
    next_range = 0;
    device = launch->device;
    coh_block_size = {launch->block[0], launch->block[1], launch->block[2]};
    coh_grid_size = {launch->grid[0], launch->grid[1], launch->grid[2]};
    coh_thread_index = coh_block_index = {0, 0, 0};
    std::vector<unsigned char> shared(launch->shared_nbytes + 16);
    dynamic_shared = (unsigned char *)(((uintptr_t)shared.data() + 15) / 16 * 16);
    try {
        if (!threads || threads > MOST_THREADS || !blocks)
            coh_stop(719, "a launch of %zu blocks of %u threads", (size_t)blocks, threads);
        for (int i = 0; i < kernel->n_parameters; i++)
            if (kernel->pointers >> i & 1)
                if (uintptr_t address = *(uintptr_t *)parameters[i]) coh_look_up(address, 1);
        if (kernel->waits && !block) block = new fibers();
        order block_order(blocks, launch->seed);
        lay_out_threads(threads, launch->seed >> 7);
        const coh_dim3 *indices = thread_indices.data();
        const unsigned *threads_in_order = thread_order.data();
        for (uint64_t k = 0; k < blocks; k++) {
            uint64_t b = block_order[k];
            coh_block_index = {(unsigned)(b % coh_grid_size.x), (unsigned)(b / coh_grid_size.x % coh_grid_size.y),
                               (unsigned)(b / coh_grid_size.x / coh_grid_size.y)};
            if (!kernel->waits) {
                for (unsigned i = 0; i < threads; i++) {
                    coh_thread_index = indices[threads_in_order[i]];
                    kernel->thread(parameters);
                }
                continue;
            }
            memset(dynamic_shared, 0xA5, launch->shared_nbytes);
            block->n = threads;
            block->indices = indices;
            block->kernel = kernel;
            block->parameters = parameters;
            run_block_of_fibers(threads_in_order);
            block->n = 0;
        }
    } catch (const stopped &stop) {
        if (block) block->n = 0;
        *fault = stop.fault;
        return stop.fault.code;
    }
    return 0;
}
