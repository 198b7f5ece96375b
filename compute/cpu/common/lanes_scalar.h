/* lanes_scalar.h: of the operations of lanes_avx512.h those for vectors of 16 bytes that have no
 * masks and no stores past the caches. */
#ifndef XN_CPU_LANES_SCALAR_H
#define XN_CPU_LANES_SCALAR_H

#include <stdint.h>

#include <string.h>

enum { MOVE_LANES = 16 }; /* real_kernels.h */

#define VECTOR_BYTES 16
#define STREAM(to, v) (*(loose_f32 *)(to) = (v))
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
#define LARGER(a, b)                                                                               \
    (vector_f32) {                                                                                 \
        (a)[0] > (b)[0] ? (a)[0] : (b)[0], (a)[1] > (b)[1] ? (a)[1] : (b)[1],                      \
            (a)[2] > (b)[2] ? (a)[2] : (b)[2], (a)[3] > (b)[3] ? (a)[3] : (b)[3]                   \
    }
#define SHIFT_IN(before, v)                                                                        \
    (vector_f32) {                                                                                 \
        (before)[3], (v)[0], (v)[1], (v)[2]                                                        \
    }

static inline __attribute__((always_inline)) float lane_of(const float *from, uint32_t inside,
                                                           float pad, int lane) {
    return inside >> lane & 1u ? from[lane] : pad;
}

static inline __attribute__((always_inline)) void move(const float *from, uint32_t inside,
                                                       float pad, float *to) {
    if (inside == (1u << MOVE_LANES) - 1) {
        memcpy(to, from, MOVE_LANES * sizeof *to);
        return;
    }
    for (int l = 0; l < MOVE_LANES; l++)
        to[l] = inside >> l & 1u ? from[l] : pad;
}

#endif
