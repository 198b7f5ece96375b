/* shapes_table.h: the shapes of `bench-conv shapes`: what networks have beside square dense layers.
 */
#ifndef XN_BENCH_SHAPES_TABLE_H
#define XN_BENCH_SHAPES_TABLE_H

#include <stdint.h>

typedef struct xn_named_shape {
    const char *family;
    int64_t images, channels, side, filters, kernel, stride, dilation, groups;
} xn_named_shape;

/* channels * side ^ 2, depth-wise; all with padding that keeps the size at stride 1. */
#define DEPTH(FAMILY, C, SIDE, K, S, D)                                                            \
    {FAMILY, 1, C, SIDE, C, K, S, D, C}, {FAMILY, 16, C, SIDE, C, K, S, D, C}, {                   \
        FAMILY, 64, C, SIDE, C, K, S, D, C                                                         \
    }
#define BATCHES(FAMILY, C, SIDE, O, K, S, D, G)                                                    \
    {FAMILY, 1, C, SIDE, O, K, S, D, G}, {                                                         \
        FAMILY, 64, C, SIDE, O, K, S, D, G                                                         \
    }
static const xn_named_shape xn_shapes_table[] = {
    DEPTH("depth-wise", 32, 112, 3, 1, 1),
    DEPTH("depth-wise", 128, 56, 3, 1, 1),
    DEPTH("depth-wise", 256, 28, 3, 1, 1),
    DEPTH("depth-wise", 512, 14, 3, 1, 1),
    DEPTH("depth-wise", 512, 7, 3, 1, 1),
    DEPTH("depth-wise s2", 64, 112, 3, 2, 1),
    DEPTH("depth-wise s2", 128, 56, 3, 2, 1),
    DEPTH("depth-wise s2", 256, 28, 3, 2, 1),
    DEPTH("depth-wise s2", 512, 14, 3, 2, 1),
    BATCHES("depth-wise 5x5", 128, 56, 128, 5, 1, 1, 128),
    BATCHES("depth-wise 5x5", 512, 14, 512, 5, 1, 1, 512),
    BATCHES("depth-wise 5x5", 512, 7, 512, 5, 1, 1, 512),
    BATCHES("depth-wise 5x5 s2", 128, 56, 128, 5, 2, 1, 128),
    BATCHES("depth-wise 7x7", 96, 56, 96, 7, 1, 1, 96),
    BATCHES("depth-wise 7x7", 384, 14, 384, 7, 1, 1, 384),
    BATCHES("depth-wise d2", 128, 56, 128, 3, 1, 2, 128),
    BATCHES("depth-wise d2", 512, 14, 512, 3, 1, 2, 512),
    BATCHES("depth-wise d4", 256, 28, 256, 3, 1, 4, 256),
    BATCHES("groups of 2", 128, 56, 128, 3, 1, 1, 64),
    BATCHES("groups of 2", 512, 14, 512, 3, 1, 1, 256),
    BATCHES("groups of 4", 128, 56, 128, 3, 1, 1, 32),
    BATCHES("groups of 4", 512, 14, 512, 3, 1, 1, 128),
    BATCHES("groups of 8", 128, 56, 128, 3, 1, 1, 16),
    BATCHES("groups of 8", 512, 14, 512, 3, 1, 1, 64),
    BATCHES("groups of 8 s2", 256, 56, 256, 3, 2, 1, 32),
    BATCHES("groups of 16", 128, 56, 128, 3, 1, 1, 8),
    BATCHES("groups of 16", 512, 14, 512, 3, 1, 1, 32),
    BATCHES("groups of 32", 128, 56, 128, 3, 1, 1, 4),
    BATCHES("groups of 32", 512, 14, 512, 3, 1, 1, 16),
    BATCHES("groups of 1 to 4", 64, 28, 256, 3, 1, 1, 64),
    BATCHES("1x1 few", 3, 224, 64, 1, 1, 1, 1),
    BATCHES("1x1 few", 8, 56, 64, 1, 1, 1, 1),
    BATCHES("1x1 depth-wise", 128, 28, 128, 1, 1, 1, 128),
    BATCHES("1x1", 64, 56, 64, 1, 1, 1, 1),
    BATCHES("1x1", 256, 56, 64, 1, 1, 1, 1),
    BATCHES("1x1", 256, 14, 1024, 1, 1, 1, 1),
    BATCHES("1x1", 512, 7, 512, 1, 1, 1, 1),
    BATCHES("1x1 s2", 256, 56, 512, 1, 2, 1, 1),
    BATCHES("1x1 s2", 512, 28, 1024, 1, 2, 1, 1),
    BATCHES("3x3 s2", 64, 56, 128, 3, 2, 1, 1),
    BATCHES("3x3 s2", 128, 28, 256, 3, 2, 1, 1),
    BATCHES("3x3 s2", 256, 14, 512, 3, 2, 1, 1),
    BATCHES("3x3 d2", 64, 56, 64, 3, 1, 2, 1),
    BATCHES("3x3 d2", 256, 28, 256, 3, 1, 2, 1),
    BATCHES("3x3 d4", 256, 28, 256, 3, 1, 4, 1),
    BATCHES("5x5", 64, 28, 64, 5, 1, 1, 1),
    BATCHES("7x7", 64, 28, 64, 7, 1, 1, 1),
    BATCHES("stem 3x3", 3, 224, 32, 3, 2, 1, 1),
    BATCHES("stem 7x7", 3, 224, 64, 7, 2, 1, 1),
    BATCHES("stem 11x11 s4", 3, 224, 64, 11, 4, 1, 1),
    BATCHES("stem 4x4 s4", 3, 224, 96, 4, 4, 1, 1),
    BATCHES("few 3x3", 1, 112, 64, 3, 1, 1, 1),
    BATCHES("few 3x3", 2, 112, 64, 3, 1, 1, 1),
    BATCHES("few 3x3", 3, 112, 64, 3, 1, 1, 1),
    BATCHES("few 3x3", 4, 112, 64, 3, 1, 1, 1),
    BATCHES("few 3x3", 8, 112, 64, 3, 1, 1, 1),
    BATCHES("few 3x3", 8, 112, 8, 3, 1, 1, 1),
    BATCHES("few 3x3 d2", 3, 112, 32, 3, 1, 2, 1),
    BATCHES("few 5x5", 1, 112, 32, 5, 1, 1, 1),
    BATCHES("few 5x5", 3, 112, 32, 5, 1, 1, 1),
    BATCHES("few 5x5", 8, 112, 8, 5, 1, 1, 1),
    BATCHES("few 7x7", 1, 112, 32, 7, 1, 1, 1),
    BATCHES("few 7x7", 3, 112, 32, 7, 1, 1, 1),
    BATCHES("one 3x3", 1, 1023, 1, 3, 1, 1, 1),
    BATCHES("one 5x5", 1, 1022, 1, 5, 1, 1, 1),
    BATCHES("one 3x3 s2", 1, 1024, 1, 3, 2, 1, 1),
    BATCHES("one 3x3 d2", 1, 1024, 1, 3, 1, 2, 1),
};

/* Those of `bench-conv layers`. */
static const xn_named_shape xn_layers_table[] = {
    {"layer", 1, 1, 256, 1, 3, 1, 1, 1},        {"layer", 1, 1, 512, 1, 3, 1, 1, 1},
    {"layer", 1, 1, 1024, 1, 3, 1, 1, 1},       {"layer", 1, 1, 2048, 1, 3, 1, 1, 1},
    {"layer", 1, 1, 4096, 1, 3, 1, 1, 1},       {"layer", 1, 1, 8192, 1, 3, 1, 1, 1},
    BATCHES("layer", 64, 56, 64, 3, 1, 1, 1),   BATCHES("layer", 128, 28, 128, 3, 1, 1, 1),
    BATCHES("layer", 256, 14, 256, 3, 1, 1, 1), BATCHES("layer", 512, 7, 512, 3, 1, 1, 1),
    {"layer", 64, 1024, 14, 1024, 3, 1, 1, 1},
};
#undef DEPTH
#undef BATCHES

#endif
