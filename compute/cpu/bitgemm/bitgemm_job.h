/* bitgemm_job.h: a run of the path bitgemm, as its phases see it (bitgemm.c,
 * bitgemm_dots.c). */
#ifndef XN_CPU_BITGEMM_JOB_H
#define XN_CPU_BITGEMM_JOB_H

#include "bitgemm.h"
#include "epilogue.h"
#include "path.h"
#include "thresholds.h"

#define XN_CPU_BITGEMM_BLOCK                                                                       \
    XN_CPU_MOST_FILTERS /* those of a unit are a multiple: a word of bits */

/* Arrays in scratch. */
enum {
    XN_CPU_BITGEMM_PLANES,     /* shared: uint32 [wave][G][words][H*W] */
    XN_CPU_BITGEMM_MEANS,      /* shared: float [wave][G][H*W], with K: means of |I|, or sums */
    XN_CPU_BITGEMM_KS,         /* shared: float [wave][G][OH*OW], with K: its sums (kmap.h) */
    XN_CPU_BITGEMM_STARTS,     /* shared: int32 [O][map.pitch] */
    XN_CPU_BITGEMM_MAGNITUDES, /* float [CHUNK]: sum of |I| over up to 32 channels */
    XN_CPU_BITGEMM_SUMS,       /* double [CHUNK]: over all */
    XN_CPU_BITGEMM_REALS,      /* float [32][CHUNK]: input that is not fp32 */
    XN_CPU_BITGEMM_VERTICAL,   /* double [W] */
    XN_CPU_BITGEMM_ACROSS,     /* double [OW] */
    XN_CPU_BITGEMM_TEMP,       /* float [W], with K of a short box */
    XN_CPU_BITGEMM_ROWS,       /* float [KH][OW], the same: sums of tap columns, */
    XN_CPU_BITGEMM_HELD,       /* int32 [KH]: of which input rows */
    XN_CPU_BITGEMM_EXACT,      /* double [pitch], the same: K in double */
    XN_CPU_BITGEMM_PIECES,     /* xn_cpu_piece [pitch] */
    XN_CPU_BITGEMM_PATCHES,    /* uint32 [words][pitch] */
    XN_CPU_BITGEMM_ARRANGED,   /* the same as the kernels read it, if that takes more room */
    XN_CPU_BITGEMM_KINDS,      /* int32 [pitch]: class of each lane */
    XN_CPU_BITGEMM_DOTS,       /* int32 [XN_CPU_BITGEMM_BLOCK][pitch] */
    XN_CPU_BITGEMM_VALUES,     /* float [pitch] */
    XN_CPU_BITGEMM_WORDS,      /* uint32 [pitch], where bits are written */
    XN_CPU_BITGEMM_GATHERED,   /* bytes [XN_CPU_BITGEMM_BLOCK][OH*OW], where chunks may be whole
                                  images */
    XN_CPU_BITGEMM_ARRAYS
};

/* A plan's. */
typedef struct xn_cpu_bitgemm_state {
    xn_cpu_map *map; /* owned */
    int32_t lanes;   /* most outputs of a unit */
    int32_t wave;    /* images held in shared scratch at a time */
    size_t offset[XN_CPU_BITGEMM_ARRAYS];
} xn_cpu_bitgemm_state;

extern const xn_cpu_form xn_cpu_bitgemm_form;

/* A wave. */
typedef struct xn_cpu_bitgemm_job {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_cpu_bitgemm_state *state;
    const xn_conv *conv;
    const xn_cpu_bitgemm_weights *weights;
    const xn_cpu_map *map;
    const xn_cpu_bitgemm_kernels *kernels;
    const xn_cpu_image *images;
    xn_cpu_patch shape;
    int64_t count;                       /* of the wave */
    int64_t chunk;                       /* phase 1: pixels, */
    int64_t plane_chunks;                /* and of them in a plane */
    int64_t k_bands;                     /* phase 2: of rows */
    int64_t chunks, splits;              /* phase 3: of lanes, and of filters */
    int32_t lanes, pitch;                /* of a chunk */
    int32_t block;                       /* filters between two epilogues */
    size_t plane, out_plane;             /* pixels */
    size_t output_bytes;                 /* of an element; 0 where bits are all that is written */
    const xn_cpu_thresholds *thresholds; /* of the bits, or NULL */
    bool stream;                         /* outputs are too many for the cache */
    bool gather;                         /* and chunks are whole images */
} xn_cpu_bitgemm_job;

static inline void *xn_cpu_bitgemm_shared(const xn_cpu_bitgemm_job *j, int array) {
    return xn_cpu_shared(j->plan) + j->state->offset[array];
}

static inline void *xn_cpu_bitgemm_own(const xn_cpu_bitgemm_job *j, int thread, int array) {
    return xn_cpu_slice(j->plan, thread) + j->state->offset[array];
}

static inline uint32_t *xn_cpu_bitgemm_planes(const xn_cpu_bitgemm_job *j, int64_t slot,
                                              int32_t group) {
    return (uint32_t *)xn_cpu_bitgemm_shared(j, XN_CPU_BITGEMM_PLANES) +
           (size_t)(slot * j->conv->groups + group) * j->plane * (size_t)j->shape.tap_words;
}

static inline float *xn_cpu_bitgemm_k(const xn_cpu_bitgemm_job *j, int64_t slot, int32_t group) {
    return (float *)xn_cpu_bitgemm_shared(j, XN_CPU_BITGEMM_KS) +
           (size_t)(slot * j->conv->groups + group) * j->out_plane;
}

/* Of one filter, an entry a class. */
static inline int32_t *xn_cpu_bitgemm_starts(const xn_cpu_bitgemm_job *j, int32_t o) {
    return (int32_t *)xn_cpu_bitgemm_shared(j, XN_CPU_BITGEMM_STARTS) +
           (size_t)o * (size_t)j->map->pitch;
}

/* Phase 3: a task (parallel.h) of chunks * splits units, all chunks of a part of the filters after
 * one another: a thread, which begins with neighbours, so keeps to its filters and output planes.
 */
void xn_cpu_bitgemm_dots(void *job, int64_t unit, int thread);

#endif
