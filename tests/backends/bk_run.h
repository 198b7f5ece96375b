/* bk_run.h: running cases on backends, and judging what comes back.
 *
 * A target is one way to run a problem: a backend's first device with a stream that leaves the
 * choice of the kernel path to the plan, or one that is held to a path. Devices are opened inside
 * the test function, because Check forks and CUDA must start only in the child, and stay open for
 * the process. */
#ifndef BK_RUN_H
#define BK_RUN_H

#include "bk_case.h"
#include "bk_model.h"
#include "xn_program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BK_BACKENDS = 4, BK_PATHS = 32 };

typedef struct bk_target {
    char name[40];    /* "cuda", "cuda:strips" */
    const char *path; /* NULL: the plan chooses */
    const xn_backend *backend;
    xn_device *device;
    xn_stream *stream;
    int number, path_number; /* of the backend; of the path, -1 for none */
} bk_target;

/* How many backends this build has; known without touching a device. */
int bk_target_count(void);
/* The target of backend 0 .. count - 1 that leaves the choice to it, opened. NULL when this machine
 * has no device for it, unless XNORD_TEST_REQUIRE names the backend ("cuda,cpu"): then the test
 * fails. */
const bk_target *bk_target_open(int index);
/* That backend's; NULL also where the build has not the backend. */
const bk_target *bk_target_named(const char *backend);
const bk_target *bk_target_ref(void);
/* The targets on the same device that are held to its paths 0, 1, ...; NULL past the last. */
const bk_target *bk_target_forced(const bk_target *target, int path);

/* ---- how often each path ran, across the processes that Check forks ---- */

/* Before the first fork. */
void bk_tally_start(void);
void bk_tally_clear(void);
void bk_tally_add(const bk_target *target);
/* Runs of that target since it was cleared. */
int bk_tally_of(const bk_target *target);
/* Tests that count together: the tally is cleared before the first of them. */
TCase *bk_tally_case(Suite *s, const char *name);

/* Outputs of a batch on guarded, poisoned memory. */
typedef struct bk_batch {
    const bk_target *target;
    const bk_problem *problem;
    xn_batch_item *items;
    size_t count;
    void **memory; /* 2 per item: input, output */
} bk_batch;

/* Splits the problem's first `images` images over at most `items` items, each in memory of its own
 * from host_alloc, aligned to no more than its element size. */
void bk_batch_make(const bk_target *target, const bk_problem *problem, const xn_conv *conv,
                   int64_t images, int items, bk_batch *out);
/* Poisons the outputs and their guards. */
void bk_batch_poison(bk_batch *batch, const xn_conv *conv);
/* Checks guards and that inputs are untouched, and gathers the outputs in order. */
void bk_batch_collect(const bk_batch *batch, const xn_conv *conv, void *output);
void bk_batch_free(bk_batch *batch);

/* Every how manieth case of the table is to run: XNORD_TEST_EVERY, for slow checkers; usually 1. */
int bk_every(void);

/* Fails the test with the error's text if status is not XN_OK. */
void bk_expect_ok(const bk_target *target, const bk_problem *problem, const char *what,
                  xn_status status, const xn_error *error);

/* A program of that convolution alone on a stream of the target's device. */
xn_status bk_program_create(const bk_target *target, xn_stream *stream, const xn_conv *conv,
                            int64_t max_images, xn_program **out, xn_error *error);

xn_prepared *bk_prepare(const bk_target *target, const bk_problem *problem);

/* Plans, runs and collects. batch and prepared may be of any target of the device; conv is the
 * batch's. False, with nothing run, where the target is held to a path that cannot run this. */
bool bk_run_batch(const bk_target *target, bk_batch *batch, const xn_conv *conv,
                  const xn_prepared *prepared, void *output);

/* The whole way: prepare, plan, run, collect. output holds all images in conv's output datatype;
 * conv is the problem's, or one that differs in output_datatype only. False as bk_run_batch. */
bool bk_run(const bk_target *target, const bk_problem *problem, const xn_conv *conv, void *output);

/* Element i of an output as a double. */
double bk_value(xn_datatype datatype, const void *output, int64_t i);

/* Whether an output element may be `got` where `reference` is right to within `tolerance`; loose as
 * in bk_expected. */
bool bk_is_right(xn_datatype datatype, double got, double reference, double tolerance, bool loose);

/* Fails the test where got (in the problem's output datatype) is not what reference and expected
 * allow. reference is backend ref's FP32 (INT32 for INT32) output, or NULL to judge by the
 * model's values. Backend ref itself is held to one rounding. */
void bk_judge(const bk_target *target, const bk_problem *problem, const void *got, int64_t images,
              const void *reference, const bk_expected *expected);

/* Cases on targets and on every path of their devices that can run them, judged against ref; ref
 * itself is judged against the model. */
void bk_check_all(const bk_target *const *targets, int target_count, const bk_case *cases,
                  int count);
void bk_check(const bk_target *target, const bk_case *cases, int count);

#ifdef __cplusplus
}
#endif
#endif
