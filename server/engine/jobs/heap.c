/* heap.c: see heap.h. */
#include "heap.h"

#include <stddef.h>

/* Both are first of their heaps; the later one becomes the first child of the other. */
static xn_heap_node *merge(const xn_heap *heap, xn_heap_node *a, xn_heap_node *b) {
    if (!a || !b)
        return a ? a : b;
    if (heap->before(b, a)) {
        xn_heap_node *swap = a;
        a = b;
        b = swap;
    }
    b->previous = a;
    b->next = a->child;
    if (b->next)
        b->next->previous = b;
    a->child = b;
    return a;
}

static void detach(xn_heap_node *node) {
    node->next = node->previous = NULL;
}

/* One heap of children: neighbours are merged in pairs, then the pairs from the last to the first.
 */
static xn_heap_node *merge_children(const xn_heap *heap, xn_heap_node *child) {
    xn_heap_node *pairs = NULL, *first = NULL;
    while (child) {
        xn_heap_node *a = child, *b = child->next;
        child = b ? b->next : NULL;
        detach(a);
        if (b)
            detach(b);
        a = merge(heap, a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        xn_heap_node *next = pairs->next;
        detach(pairs);
        first = merge(heap, first, pairs);
        pairs = next;
    }
    return first;
}

void xn_heap_push(xn_heap *heap, xn_heap_node *node) {
    *node = (xn_heap_node){0};
    heap->first = merge(heap, heap->first, node);
}

void xn_heap_remove(xn_heap *heap, xn_heap_node *node) {
    xn_heap_node *below = merge_children(heap, node->child);
    if (node == heap->first) {
        heap->first = below;
    } else {
        *(node->previous->child == node ? &node->previous->child : &node->previous->next) =
            node->next;
        if (node->next)
            node->next->previous = node->previous;
        heap->first = merge(heap, heap->first, below);
    }
    *node = (xn_heap_node){0};
}
