/* histogram.h: latencies in nanoseconds, counted in buckets of constant relative width (as
 * HdrHistogram does it): 64 a power of two, so a quantile is right within 1.6%. */
#ifndef XN_BENCH_HISTOGRAM_H
#define XN_BENCH_HISTOGRAM_H

#include <stdint.h>

#define XN_HISTOGRAM_SUB_BITS 6
#define XN_HISTOGRAM_BUCKETS ((64 - XN_HISTOGRAM_SUB_BITS + 1) << XN_HISTOGRAM_SUB_BITS)

typedef struct xn_histogram {
    uint64_t count, buckets[XN_HISTOGRAM_BUCKETS];
    int64_t max;
} xn_histogram;

static inline unsigned xn_histogram_bucket(uint64_t value) {
    unsigned bits = 63 - (unsigned)__builtin_clzll(value | 1);
    if (bits < XN_HISTOGRAM_SUB_BITS)
        return (unsigned)value;
    unsigned shift = bits - XN_HISTOGRAM_SUB_BITS;
    unsigned sub = (unsigned)(value >> shift) & ((1u << XN_HISTOGRAM_SUB_BITS) - 1);
    return ((shift + 1) << XN_HISTOGRAM_SUB_BITS) + sub;
}

/* The largest value that falls into a bucket. */
static inline uint64_t xn_histogram_top(unsigned bucket) {
    unsigned group = bucket >> XN_HISTOGRAM_SUB_BITS;
    uint64_t sub = bucket & ((1u << XN_HISTOGRAM_SUB_BITS) - 1);
    if (!group)
        return sub;
    return (((UINT64_C(1) << XN_HISTOGRAM_SUB_BITS) + sub + 1) << (group - 1)) - 1;
}

static inline void xn_histogram_add(xn_histogram *h, int64_t value) {
    value = value > 0 ? value : 0;
    h->buckets[xn_histogram_bucket((uint64_t)value)]++;
    h->count++;
    h->max = value > h->max ? value : h->max;
}

static inline void xn_histogram_merge(xn_histogram *to, const xn_histogram *from) {
    for (unsigned i = 0; i < XN_HISTOGRAM_BUCKETS; i++)
        to->buckets[i] += from->buckets[i];
    to->count += from->count;
    to->max = from->max > to->max ? from->max : to->max;
}

/* At least this share of the values is no larger; 0 without values. */
static inline int64_t xn_histogram_quantile(const xn_histogram *h, double share) {
    uint64_t wanted = (uint64_t)(share * (double)h->count + 0.5), seen = 0;
    for (unsigned i = 0; i < XN_HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen && seen >= wanted) {
            int64_t top = (int64_t)xn_histogram_top(i);
            return top < h->max ? top : h->max;
        }
    }
    return h->max;
}

#endif
