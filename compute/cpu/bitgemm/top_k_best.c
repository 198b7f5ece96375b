/* top_k_best.c: the k best, as a heap whose top is the worst of them; see top_k.h. */
#include "top_k.h"

#include <math.h>
#include <string.h>

uint32_t xn_cpu_rank_of(float value, bool largest) {
    const float given = value + 0.0f; /* -0 becomes 0 */
    uint32_t bits;
    if (isnan(value))
        return UINT32_MAX;
    memcpy(&bits, &given, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u; /* in the order of the values */
    return largest ? ~bits : bits;
}

float xn_cpu_rank_value(uint32_t rank, bool largest) {
    float value;
    if (rank == UINT32_MAX)
        return NAN;
    uint32_t bits = largest ? ~rank : rank;
    bits = bits >> 31 ? bits & 0x7fffffffu : ~bits;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void xn_cpu_best_begin(xn_cpu_ranked *heap, int32_t k) {
    memset(heap, 0xff, (size_t)k * sizeof *heap);
}

/* Puts `one` at the top of the first n and lets it sink. */
static void sink(xn_cpu_ranked *heap, int32_t n, xn_cpu_ranked one) {
    int32_t at = 0;
    for (int32_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= one)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = one;
}

void xn_cpu_best_push(xn_cpu_ranked *heap, int32_t k, xn_cpu_ranked one) {
    if (one < heap[0])
        sink(heap, k, one);
}

void xn_cpu_best_sort(xn_cpu_ranked *heap, int32_t k) {
    for (int32_t n = k - 1; n > 0; n--) {
        const xn_cpu_ranked last = heap[n];
        heap[n] = heap[0];
        sink(heap, n, last);
    }
}
