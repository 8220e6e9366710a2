/* Numbers for streams and events. The one that was vacated last is given out first, as an allocator does with addresses. */
#include <stdlib.h>

#include "host.h"

enum { STEP = 0x100 };

void *coh_handle_new(coh_handles *handles, void *object) {
    size_t i = handles->n_vacant ? handles->vacant[--handles->n_vacant] : handles->n++;
    if (i >= handles->room) {
        handles->room = handles->room ? 2 * handles->room : 64;
        handles->objects = realloc(handles->objects, handles->room * sizeof(void *));
    }
    handles->objects[i] = object;
    return (void *)(handles->first + i * STEP);
}

static size_t place(coh_handles *handles, void *handle) {
    uintptr_t offset = (uintptr_t)handle - handles->first;
    size_t i = offset / STEP;
    return (uintptr_t)handle >= handles->first && offset % STEP == 0 && i < handles->n ? i : (size_t)-1;
}

void *coh_handle_object(coh_handles *handles, void *handle) {
    size_t i = place(handles, handle);
    return i == (size_t)-1 ? NULL : handles->objects[i];
}

void coh_handle_close(coh_handles *handles, void *handle) { handles->objects[place(handles, handle)] = NULL; }

void coh_handle_vacate(coh_handles *handles, void *handle) {
    if (handles->n_vacant == handles->room_vacant) {
        handles->room_vacant = handles->room_vacant ? 2 * handles->room_vacant : 64;
        handles->vacant = realloc(handles->vacant, handles->room_vacant * sizeof(size_t));
    }
    handles->vacant[handles->n_vacant++] = place(handles, handle);
}
