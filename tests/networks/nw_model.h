/* nw_model.h: what a network means, layer by layer as xn_graph.h says it, in double, without
 * lowering and without anything of compute/ but its descriptions.
 *
 * Beside each value stands how far what runs may be from it:
 *
 *   error      rounding, and signs that rounding may turn: where |x + shift| is no more than x's
 *              error, a sign may be either, an error of 2
 *   magnitude  the sum of the magnitudes of the terms that made it since the last product, which is
 *              what rounding of folded parameters is relative to
 *
 * With parameters for which fp32 is exact, unit is 0 and so are the errors: results are equal. */
#ifndef NW_MODEL_H
#define NW_MODEL_H

#include "xn_graph.h"

typedef struct nw_value {
    int64_t channels, height, width;
    double *value, *error, *magnitude;
} nw_value;

typedef struct nw_answer {
    nw_value *layers; /* the result of each layer */
    int count;
    int64_t signs, doubtful; /* signs taken, and those that may be either */
} nw_answer;

/* One image; input as fp32, [C][H][W]. unit: the relative error of one rounding, 0 for exact. */
void nw_model(const xn_graph_params *params, const xn_graph *graph, const float *input, double unit,
              nw_answer *out);
void nw_answer_free(nw_answer *answer);

#endif
