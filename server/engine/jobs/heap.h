/* heap.h: a pairing heap (Fredman, Sedgewick, Sleator, Tarjan, 1986) whose nodes lie in what they
 * order, so that nothing is allocated. push O(1), remove O(log n) amortised. */
#ifndef XN_HEAP_H
#define XN_HEAP_H

#include <stdbool.h>

typedef struct xn_heap_node xn_heap_node;
struct xn_heap_node {
    xn_heap_node *child;    /* the first; the others follow by next */
    xn_heap_node *next;     /* of the same parent */
    xn_heap_node *previous; /* of the same parent; of the first, the parent; NULL: it is the first
                               of the heap, or in none */
};

/* A strict order. A node's place in it may change only while the node is in no heap. */
typedef bool xn_heap_before(const xn_heap_node *a, const xn_heap_node *b);

typedef struct xn_heap {
    xn_heap_node *first; /* NULL: it is empty */
    xn_heap_before *before;
} xn_heap;

void xn_heap_push(xn_heap *heap, xn_heap_node *node);
void xn_heap_remove(xn_heap *heap, xn_heap_node *node); /* which is in it */

#endif
