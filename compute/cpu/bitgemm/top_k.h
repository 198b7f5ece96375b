/* top_k.h: steps of kind top_k: the k best of a row of values, and where they stand.
 *
 *   top_k.c        plans and runs
 *   top_k_scan.c   some rows of a dense layer, or values, and some queries
 *   top_k_best.c   the best so far
 *
 * With weights, each image is a query, and each filter, called a row here, has a value: the
 * epilogue of their dot. Rows are cut into parts, which threads take; each thread keeps the k best
 * of what it has seen for each query, and the lists are merged at the end. Since the order of
 * (value, position) is total, the answer does not depend on who saw what, or when.
 *
 * What makes that fast: nearly no row is among the best. Where all rows have one factor, bias and
 * slope, a value is a function of the dot, and if it never turns, a row is dismissed by comparing
 * the bits in which it differs with a limit, which the kernels of bitgemm do for a vector of
 * queries (their `search`). Otherwise values are computed of all dots. */
#ifndef XN_CPU_TOP_K_H
#define XN_CPU_TOP_K_H

#include "bitgemm.h"
#include "path.h"

/* ---- top_k_best.c ---- */

/* A value and its position as one number, the better the smaller: values in order, NaN last, then
 * the position. */
typedef uint64_t xn_cpu_ranked;
#define XN_CPU_RANKED_NONE UINT64_MAX /* worse than all that are */

/* The upper half. -0 counts as 0. */
uint32_t xn_cpu_rank_of(float value, bool largest);
float xn_cpu_rank_value(uint32_t rank, bool largest);

static inline xn_cpu_ranked xn_cpu_ranked_at(uint32_t rank, int32_t position) {
    return (uint64_t)rank << 32 | (uint32_t)position;
}

/* A heap of the k best so far, the worst first; all NONE at the beginning. */
void xn_cpu_best_begin(xn_cpu_ranked *heap, int32_t k);
void xn_cpu_best_push(xn_cpu_ranked *heap, int32_t k, xn_cpu_ranked one);
/* Sorts it, the best first: no heap any more. */
void xn_cpu_best_sort(xn_cpu_ranked *heap, int32_t k);

/* ---- a plan and a run ---- */

/* Arrays in scratch. */
enum {
    XN_CPU_TOP_K_QUERIES, /* shared: uint32 [group][words], with all bits turned where reversed */
    XN_CPU_TOP_K_LANES,   /* shared: the same as lanes of the kernels */
    XN_CPU_TOP_K_RANKS,   /* shared: uint32 [bits + 1]: rank of the value, by bits that differ */
    XN_CPU_TOP_K_STARTED, /* shared: bool [threads]: it has begun its lists of the group */
    XN_CPU_TOP_K_HEAPS,   /* xn_cpu_ranked [group][k] */
    XN_CPU_TOP_K_LIMITS,  /* int32 [group]: the most bits that a row among the best differs in */
    XN_CPU_TOP_K_COUNTS,  /* int32 [block][query_lanes]: bits that differ */
    XN_CPU_TOP_K_NEAR,    /* int32 [block]: rows that may be among the best */
    XN_CPU_TOP_K_FACTORS, /* float [block], */
    XN_CPU_TOP_K_BIASES,  /* float [block]: of the rows; */
    XN_CPU_TOP_K_VALUES,  /* float [block] */
    XN_CPU_TOP_K_ARRAYS
};

/* A plan's. */
typedef struct xn_cpu_top_k_state {
    int32_t words; /* of a row and a query; 0 without weights */
    int32_t block; /* rows at a time */
    int32_t group; /* queries between two passes over the rows, a multiple of query_lanes */
    size_t offset[XN_CPU_TOP_K_ARRAYS];
} xn_cpu_top_k_state;

/* A group of queries. */
typedef struct xn_cpu_top_k_job {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_cpu_top_k_state *state;
    const xn_cpu_bitgemm_kernels *kernels;
    const xn_cpu_image *images; /* the queries */
    int32_t queries;
    int32_t share; /* of them a unit */
    int64_t parts; /* of the rows */
    bool by_limit; /* values are a function of the dot that never turns */
    bool reversed; /* it is the most bits that differ that are best */
} xn_cpu_top_k_job;

enum { XN_CPU_TOP_K_PART = 4096 /* rows of a unit */ };

static inline void *xn_cpu_top_k_shared(const xn_cpu_top_k_job *j, int array) {
    return xn_cpu_shared(j->plan) + j->state->offset[array];
}

static inline void *xn_cpu_top_k_own(const xn_cpu_top_k_job *j, int thread, int array) {
    return xn_cpu_slice(j->plan, thread) + j->state->offset[array];
}

static inline xn_cpu_ranked *xn_cpu_top_k_heap(const xn_cpu_top_k_job *j, int thread,
                                               int32_t query) {
    return (xn_cpu_ranked *)xn_cpu_top_k_own(j, thread, XN_CPU_TOP_K_HEAPS) +
           (int64_t)query * j->plan->step.attributes.k;
}

/* ---- top_k_scan.c ---- */

/* The value of a row: the epilogue of a dot. */
float xn_cpu_top_k_value(const xn_cpu_epilogue *e, int32_t row, int32_t dot, float factor,
                         float bias);
/* A task (parallel.h): a part of the rows for a share of the queries. */
void xn_cpu_top_k_scan(void *job, int64_t unit, int thread);

#endif
