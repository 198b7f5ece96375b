/* bk_case.h: one case of the table that every backend runs, and the data it means. */
#ifndef BK_CASE_H
#define BK_CASE_H

#include "xn_backend.h"
#include "xn_test.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How values are drawn. Integer datatypes take random bytes for all but EQUAL and ZERO. */
typedef enum {
    BK_RANDOM, /* uniform in [-1, 1), of all signs */
    BK_TIES,   /* small integers with many zeros of both signs */
    BK_EQUAL,  /* one value everywhere */
    BK_MINUS,  /* the same, negative: with BK_EQUAL every bit differs */
    BK_ZERO,   /* +0: as weights, alpha is 0 */
    BK_NEGATIVE_ZERO,
    BK_NAN,      /* a few NaNs among random values */
    BK_INFINITY, /* a few infinities of both signs among random values */
    BK_HUGE,     /* the largest finite values of both signs */
    BK_DENORMAL, /* the smallest ones */
    BK_MIXED,    /* magnitudes from 2^-40 to 2^40 */
    BK_EXTREME,  /* the largest ones, random ones, and a few that are not finite */
    BK_FILLS
} bk_fill;

/* A case is plain data: the same case and seed give the same bits everywhere. */
typedef struct bk_case {
    int64_t images, channels, height, width;
    int64_t out_channels, kernel_h, kernel_w;
    xn_conv_params params;
    xn_datatype input_datatype, weights_datatype;
    bool scale, bias;
    bk_fill input_fill, weights_fill, channel_fill; /* channel: of scale and bias */
    int items;                                      /* requests the images are split over */
    int spare;                                      /* images the plan has room for beyond these */
    uint64_t seed;
} bk_case;

/* A small case to start from: 1 image, 1 channel, 5 x 6, one 3 x 3 filter, random FP32. */
bk_case bk_case_default(void);
/* The same with another shape. */
bk_case bk_geometry(int64_t images, int64_t channels, int64_t height, int64_t width,
                    int64_t out_channels, int64_t kernel_h, int64_t kernel_w);
void bk_pad(bk_case *c, int64_t top, int64_t left, int64_t bottom, int64_t right);

#define BK_TEXT 400
/* Everything that tells the case, on one line. */
void bk_case_describe(const bk_case *c, char text[BK_TEXT]);

/* A case with its data. */
typedef struct bk_problem {
    const bk_case *c;
    xn_conv conv;
    int64_t images;
    xn_weights *weights;
    void *input; /* all images, in the input datatype */
    float *real; /* the same as fp32 */
} bk_problem;

/* Draws the data. Fails the test when the case does not resolve. */
void bk_problem_make(const bk_case *c, bk_problem *out);
void bk_problem_free(bk_problem *problem);

/* The values that an input has in that mode: in mode xnor a BOOL is a sign. */
void bk_read_input(xn_mode mode, xn_datatype datatype, const void *input, float *out,
                   int64_t count);
/* In mode xnor, which refuses UINT8, BOOL in its place. */
void bk_case_signed(bk_case *c);

/* Fills count elements of that datatype. */
void bk_fill_values(xn_rng *rng, bk_fill fill, xn_datatype datatype, void *out, int64_t count);

/* ---- the table (bk_table.c) ---- */

typedef void (*bk_visit)(const bk_case *c, void *context);

typedef struct bk_section {
    const char *name;
    void (*each)(bk_visit visit, void *context); /* calls visit for every case, in order */
    const char *only; /* the backend it is for, whose kernels alone are cut like that; NULL: all */
} bk_section;

extern const bk_section bk_sections[];
extern const int bk_section_count;

/* A random case from its seed alone; its work is bounded. */
void bk_case_random(uint64_t seed, bk_case *out);

#ifdef __cplusplus
}
#endif
#endif
