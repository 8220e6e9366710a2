/* Threads and contexts, counts, and errors: what is common to all functions. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host.h"

__thread coh_thread coh_here;
atomic_int coh_closing;
atomic_int coh_visible = MOST_DEVICES;
atomic_int coh_lost[MOST_DEVICES];

static atomic_int initialised, forked, watching_forks;
static atomic_int occupied[MOST_DEVICES], contexts[MOST_DEVICES];
static atomic_ullong ticket = 1;
static _Atomic(coh_call *) calls;
static pthread_mutex_t text_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t coh_next_ticket(void) { return atomic_fetch_add(&ticket, 1) + 1; }

int coh_forked(void) { return forked; }

static void in_child(void) {
    if (initialised) forked = 1;
}

/* -- counts */

void coh_count(coh_call *call, long n) {
    if (!atomic_exchange(&call->known, 1)) {
        call->next = atomic_load(&calls);
        while (!atomic_compare_exchange_weak(&calls, &call->next, call)) {}
    }
    atomic_fetch_add(&call->n, n);
}

void coh_counts_clear(void) {
    for (coh_call *call = calls; call; call = call->next) call->n = 0;
}

/* Write lines "name count"; returns the number of bytes that this takes. */
size_t coh_counts(char *text, size_t room) {
    size_t length = 0;
    for (coh_call *call = calls; call; call = call->next)
        if (call->n)
            length += snprintf(text + length, length < room ? room - length : 0, "%s %ld\n", call->name, (long)call->n);
    return length;
}

/* -- notes: one line for each fault, missing function and misuse */

enum { NOTES_ROOM = 1 << 16 };
static char notes[NOTES_ROOM];
static size_t notes_length;

static void keep(const char *format, va_list arguments) {
    pthread_mutex_lock(&text_lock);
    size_t room = NOTES_ROOM - notes_length;
    int n = vsnprintf(notes + notes_length, room, format, arguments);
    if (n >= 0 && (size_t)n + 2 < room) {
        notes_length += n;
        notes[notes_length++] = '\n';
    }
    notes[notes_length] = 0;
    pthread_mutex_unlock(&text_lock);
}

void coh_note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    keep(format, arguments);
    va_end(arguments);
}

/* Take all notes. */
size_t coh_notes(char *text, size_t room) {
    pthread_mutex_lock(&text_lock);
    size_t length = notes_length;
    if (length < room) {
        memcpy(text, notes, length + 1);
        notes_length = 0;
        notes[0] = 0;
    }
    pthread_mutex_unlock(&text_lock);
    return length;
}

void coh_lose(int device, int code, const char *format, ...) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&coh_lost[device], &none, code)) return;
    va_list arguments;
    va_start(arguments, format);
    keep(format, arguments);
    va_end(arguments);
}

/* -- begin */

int coh_valid_device(int device) { return device >= 0 && device < coh_visible; }

void coh_set_occupied(int device, int on) { occupied[device] = on; }
int coh_has_context(int device) { return contexts[device]; }
void coh_forget_contexts(void) {
    for (int i = 0; i < MOST_DEVICES; i++) contexts[i] = occupied[i] = 0;
}

int coh_make_context(int device) {
    if (occupied[device]) return DEVICES_UNAVAILABLE;
    contexts[device] = 1;
    return SUCCESS;
}

int coh_last(int code) {
    if (code && code != NOT_READY) coh_here.last = code;
    return code;
}

int coh_begin(coh_call *call) {
    if (call->needs == ALWAYS) {
        if (!forked) coh_count(call, 1);
        return SUCCESS;
    }
    if (forked) return NOT_INITIALISED;
    if (coh_closing) return call->needs == RELEASE ? -1 : UNLOADING;
    coh_count(call, 1);
    if (!atomic_exchange(&watching_forks, 1)) pthread_atfork(NULL, NULL, in_child);
    if (call->needs == CONTEXT && !initialised) return NOT_INITIALISED;
    initialised = 1;
    if (!coh_visible && call->needs != RELEASE) return NO_DEVICE;
    coh_here.op_code = 0;
    coh_here.op_hang_s = 0;
    if (call->needs == CONTEXT && !coh_here.context) return INVALID_CONTEXT;
    if (call->needs >= RUNTIME) {
        if (call->needs != CONTEXT) {
            int code = coh_make_context(coh_here.device);
            if (code) return code;
            coh_here.context = coh_here.device + 1;
        }
        if (coh_lost[coh_here.device]) return coh_lost[coh_here.device];
    }
    return coh_apply_rules(call->name, call->groups);
}

/* What the driver library asks before cuInit. */
int coh_is_initialised(void) { return initialised && !forked; }
void coh_initialise(void) {
    if (!atomic_exchange(&watching_forks, 1)) pthread_atfork(NULL, NULL, in_child);
    initialised = 1;
}

void coh_set_visible(int n) { coh_visible = n; }
void coh_revive(void) {
    for (int i = 0; i < MOST_DEVICES; i++) coh_lost[i] = 0;
}
int coh_lost_code(int device) { return coh_lost[device]; }

/* Called in place of a function of CUDA that there is not. */
int coh_missing(const char *name) {
    coh_note("%d %s is not part of the CUDA runtime in host memory", NOT_SUPPORTED, name);
    return coh_last(NOT_SUPPORTED);
}

/* -- names of errors */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {4, "cudaErrorCudartUnloading", "driver shutting down"},
    {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {200, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
    {201, "cudaErrorDeviceUninitialized", "invalid device context"},
    {217, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
    {218, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {712, "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
    {713, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {714, "cudaErrorHardwareStackError", "hardware stack error"},
    {715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered"},
    {716, "cudaErrorMisalignedAddress", "misaligned address"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {800, "cudaErrorNotPermitted", "operation not permitted"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {903, "cudaErrorStreamCaptureUnmatched", "the capture was not initiated in this stream"},
    {905, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {999, "cudaErrorUnknown", "unknown error"},
};

static const char *named(int code, int text) {
    size_t n = sizeof errors / sizeof *errors;
    for (size_t i = 0; i < n; i++)
        if (errors[i].code == code) return text ? errors[i].text : errors[i].name;
    return text ? errors[n - 1].text : errors[n - 1].name;
}

const char *host_cudaGetErrorName(int code) { return named(code, 0); }
const char *host_cudaGetErrorString(int code) { return named(code, 1); }

int host_cudaGetLastError(void) {
    int code = coh_here.last;
    coh_here.last = coh_lost[coh_here.device]; /* such an error stays */
    return code;
}

int host_cudaPeekAtLastError(void) { return coh_here.last; }

int cuGetErrorName(int code, const char **name) {
    *name = named(code, 0);
    return SUCCESS;
}

int cuGetErrorString(int code, const char **text) {
    *text = named(code, 1);
    return SUCCESS;
}
