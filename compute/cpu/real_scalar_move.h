/* real_scalar_move.h: MOVE of real_body.h where vectors have no masked loads. */
#ifndef XN_CPU_REAL_SCALAR_MOVE_H
#define XN_CPU_REAL_SCALAR_MOVE_H

#include "real_kernels.h"

#include <string.h>

#define MOVE(from, inside, pad, to) move(from, inside, (pad)[0], to)

static inline void move(const float *from, uint32_t inside, float pad, float *to) {
    if (inside == (1u << XN_CPU_MOVE_LANES) - 1) {
        memcpy(to, from, XN_CPU_MOVE_LANES * sizeof *to);
        return;
    }
    for (int l = 0; l < XN_CPU_MOVE_LANES; l++)
        to[l] = inside >> l & 1u ? from[l] : pad;
}

#endif
