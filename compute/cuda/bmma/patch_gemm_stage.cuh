/* patch_gemm_stage.cuh: what a block of patch_gemm.cu has in shared memory before it multiplies,
 * beside its inputs: steps 2 and 3 of that file's comment. */
#ifndef XN_CUDA_PATCH_GEMM_STAGE_CUH
#define XN_CUDA_PATCH_GEMM_STAGE_CUH

#include "patch_gemm_input.cuh"

/* ---- 2: filters ---- */

/* What a thread lays out: the same word of every so many filters. */
struct patch_item {
    int32_t row, column; /* the first tap of its word */
    uint32_t mask;       /* the word's bits that are taps; 0 past the last word */
};

__device__ __forceinline__ patch_item find_item(const patch_args &a, int32_t at) {
    const patch_shape &s = a.shape;
    const int32_t i = xn_divide(at, s.by_parts), part = at - i * s.parts;
    return {i, part << (5 - s.field_log2),
            at >= s.words        ? 0u
            : part + 1 < s.parts ? s.part_mask
                                 : s.last_mask};
}

/* One word of a filter: the taps of `item`, in their group's bits of each field. Four at a time, so
 * that their loads are under way together. */
__device__ __forceinline__ uint32_t filter_word(const patch_args &a, const uint32_t *taps,
                                                const patch_item &item, int32_t shift, bool valid) {
    const int32_t each = 1 << a.shape.field_log2;
    const int32_t count = valid ? min(a.conv.kernel_w - item.column, 32 >> a.shape.field_log2) : 0;
    uint32_t word = 0;
    taps += item.row * a.conv.kernel_w + item.column;
#pragma unroll 1
    for (int32_t j = 0; j < count; j += 4, taps += 4) {
        uint32_t tap[4] = {};
#pragma unroll
        for (int n = 0; n < 4; n++)
            xn_load_4_if(&tap[n], taps + n, j + n < count);
#pragma unroll
        for (int n = 0; n < 4; n++, shift += each)
            word |= tap[n] << (shift & 31);
    }
    return word;
}

/* filters[steps][span][8 words]: positive, then negative; zero past the last filter and past the
 * patch. All loads of BATCH filters are under way together. */
__device__ __forceinline__ void stage_filters(const patch_args &a, const patch_block &b,
                                              int32_t span, uint32_t *filters, patch_filter *info) {
    constexpr int BATCH = 2;
    const xn_conv &c = a.conv;
    const patch_shape &s = a.shape;
    const int32_t log2 = s.item_lanes_log2, step = THREADS >> log2;
    const int64_t first = (int64_t)b.group * c.group_out_channels + b.filter;
    const uint32_t *rows = a.weights + first * a.weight_words;
#pragma unroll 1
    for (int32_t at = threadIdx.x & ((1 << log2) - 1); at < s.items; at += 1 << log2) {
        const patch_item item = find_item(a, at);
        const int32_t inverted = at + s.words;
        uint32_t *to = filters + at / STEP * span * STEP + at % STEP;
        uint32_t *to_inverted = filters + inverted / STEP * span * STEP + inverted % STEP;
#pragma unroll 1
        for (int32_t f = (int32_t)threadIdx.x >> log2; f < span; f += step * BATCH) {
            uint32_t word[BATCH], mask[BATCH];
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                const int32_t filter = f + n * step;
                const bool live = filter < b.filters && item.mask;
                const int32_t shift = xn_divide(filter, s.by_filters) * c.group_channels;
                mask[n] = live ? item.mask << (shift & 31) : 0u;
                word[n] = filter_word(a, rows + filter * a.weight_words, item, shift, live);
            }
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                const int32_t filter = f + n * step;
                if (filter < span && at < s.words)
                    to[filter * STEP] = word[n];
                if (filter < span)
                    to_inverted[filter * STEP] = ~word[n] & mask[n];
            }
        }
    }
    for (int32_t f = threadIdx.x; f < span; f += THREADS) {
        const int64_t o = first + min(f, b.filters - 1);
        info[f] = {xn_filter_of(a.epilogue, o),
                   xn_divide(min(f + b.filter, b.filter + b.filters - 1), s.by_filters)};
    }
}

/* Where a patch's words lie, from its first word on; past both halves the filters are zero. */
__device__ __forceinline__ void stage_offsets(const patch_args &a, int32_t *offsets) {
    const patch_shape &s = a.shape;
    const int32_t at = threadIdx.x;
    if (at >= s.steps * STEP)
        return;
    const bool inverted = at >= s.words;
    const int32_t half = at - (inverted ? s.words : 0);
    const int32_t i = xn_divide(half, s.by_parts);
    offsets[at] = half >= s.words ? 0
                                  : ((inverted ? s.in_h : 0) + i * a.conv.dilation_h) * s.pitch +
                                        half - i * s.parts;
}

