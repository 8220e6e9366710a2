/* nvCOMP's batched functions that need a GPU, as work on a stream of the runtime in host memory.
 *
 * Each has the type of the function that it stands for: the compiler compares it with the header. Sizes and alignments are
 * asked of the library itself. What a header calls undefined is a fault. A frame is decoded or encoded by a function of the
 * tests (`coh_frame`), when the stream gets to it.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "api.h"
#include "nvcomp.h"

namespace {

/* Returns the bytes that a frame made; -1 if it fails, -2 if it sets fault->code, -3 if it fails and does not report it.
 * `target` is poisoned before. */
typedef int64_t (*coh_frame)(int encodes, int algorithm, uint64_t index, const void *source, uint64_t nbytes, void *target,
                             uint64_t room, coh_fault *fault);

int (*find_block)(uintptr_t, coh_block *);
int (*enqueue)(void *, coh_work, void *);
coh_frame frame;
void *library;

const int GARBAGE = 0x99;

struct stopped {
    coh_fault fault;
};
[[noreturn]] void stop(int code, const char *format, ...) {
    stopped stop;
    stop.fault.code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(stop.fault.message, sizeof stop.fault.message, format, arguments);
    va_end(arguments);
    throw stop;
}

const char *const NAMES[] = {"Zstd", "LZ4", "Snappy", "Deflate", "Gdeflate"};
/* "Chunk sizes must not exceed", in the descriptions of the functions. */
const size_t LARGEST_ENCODED[] = {16000000, 1 << 24, 1 << 24, 1 << 16, 1 << 16};
const size_t LARGEST_DECODED[] = {
    nvcompZstdDecompressionMaxAllowedChunkSize,    nvcompLZ4DecompressionMaxAllowedChunkSize,
    nvcompSnappyDecompressionMaxAllowedChunkSize,  nvcompDeflateDecompressionMaxAllowedChunkSize,
    nvcompGdeflateDecompressionMaxAllowedChunkSize,
};

template <class Options> struct batch {
    bool encodes;
    int algorithm;
    const size_t *sources, *source_nbytes, *targets, *target_nbytes;
    size_t *produced;
    nvcompStatus_t *statuses;
    size_t n, largest, temp_nbytes;
    void *temp;
    Options options;

    template <class F> F real(const char *suffix) const {
        char name[100];
        snprintf(name, sizeof name, "nvcompBatched%s%s%s", NAMES[algorithm], encodes ? "Compress" : "Decompress", suffix);
        return (F)dlsym(library, name);
    }
    nvcompAlignmentRequirements_t alignments() const {
        nvcompAlignmentRequirements_t found;
        auto query = real<nvcompStatus_t (*)(Options, nvcompAlignmentRequirements_t *)>("GetRequiredAlignments");
        if (query(options, &found)) stop(719, "nvCOMP's %s: alignments of these options are not known", NAMES[algorithm]);
        return found;
    }
    size_t temp_needed(size_t largest, size_t total) const {
        if (encodes && algorithm == 0) return 4096 * n + 3 * total;
        size_t found;
        auto query = real<nvcompStatus_t (*)(size_t, size_t, Options, size_t *, size_t, cudaStream_t)>("GetTempSize");
        if (query(n, largest, options, &found, total, 0)) stop(719, "nvCOMP's %s: no size of scratch", NAMES[algorithm]);
        return found;
    }
    size_t room() const {
        size_t found;
        auto query = real<nvcompStatus_t (*)(size_t, Options, size_t *)>("GetMaxOutputChunkSize");
        if (query(largest, options, &found)) stop(719, "nvCOMP's %s: no largest output", NAMES[algorithm]);
        return found;
    }
    void run();
};


/* Memory that the batch may use; all of it is of one device, or page-locked. */
struct memory {
    const char *algorithm;
    int device;
    void check(uintptr_t begin, size_t nbytes, size_t alignment, const char *what, size_t index) {
        coh_block found;
        if (begin % alignment)
            stop(716, "nvCOMP's %s: %s %zu at %#zx is not aligned to %zu bytes", algorithm, what, index, (size_t)begin,
                 alignment);
        if (!nbytes) return;
        if (!find_block(begin, &found))
            stop(700, "nvCOMP's %s: %s %zu at %#zx is in no live memory", algorithm, what, index, (size_t)begin);
        if (begin - found.begin + nbytes > found.nbytes)
            stop(700, "nvCOMP's %s: %s %zu, %zu bytes at %#zx, ends after its block of %zu bytes at %#zx", algorithm, what,
                 index, nbytes, (size_t)begin, found.nbytes, (size_t)found.begin);
        if (found.kind != COH_DEVICE) return;
        if (device >= 0 && found.device != device)
            stop(700, "nvCOMP's %s: %s %zu is on device %d, others on device %d", algorithm, what, index, found.device, device);
        device = found.device;
    }
};

