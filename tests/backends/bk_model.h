/* bk_model.h: what each output must be and how far from it fp32 arithmetic may be: a second,
 * direct computation of xn_conv.h's formulas that shares no code with backend ref. It also knows
 * the sizes of the terms, which a comparison needs and no output shows. */
#ifndef BK_MODEL_H
#define BK_MODEL_H

#include "bk_case.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bk_expected {
    double value;
    double magnitude; /* the sum of the magnitudes of the terms: 1e-5 of it is the tolerance */
    double slack;     /* absolute: what rounding to denormals may add */
    bool loose;       /* rounding alone decides between the value and what is not finite: that is
                         accepted beside it */
    bool overflows;   /* so does a step of fp32 between, in kernels that take it in fp32 */
} bk_expected;

/* One per output element, [images][O][OH][OW]; free with xn_mem_free. */
bk_expected *bk_model(const bk_problem *problem);

#ifdef __cplusplus
}
#endif
#endif