/* ---- 3: K and the number of taps ---- */

/* The taps of an output that count. */
__device__ __forceinline__ int32_t count_taps(const xn_conv &c, int32_t out_y, int32_t out_x) {
    const int32_t y = out_y * c.stride_h - c.pad_top, x = out_x * c.stride_w - c.pad_left;
    if (c.pad_value || (y >= 0 && y + (c.kernel_h - 1) * c.dilation_h < c.height && x >= 0 &&
                        x + (c.kernel_w - 1) * c.dilation_w < c.width))
        return c.kernel_h * c.kernel_w;
    const xn_cuda_rect rect = xn_cuda_valid_rect(&c, out_y, out_x);
    return xn_cuda_rect_taps(&rect);
}

/* The sums of a group's layers to its means, in place of the first. */
__device__ __forceinline__ void join_layers(const patch_args &a, float *sums) {
    const patch_shape &s = a.shape;
    const int32_t staged = s.in_h * s.width;
    for (int32_t at = threadIdx.x; at < staged; at += THREADS)
        sums[at] = xn_mean(xn_fours_of(s.layers, [&](int32_t n) { return sums[at + n * staged]; }),
                           s.channel_reciprocal);
}

/* lines[group][staged row][column of the tile]: the row sums of K. A thread has LINES rows of a
 * column at a time. */
__device__ __forceinline__ void make_lines(const patch_args &a, const patch_block &b,
                                           const float *means, float *lines) {
    const patch_shape &s = a.shape;
    const int32_t tile_w = a.cut.tile_w, kernel_w = a.conv.kernel_w;
    for (int32_t at = threadIdx.x; at < b.groups * s.line_blocks * tile_w; at += THREADS) {
        const int32_t block = xn_divide(at, s.by_tile_w), x = at - block * tile_w;
        const int32_t group = xn_divide(block, s.by_line_blocks);
        const int32_t first = (block - group * s.line_blocks) * LINES;
        const int32_t line = group * s.in_h + first;
        const float *from = means + line * s.width + position_of(a, x * a.conv.stride_w);
        float sum[LINES] = {};
#pragma unroll 1
        for (int32_t j = 0; j < kernel_w; j += 4, from += 4) /* xn_fours_of */
#pragma unroll
            for (int r = 0; r < LINES; r++) {
                const float *t = from + min(r, s.in_h - 1 - first) * s.width;
                sum[r] += (t[0] + (j + 1 < kernel_w ? t[1] : 0.0f)) +
                          ((j + 2 < kernel_w ? t[2] : 0.0f) + (j + 3 < kernel_w ? t[3] : 0.0f));
            }
#pragma unroll
        for (int r = 0; r < LINES; r++)
            if (first + r < s.in_h)
                lines[(line + r) * tile_w + x] = sum[r];
    }
}

/* box[group][tile] and taps[tile], which count; past the last output nobody stores what comes of
 * them. Threads share an output's groups where there are more than outputs. */
__device__ __forceinline__ void make_pixels(const patch_args &a, const patch_block &b,
                                            const float *lines, float *box, float *taps) {
    const xn_conv &c = a.conv;
    const patch_shape &s = a.shape;
    const int32_t step = c.dilation_h * a.cut.tile_w;
    for (int32_t at = threadIdx.x; at < s.k_sharers * s.tile; at += THREADS) {
        const int32_t first = xn_divide(at, s.by_tile), p = at - first * s.tile;
        const int32_t y = xn_divide(p, s.by_tile_w), x = p - y * a.cut.tile_w;
        const bool exists = y < a.cut.tile_h;
        if (first == 0)
            taps[p] = !exists ? 0.0f
                              : (float)(c.group_channels * count_taps(c, b.out_y + y, b.out_x + x));
        for (int32_t g = first; g < b.groups; g += s.k_sharers) {
            float sum = 1.0f;
            if (c.epilogue.k && exists) {
                const float *line = lines + (g * s.in_h + y * c.stride_h) * a.cut.tile_w + x;
                sum = line[0];
#pragma unroll 4
                for (int32_t i = 1; i < c.kernel_h; i++)
                    sum += line[i * step];
            }
            box[g * s.tile + p] = sum;
        }
    }
}

#endif