struct range {
    uintptr_t begin, end;
    bool operator<(const range &other) const { return begin < other.begin; }
};

template <class Options> void batch<Options>::run() {
    const char *name = NAMES[algorithm];
    memory memory = {name, -1};
    memory.check((uintptr_t)sources, 8 * n, 8, "the array of sources", 0);
    memory.check((uintptr_t)source_nbytes, 8 * n, 8, "the array of sizes of sources", 0);
    memory.check((uintptr_t)targets, 8 * n, 8, "the array of targets", 0);
    if (!encodes) memory.check((uintptr_t)target_nbytes, 8 * n, 8, "the array of sizes of targets", 0);
    memory.check((uintptr_t)produced, 8 * n, 8, "the array of produced sizes", 0);
    if (statuses) memory.check((uintptr_t)statuses, 4 * n, 4, "the array of statuses", 0);
    std::vector<size_t> from(sources, sources + n), nbytes(source_nbytes, source_nbytes + n), to(targets, targets + n);
    size_t most = encodes ? room() : 0;
    std::vector<size_t> rooms(n, most);
    if (!encodes) rooms.assign(target_nbytes, target_nbytes + n);
    const std::vector<size_t> &decoded = encodes ? nbytes : rooms;
    size_t largest_frame = *std::max_element(decoded.begin(), decoded.end()), total = 0;
    for (size_t size : decoded) total += size;
    size_t limit = encodes ? LARGEST_ENCODED[algorithm] : LARGEST_DECODED[algorithm];
    if (largest_frame > limit) stop(719, "nvCOMP's %s: a frame of %zu bytes, %zu at most", name, largest_frame, limit);
    if (encodes && largest_frame > largest)
        stop(719, "nvCOMP's %s: a frame of %zu bytes where %zu were named the most", name, largest_frame, largest);
    nvcompAlignmentRequirements_t aligned = alignments();
    std::vector<range> written = {{(uintptr_t)produced, (uintptr_t)(produced + n)}}, read;
    if (statuses) written.push_back({(uintptr_t)statuses, (uintptr_t)(statuses + n)});
    if (temp_nbytes) written.push_back({(uintptr_t)temp, (uintptr_t)temp + temp_nbytes});
    for (const size_t *array : {sources, source_nbytes, targets, target_nbytes})
        if (array) read.push_back({(uintptr_t)array, (uintptr_t)(array + n)});
    for (size_t i = 0; i < n; i++) {
        if (!nbytes[i] || !rooms[i]) stop(719, "nvCOMP's %s: frame %zu has no bytes", name, i);
        memory.check(from[i], nbytes[i], aligned.input, "source", i);
        memory.check(to[i], rooms[i], aligned.output, "target", i);
        read.push_back({from[i], from[i] + nbytes[i]});
        written.push_back({to[i], to[i] + rooms[i]});
    }
    size_t needed = temp_needed(largest_frame, total);
    if (temp_nbytes < needed) stop(719, "nvCOMP's %s: %zu bytes of scratch, %zu are needed", name, temp_nbytes, needed);
    if (temp_nbytes) memory.check((uintptr_t)temp, temp_nbytes, aligned.temp, "scratch", 0);
    std::sort(written.begin(), written.end());
    for (size_t i = 1; i < written.size(); i++)
        if (written[i].begin < written[i - 1].end)
            stop(719, "nvCOMP's %s: the batch writes to %#zx twice", name, (size_t)written[i].begin);
    for (const range &it : read) {
        auto after = std::lower_bound(written.begin(), written.end(), range{it.end, 0});
        if (after != written.begin() && (after - 1)->end > it.begin)
            stop(719, "nvCOMP's %s: the batch writes what it reads at %#zx", name, (size_t)it.begin);
    }
    if (temp_nbytes) memset(temp, GARBAGE, temp_nbytes);
    for (size_t i = 0; i < n; i++) {
        coh_fault fault = {0, ""};
        memset((void *)to[i], GARBAGE, rooms[i]);
        int64_t made = frame(encodes, algorithm, i, (const void *)from[i], nbytes[i], (void *)to[i], rooms[i], &fault);
        if (fault.code || made == -2) throw stopped{fault};
        if (made > (int64_t)rooms[i])
            stop(719, "nvCOMP's %s: frame %zu made %zu bytes where %zu have room", name, i, (size_t)made, rooms[i]);
        /* What is in the output of a frame that fails, and how large it says to be, is not defined. */
        if (made < 0) memset((void *)to[i], GARBAGE, rooms[i]);
        if (made == -3) continue;
        produced[i] = (size_t)made;
        if (statuses) statuses[i] = made >= 0 ? nvcompSuccess : encodes ? nvcompErrorCannotCompress : nvcompErrorCannotDecompress;
    }
}

