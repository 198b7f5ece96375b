/* patch_gemm_shape.cuh: what a block of patch_gemm.cu works on: what the host works out of a cut,
 * the kernel's arguments, a block's place in the problem. */
#ifndef XN_CUDA_PATCH_GEMM_SHAPE_CUH
#define XN_CUDA_PATCH_GEMM_SHAPE_CUH

#include "fast_divide.cuh"
#include "few.cuh"

enum {
    THREADS = 128,
    WARPS = THREADS / 32,
    STEP = XN_CUDA_STEP_WORDS,
    MAX_STEPS = 6,
    OCTET = 8,          /* channels of a task, at most */
    RUN = 4,            /* pixels of a row that are read at once, where not single ones */
    LINES = 4,          /* lines that a thread makes at a time */
    MOST_CHANNELS = 32, /* that a block packs: one word a pixel */
};

/* How a problem is cut into blocks. */
struct patch_cut {
    int32_t together;       /* groups a block computes as one of their channels and filters */
    int32_t tile_w, tile_h; /* outputs of a block; tile_w is the image's or a multiple of 16 */
    int32_t span;           /* filters of a block: of all those of its groups when together > 1 */
};

/* What the host works out of a cut. */
struct patch_shape {
    int32_t channels, filters;        /* of the groups together */
    int32_t field_log2;               /* bits of a pixel */
    int32_t in_w, in_h;               /* staged inputs */
    int32_t phase_w;                  /* columns of one remainder modulo the dilation */
    int32_t run;                      /* pixels side by side that are read at once: 1 or RUN */
    int32_t run_field, run_pixels;    /* of a task: log2 of a pixel's bits, and its pixels */
    int32_t lead;                     /* positions before the first column that a window reads */
    int32_t tasks_across, octets;     /* tasks of a staged row; a task has an octet of channels */
    int32_t layers, layer_channels;   /* layers of sums that make a group's; channels of one */
    int32_t octet_layers;             /* layers of 8 channels; 0 where there is one octet */
    int32_t line_blocks;              /* of LINES staged rows */
    int32_t width;                    /* positions of a staged row */
    int32_t pitch;                    /* words of a staged row, one more than its bits take */
    int32_t parts, words;             /* words of a kernel row, of a patch */
    int32_t steps;                    /* matrix instructions for both halves of the patch */
    int32_t items;                    /* of a filter: words, and what is zero past both halves */
    int32_t item_lanes_log2;          /* lanes that lay a filter out */
    int32_t sharers_log2;             /* warps that share the filters of 16 outputs */
    int32_t k_sharers;                /* threads that share an output's groups */
    uint32_t part_mask, last_mask;    /* bits of a part that are taps; those of a row's last */
    int32_t tiles_x, tiles_y, splits; /* splits: of the filters */
    int32_t bundles;                  /* of groups */
    int32_t tile;                     /* outputs, rounded up to whole warps' */
    int32_t filters_at, info_at, sums_at, lines_at, k_at, taps_at; /* bytes into shared memory */
    int32_t offsets_at;
    float channel_reciprocal, staged_reciprocal; /* the latter 1 where there are several layers */
    xn_fast_divisor by_tile_w, by_tile, by_width, by_phase_w, by_parts, by_line_blocks;
    xn_fast_divisor by_filters, by_splits, by_tiles_x, by_tiles_y, by_bundles, by_tasks_across,
        by_in_h;
    int32_t shared_bytes;
};

struct patch_args : xn_few_args {
    patch_cut cut;
    patch_shape shape;
};

/* A filter's constants, and which of the groups it belongs to. */
struct __align__(16) patch_filter {
    xn_filter constants;
    int32_t group;
};

/* What a block works on. */
struct patch_block {
    int64_t image;
    int32_t group, groups;   /* the first and how many */
    int32_t filter, filters; /* the first, counted from the first of `group` on, and how many */
    int32_t out_x, out_y;
};

__device__ __forceinline__ patch_block find_block(const patch_args &a) {
    const patch_shape &s = a.shape;
    patch_block b;
    /* splits of the filters run fastest, then columns, rows, bundles of groups, images */
    const int32_t tile = xn_divide((int32_t)blockIdx.x, s.by_splits);
    const int32_t down = xn_divide(tile, s.by_tiles_x), bundle = xn_divide(down, s.by_tiles_y);
    const int32_t image = xn_divide(bundle, s.by_bundles);
    b.filter = ((int32_t)blockIdx.x - tile * s.splits) * a.cut.span;
    b.out_x = (tile - down * s.tiles_x) * a.cut.tile_w;
    b.out_y = (down - bundle * s.tiles_y) * a.cut.tile_h;
    b.group = (bundle - image * s.bundles) * a.cut.together;
    b.image = image;
    b.groups = min(a.cut.together, a.conv.groups - b.group);
    b.filters = min(a.cut.span, b.groups * a.conv.group_out_channels - b.filter);
    return b;
}

#endif
