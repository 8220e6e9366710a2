/* Kernels for the tests of the runtime: each checks its memory as a kernel's harness does. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../../support/cuda_on_host/api.h"

static int checked(uint64_t address, uint64_t nbytes, const coh_launch *launch, coh_fault *fault) {
    coh_block block;
    if (!coh_find(address, &block) || block.kind != COH_DEVICE || block.device != launch->device ||
        address + nbytes > block.begin + block.nbytes) {
        fault->code = 700;
        snprintf(fault->message, sizeof fault->message, "%lu bytes at %#lx", (unsigned long)nbytes, (unsigned long)address);
    }
    return fault->code;
}

/* fill(address, nbytes, value) */
static int fill(void *self, void *const *parameters, const coh_launch *launch, coh_fault *fault) {
    uint64_t address = *(uint64_t *)parameters[0], nbytes = *(uint64_t *)parameters[1];
    (void)self;
    if (!checked(address, nbytes, launch, fault)) memset((void *)address, *(uint8_t *)parameters[2], nbytes);
    return fault->code;
}

/* double_into(target, source, n) */
static int double_into(void *self, void *const *parameters, const coh_launch *launch, coh_fault *fault) {
    uint64_t to = *(uint64_t *)parameters[0], from = *(uint64_t *)parameters[1], n = *(uint64_t *)parameters[2];
    (void)self;
    if (checked(to, n, launch, fault) || checked(from, n, launch, fault)) return fault->code;
    for (uint64_t i = 0; i < n; i++) ((uint8_t *)to)[i] = 2 * ((uint8_t *)from)[i];
    return 0;
}

/* past_the_end(address): writes one byte behind, where no check is made */
static int past_the_end(void *self, void *const *parameters, const coh_launch *launch, coh_fault *fault) {
    (void)self, (void)launch, (void)fault;
    **(uint8_t **)parameters[0] = 1;
    return 0;
}

int resolve(const void *image, const char *entry, coh_kernel *found) {
    static const uint32_t nbytes[] = {8, 8, 8};
    if (!strstr(image, entry)) return 500;
    found->run = !strcmp(entry, "fill") ? fill : !strcmp(entry, "double_into") ? double_into : past_the_end;
    found->n_parameters = found->run == past_the_end ? 1 : 3;
    memcpy(found->parameter_nbytes, nbytes, sizeof nbytes);
    return 0;
}
