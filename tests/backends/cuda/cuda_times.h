/* cuda_times.h: measured times of paths (NVIDIA H200, CUDA 13.0, graph replay, medians), of a
 * sample of shapes and of all that an earlier chooser missed: what choices are compared with. */
#ifndef XN_TEST_CUDA_TIMES_H
#define XN_TEST_CUDA_TIMES_H

#include "xn_tensor.h"

enum { XN_TIMES_PATHS = 4 };

typedef struct xn_path_time {
    const char *path;
    double us;
} xn_path_time;

/* Padded as "same", but for kernels as wide as the stride. XN_BITS: words. */
typedef struct xn_times {
    const char *name;
    int images, channels, side, filters, kernel, stride, dilation, groups;
    xn_datatype input, output;
    xn_path_time paths[XN_TIMES_PATHS]; /* of up to twice the best, the fastest four */
} xn_times;

#define SLIDING "sliding_window"
#define PATCH "patch"
#define SPECIALISED "warp_specialised"
#define IMPLICIT "implicit_gemm"
#define DIRECT "direct"

/* clang-format off */
static const xn_times xn_times_all[] = {
    {"depth-wise 1x512x14 o512 k3 s1 d1 g512", 1, 512, 14, 512, 3, 1, 1, 512, XN_FP32, XN_FP32,
     {{SLIDING, 2.11}, {PATCH, 2.9}}},
    {"depth-wise 16x512x14 o512 k3 s1 d1 g512", 16, 512, 14, 512, 3, 1, 1, 512, XN_FP32, XN_FP32,
     {{SLIDING, 13.99}, {PATCH, 16.82}}},
    {"depth-wise 1x512x7 o512 k3 s1 d1 g512", 1, 512, 7, 512, 3, 1, 1, 512, XN_FP32, XN_FP32,
     {{SLIDING, 1.6}, {PATCH, 2.27}}},
    {"depth-wise 16x512x7 o512 k3 s1 d1 g512", 16, 512, 7, 512, 3, 1, 1, 512, XN_FP32, XN_FP32,
     {{SLIDING, 5.27}, {PATCH, 9.61}}},
    {"depth-wise 64x512x7 o512 k3 s1 d1 g512", 64, 512, 7, 512, 3, 1, 1, 512, XN_FP32, XN_FP32,
     {{SLIDING, 19.36}, {PATCH, 23.45}}},
    {"depth-wise s2 16x64x112 o64 k3 s2 d1 g64", 16, 64, 112, 64, 3, 2, 1, 64, XN_FP32, XN_FP32,
     {{PATCH, 55.57}}},
    {"depth-wise s2 1x128x56 o128 k3 s2 d1 g128", 1, 128, 56, 128, 3, 2, 1, 128, XN_FP32, XN_FP32,
     {{PATCH, 3.82}}},
    {"depth-wise s2 16x128x56 o128 k3 s2 d1 g128", 16, 128, 56, 128, 3, 2, 1, 128, XN_FP32, XN_FP32,
     {{PATCH, 28.08}}},
    {"depth-wise 5x5 64x128x56 o128 k5 s1 d1 g128", 64, 128, 56, 128, 5, 1, 1, 128, XN_FP32, XN_FP32,
     {{SLIDING, 74.95}}},
    {"depth-wise 5x5 1x512x14 o512 k5 s1 d1 g512", 1, 512, 14, 512, 5, 1, 1, 512, XN_FP32, XN_FP32,
     {{SLIDING, 2.31}}},
    {"depth-wise 5x5 1x512x7 o512 k5 s1 d1 g512", 1, 512, 7, 512, 5, 1, 1, 512, XN_FP32, XN_FP32,
     {{SLIDING, 1.8}}},
    {"depth-wise 5x5 s2 64x128x56 o128 k5 s2 d1 g128", 64, 128, 56, 128, 5, 2, 1, 128, XN_FP32, XN_FP32,
     {{PATCH, 253.48}}},
    {"depth-wise 7x7 1x96x56 o96 k7 s1 d1 g96", 1, 96, 56, 96, 7, 1, 1, 96, XN_FP32, XN_FP32,
     {{SLIDING, 3.1}}},
    {"depth-wise 7x7 64x384x14 o384 k7 s1 d1 g384", 64, 384, 14, 384, 7, 1, 1, 384, XN_FP32, XN_FP32,
     {{SLIDING, 35.85}}},
    {"depth-wise d2 64x128x56 o128 k3 s1 d2 g128", 64, 128, 56, 128, 3, 1, 2, 128, XN_FP32, XN_FP32,
     {{SLIDING, 62.66}}},
    {"groups of 4 64x128x56 o128 k3 s1 d1 g32", 64, 128, 56, 128, 3, 1, 1, 32, XN_FP32, XN_FP32,
     {{PATCH, 113.38}}},
    {"groups of 4 64x512x14 o512 k3 s1 d1 g128", 64, 512, 14, 512, 3, 1, 1, 128, XN_FP32, XN_FP32,
     {{PATCH, 35.97}}},
    {"groups of 8 64x512x14 o512 k3 s1 d1 g64", 64, 512, 14, 512, 3, 1, 1, 64, XN_FP32, XN_FP32,
     {{PATCH, 33.67}}},
    {"groups of 8 s2 64x256x56 o256 k3 s2 d1 g32", 64, 256, 56, 256, 3, 2, 1, 32, XN_FP32, XN_FP32,
     {{PATCH, 118.81}}},
    {"groups of 16 64x128x56 o128 k3 s1 d1 g8", 64, 128, 56, 128, 3, 1, 1, 8, XN_FP32, XN_FP32,
     {{PATCH, 108.71}}},
    {"groups of 16 1x512x14 o512 k3 s1 d1 g32", 1, 512, 14, 512, 3, 1, 1, 32, XN_FP32, XN_FP32,
     {{PATCH, 3.03}}},
    {"groups of 32 1x512x14 o512 k3 s1 d1 g16", 1, 512, 14, 512, 3, 1, 1, 16, XN_FP32, XN_FP32,
     {{PATCH, 4.25}}},
    {"1x1 depth-wise 1x128x28 o128 k1 s1 d1 g128", 1, 128, 28, 128, 1, 1, 1, 128, XN_FP32, XN_FP32,
     {{PATCH, 3.33}}},
    {"1x1 1x256x14 o1024 k1 s1 d1 g1", 1, 256, 14, 1024, 1, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 5.99}}},
    {"3x3 d4 64x256x28 o256 k3 s1 d4 g1", 64, 256, 28, 256, 3, 1, 4, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 39.51}}},
    {"5x5 64x64x28 o64 k5 s1 d1 g1", 64, 64, 28, 64, 5, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 15.76}}},
    {"stem 7x7 64x3x224 o64 k7 s2 d1 g1", 64, 3, 224, 64, 7, 2, 1, 1, XN_FP32, XN_FP32,
     {{PATCH, 152.03}}},
    {"few 3x3 64x1x112 o64 k3 s1 d1 g1", 64, 1, 112, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{PATCH, 84.67}, {SPECIALISED, 95.47}}},
    {"few 3x3 1x2x112 o64 k3 s1 d1 g1", 1, 2, 112, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{PATCH, 3.49}, {SPECIALISED, 6.61}}},
    {"few 3x3 64x2x112 o64 k3 s1 d1 g1", 64, 2, 112, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{PATCH, 69.71}, {SPECIALISED, 92.28}}},
    {"few 3x3 1x3x112 o64 k3 s1 d1 g1", 1, 3, 112, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{PATCH, 3.51}, {SPECIALISED, 6.62}}},
    {"few 3x3 1x4x112 o64 k3 s1 d1 g1", 1, 4, 112, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{PATCH, 3.76}, {SPECIALISED, 6.63}}},
    {"few 7x7 1x3x112 o32 k7 s1 d1 g1", 1, 3, 112, 32, 7, 1, 1, 1, XN_FP32, XN_FP32,
     {{PATCH, 7.43}}},
    {"one 3x3 1x1x1023 o1 k3 s1 d1 g1", 1, 1, 1023, 1, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SLIDING, 5.96}}},
    {"one 3x3 d2 64x1x1024 o1 k3 s1 d2 g1", 64, 1, 1024, 1, 3, 1, 2, 1, XN_FP32, XN_FP32,
     {{SLIDING, 138.13}}},
    {"dense 3x3 1x64x56 o64 k3 s1 d1 g1", 1, 64, 56, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 4.99}}},
    {"dense 3x3 4x64x56 o64 k3 s1 d1 g1", 4, 64, 56, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 6.93}}},
    {"dense 3x3 16x64x56 o64 k3 s1 d1 g1", 16, 64, 56, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 11.18}}},
    {"dense 3x3 128x64x56 o64 k3 s1 d1 g1", 128, 64, 56, 64, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 67.58}}},
    {"dense 3x3 1x128x28 o128 k3 s1 d1 g1", 1, 128, 28, 128, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 5.17}}},
    {"dense 3x3 4x128x28 o128 k3 s1 d1 g1", 4, 128, 28, 128, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 5.51}}},
    {"dense 3x3 16x128x28 o128 k3 s1 d1 g1", 16, 128, 28, 128, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 9.35}}},
    {"dense 3x3 64x128x28 o128 k3 s1 d1 g1", 64, 128, 28, 128, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 20.34}}},
    {"dense 3x3 128x128x28 o128 k3 s1 d1 g1", 128, 128, 28, 128, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 36.16}}},
    {"dense 3x3 4x256x14 o256 k3 s1 d1 g1", 4, 256, 14, 256, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 7.62}}},
    {"dense 3x3 16x256x14 o256 k3 s1 d1 g1", 16, 256, 14, 256, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 8.09}}},
    {"dense 3x3 128x256x14 o256 k3 s1 d1 g1", 128, 256, 14, 256, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 23.2}}},
    {"dense 3x3 16x512x7 o512 k3 s1 d1 g1", 16, 512, 7, 512, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 8.49}}},
    {"dense 3x3 4x1024x14 o1024 k3 s1 d1 g1", 4, 1024, 14, 1024, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 12.53}}},
    {"dense 3x3 64x96x27 o96 k3 s1 d1 g1", 64, 96, 27, 96, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 19.88}}},
    {"1x1x512, fp32 -> fp32", 1, 1, 512, 1, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SLIDING, 1.42}}},
    {"1x1x1024, fp32 -> fp32", 1, 1, 1024, 1, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SLIDING, 2.37}}},
    {"64x64x56, fp16 -> fp16", 64, 64, 56, 64, 3, 1, 1, 1, XN_FP16, XN_FP16,
     {{SPECIALISED, 24.07}}},
    {"64x512x7, fp16 -> fp16", 64, 512, 7, 512, 3, 1, 1, 1, XN_FP16, XN_FP16,
     {{SPECIALISED, 13.13}}},
    {"1x256x14, fp32 -> fp32", 1, 256, 14, 256, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 5.62}}},
    {"1x512x7, fp32 -> fp32", 1, 512, 7, 512, 3, 1, 1, 1, XN_FP32, XN_FP32,
     {{SPECIALISED, 6.09}}},
    {"64x128x28, fp16 -> fp16", 64, 128, 28, 128, 3, 1, 1, 1, XN_FP16, XN_FP16,
     {{SPECIALISED, 14.27}}},
    {"4x64x56, packed -> int32", 4, 64, 56, 64, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 3.86}}},
    {"16x64x56, packed -> int32", 16, 64, 56, 64, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 7.03}}},
    {"4x128x28, packed -> int32", 4, 128, 28, 128, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 3.47}}},
    {"16x128x28, packed -> int32", 16, 128, 28, 128, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 6.01}}},
    {"128x128x28, packed -> int32", 128, 128, 28, 128, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 19.02}}},
    {"16x256x14, packed -> int32", 16, 256, 14, 256, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 5.08}}},
    {"128x256x14, packed -> int32", 128, 256, 14, 256, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 12.28}}},
    {"4x512x7, packed -> int32", 4, 512, 7, 512, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 3.8}}},
    {"16x512x7, packed -> int32", 16, 512, 7, 512, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 5.24}}},
    {"128x512x7, packed -> int32", 128, 512, 7, 512, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 11.93}}},
    {"1x1024x14, packed -> int32", 1, 1024, 14, 1024, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 5.11}}},
    {"4x1024x14, packed -> int32", 4, 1024, 14, 1024, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 6.81}}},
    {"16x1024x14, packed -> int32", 16, 1024, 14, 1024, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 11.9}}},
    {"128x1024x14, packed -> int32", 128, 1024, 14, 1024, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 55.82}}},
    {"1x64x56, packed -> int32", 1, 64, 56, 64, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 3.26}}},
    {"1x128x28, packed -> int32", 1, 128, 28, 128, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 3.58}, {DIRECT, 6.94}}},
    {"1x256x14, packed -> int32", 1, 256, 14, 256, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 3.36}}},
    {"1x512x7, packed -> int32", 1, 512, 7, 512, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 3.89}}},
    {"64x256x14, packed -> int32", 64, 256, 14, 256, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 8.6}}},
    {"64x512x7, packed -> int32", 64, 512, 7, 512, 3, 1, 1, 1, XN_BITS, XN_INT32,
     {{SPECIALISED, 8.33}}},
};
/* clang-format on */

static const int xn_times_count = sizeof xn_times_all / sizeof *xn_times_all;

#undef SLIDING
#undef DEPTHWISE
#undef PATCH
#undef SPECIALISED
#undef IMPLICIT
#undef DIRECT

#endif
