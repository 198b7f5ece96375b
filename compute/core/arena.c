/* arena.c: see arena.h. */
#include "arena.h"

#include "xn_mem.h"

enum { NONE = -1 };

static bool meet(const xn_arena_tensor *a, const xn_arena_tensor *b) {
    return a->first <= b->last && b->first <= a->last;
}

static int largest_left(const xn_arena_tensor *tensors, int count) {
    int best = NONE;
    for (int i = 0; i < count; i++)
        if (!tensors[i].placed && (best == NONE || tensors[i].bytes > tensors[best].bytes))
            best = i;
    return best;
}

/* *head: the placed ones in the order of their offsets. */
static bool place(xn_arena_tensor *tensors, int index, int *head, size_t *end) {
    xn_arena_tensor *t = &tensors[index];
    size_t offset = 0;
    for (int i = *head; i != NONE; i = tensors[i].next) {
        const xn_arena_tensor *other = &tensors[i];
        if (!meet(t, other))
            continue;
        if (other->offset >= offset && other->offset - offset >= t->bytes)
            break;
        if (other->offset + other->bytes > offset)
            offset = other->offset + other->bytes;
    }
    t->offset = offset;
    t->placed = true;
    int *at = head;
    while (*at != NONE && tensors[*at].offset <= offset)
        at = &tensors[*at].next;
    t->next = *at;
    *at = index;
    return xn_add_size(offset, t->bytes, end);
}

bool xn_arena_plan(xn_arena_tensor *tensors, int count, size_t alignment, size_t *total) {
    int head = NONE;
    size_t most = 0;
    for (int i = 0; i < count; i++) {
        size_t *bytes = &tensors[i].bytes;
        if (!xn_add_size(*bytes, alignment - 1, bytes))
            return false;
        *bytes = *bytes / alignment * alignment;
        tensors[i].placed = *bytes == 0;
    }
    for (int i = largest_left(tensors, count); i != NONE; i = largest_left(tensors, count)) {
        size_t end;
        if (!place(tensors, i, &head, &end))
            return false;
        most = end > most ? end : most;
    }
    *total = most;
    return true;
}