template <class Options> void work(void *self, coh_fault *fault) {
    batch<Options> *it = (batch<Options> *)self;
    try {
        it->run();
    } catch (const stopped &stop) {
        *fault = stop.fault;
    }
    delete it;
}

template <class Options> nvcompStatus_t begin(const batch<Options> &given, cudaStream_t stream) {
    if (!given.n || !given.sources || !given.source_nbytes || !given.targets || !given.produced ||
        (!given.encodes && !given.target_nbytes))
        return nvcompErrorInvalidValue;
    auto *it = new batch<Options>(given);
    if (enqueue(stream, work<Options>, it)) {
        delete it;
        return nvcompErrorCudaError;
    }
    return nvcompSuccess;
}

} /* namespace */

#define BOTH(INDEX, NAME)                                                                                                 \
    extern "C" nvcompStatus_t coh_##NAME##DecompressAsync(                                                                \
        const void *const *sources, const size_t *source_nbytes, const size_t *target_nbytes, size_t *produced, size_t n, \
        void *temp, size_t temp_nbytes, void *const *targets, nvcompBatched##NAME##DecompressOpts_t options,              \
        nvcompStatus_t *statuses, cudaStream_t stream) {                                                                  \
        return begin<nvcompBatched##NAME##DecompressOpts_t>(                                                              \
            {false, INDEX, (const size_t *)sources, source_nbytes, (const size_t *)targets, target_nbytes, produced,      \
             statuses, n, 0, temp_nbytes, temp, options},                                                                 \
            stream);                                                                                                      \
    }                                                                                                                     \
    static_assert(std::is_same_v<decltype(coh_##NAME##DecompressAsync), decltype(nvcompBatched##NAME##DecompressAsync)>,  \
                  #NAME);                                                                                                 \
    extern "C" nvcompStatus_t coh_##NAME##CompressAsync(                                                                  \
        const void *const *sources, const size_t *source_nbytes, size_t largest, size_t n, void *temp,                    \
        size_t temp_nbytes, void *const *targets, size_t *produced, nvcompBatched##NAME##CompressOpts_t options,          \
        nvcompStatus_t *statuses, cudaStream_t stream) {                                                                  \
        return begin<nvcompBatched##NAME##CompressOpts_t>(                                                                \
            {true, INDEX, (const size_t *)sources, source_nbytes, (const size_t *)targets, nullptr, produced, statuses,   \
             n, largest, temp_nbytes, temp, options},                                                                     \
            stream);                                                                                                      \
    }                                                                                                                     \
    static_assert(std::is_same_v<decltype(coh_##NAME##CompressAsync), decltype(nvcompBatched##NAME##CompressAsync)>, #NAME);
BOTH(0, Zstd)
BOTH(1, LZ4)
BOTH(2, Snappy)
BOTH(3, Deflate)
BOTH(4, Gdeflate)

/* The only size that the library does not tell without a GPU. */
extern "C" nvcompStatus_t coh_ZstdCompressGetTempSize(size_t n, size_t largest, nvcompBatchedZstdCompressOpts_t,
                                                      size_t *temp_nbytes, size_t total, cudaStream_t) {
    if (!n || !largest || largest > LARGEST_ENCODED[0] || !temp_nbytes || total > n * largest) return nvcompErrorInvalidValue;
    *temp_nbytes = 4096 * n + 3 * total;
    return nvcompSuccess;
}
static_assert(std::is_same_v<decltype(coh_ZstdCompressGetTempSize), decltype(nvcompBatchedZstdCompressGetTempSize)>, "");

extern "C" void coh_nvcomp_begin(int (*find)(uintptr_t, coh_block *), int (*enqueues)(void *, coh_work, void *),
                                 coh_frame frames, void *nvcomp) {
    find_block = find;
    enqueue = enqueues;
    frame = frames;
    library = nvcomp;
}
