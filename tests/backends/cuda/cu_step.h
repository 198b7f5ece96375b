/* cu_step.h: random steps that are no convolutions, and running them: on ref and other backends of
 * the host, or as a test of the CUDA backend does. Each tensor has memory of its own size. */
#ifndef CU_STEP_H
#define CU_STEP_H

#include "xn_cuda.h"
#include "xn_test.h"

#include <vector>

struct cu_step_case {
    xn_step step;
    int64_t images;
    xn_weights *weights; /* or NULL */
    std::vector<char> input, second, residual;
};

/* The tensors as a whole, which were CU_POISON before. */
struct cu_step_outputs {
    std::vector<char> reals, bits;
};
enum { CU_POISON = 0x5a };

typedef cu_step_outputs (*cu_step_run)(const cu_step_case *c, const xn_step *step);

/* Quarters, and now and then NaN, an infinity or -0. */
std::vector<char> cu_random_reals(xn_rng *rng, xn_datatype datatype, size_t bytes);
/* Of a case with that kind: shapes alone. */
void cu_step_geometry(xn_rng *rng, xn_step *step);

/* By a backend whose memory is the host's. */
cu_step_outputs cu_step_run_by(const xn_backend *backend, const cu_step_case *c,
                               const xn_step *step);
/* Fails the test where outputs are not those of ref. */
void cu_step_compare(const cu_step_case *c, const cu_step_outputs &got, uint64_t seed);
/* The case of a seed. */
void cu_step_check(uint64_t seed, cu_step_run run);

#endif
