/* real_scalar_move.h: what real_body.h wants of masks, where vectors have none. */
#ifndef XN_CPU_REAL_SCALAR_MOVE_H
#define XN_CPU_REAL_SCALAR_MOVE_H

#include "real_kernels.h"

#include <string.h>

#define MOVE(from, inside, pad, to) move(from, inside, (pad)[0], to)
#define LOAD_INSIDE(from, inside, pads)                                                            \
    (vector_f32) {                                                                                 \
        lane_of(from, inside, (pads)[0], 0), lane_of(from, inside, (pads)[0], 1),                  \
            lane_of(from, inside, (pads)[0], 2), lane_of(from, inside, (pads)[0], 3)               \
    }
#define STORE_FIRST(to, n, v) memcpy(to, &(v), (size_t)(n) * sizeof(float))
#define EVENS(a, b)                                                                                \
    (vector_f32) {                                                                                 \
        (a)[0], (a)[2], (b)[0], (b)[2]                                                             \
    }
#define ODDS(a, b)                                                                                 \
    (vector_f32) {                                                                                 \
        (a)[1], (a)[3], (b)[1], (b)[3]                                                             \
    }

static inline float lane_of(const float *from, uint32_t inside, float pad, int lane) {
    return inside >> lane & 1u ? from[lane] : pad;
}

static inline void move(const float *from, uint32_t inside, float pad, float *to) {
    if (inside == (1u << XN_CPU_MOVE_LANES) - 1) {
        memcpy(to, from, XN_CPU_MOVE_LANES * sizeof *to);
        return;
    }
    for (int l = 0; l < XN_CPU_MOVE_LANES; l++)
        to[l] = inside >> l & 1u ? from[l] : pad;
}

#endif
