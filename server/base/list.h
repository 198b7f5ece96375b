/* list.h: an intrusive doubly linked list, the one of the daemon. As an LRU: what is used moves to
 * the front, what has to go is taken from the back. As a queue: add last, take the first. No
 * function allocates; all take constant time. */
#ifndef XN_LIST_H
#define XN_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* The head of a list, or a node in one. */
typedef struct xn_list {
    struct xn_list *next, *previous;
} xn_list;

/* An empty list, or a node in none, which may be removed too. */
static inline void xn_list_init(xn_list *list) {
    list->next = list->previous = list;
}

static inline bool xn_list_is_empty(const xn_list *list) {
    return list->next == list;
}

static inline void xn_list_add_first(xn_list *list, xn_list *node) {
    node->previous = list;
    node->next = list->next;
    list->next->previous = node;
    list->next = node;
}

static inline void xn_list_add_last(xn_list *list, xn_list *node) {
    xn_list_add_first(list->previous, node);
}

static inline void xn_list_remove(xn_list *node) {
    node->previous->next = node->next;
    node->next->previous = node->previous;
}

/* NULL: it is empty. */
static inline xn_list *xn_list_take_first(xn_list *list) {
    xn_list *first = list->next;
    if (first == list)
        return NULL;
    xn_list_remove(first);
    return first;
}

/* The struct of that type whose member the node is, of a list or of another structure. */
#define XN_ITEM(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

#endif
