/* gemm_bands_out.cuh: from the counts of a job, 64 filters by N positions in the registers of a
 * warpgroup, to packed outputs. A warp has 16 filters: thread 4g + t has filters g and g + 8 (h =
 * 0, 1), of every 8 positions the pair 2t and 2t + 1: position 8j + 2t + e in counts[4j + 2h + e].
 * A thread collects the bits of its filters along the positions, 8 lanes turn 8 x 8 of them, and
 * the warps put a pixel's bits together in a stage in shared memory. */
#ifndef XN_CUDA_GEMM_BANDS_OUT_CUH
#define XN_CUDA_GEMM_BANDS_OUT_CUH

#include "gemm_bands.cuh"

#if XN_HAS_WGMMA

/* What a block has of its filters. */
struct bands_table {
    char *rows;      /* int32_t [class][odd][filter] */
    uint32_t *flips; /* a bit a filter */
};

__device__ __forceinline__ bands_table table_of(const bands_args &a, char *memory) {
    bands_table t;
    t.rows = memory + a.shape.table_at;
    t.flips = (uint32_t *)(memory + a.shape.flips_at);
    return t;
}

/* A job: a filter tile of a band, by one warpgroup. */
struct bands_job {
    int32_t group, m; /* its first filter, of the group */
    int32_t tile;     /* of the block's */
    int32_t number;   /* of the block's jobs */
    int32_t band, consumer;
    int32_t warp, lane; /* of the warpgroup */
};

/* Of each byte, bit n of lane 4g + t becomes bit g of lane 4n + t. */
__device__ __forceinline__ uint32_t turn_bits(uint32_t bits, int32_t lane) {
#pragma unroll
    for (int step = 1; step < 8; step *= 2) {
        const uint32_t low = step == 1 ? 0x55555555u : step == 2 ? 0x33333333u : 0x0f0f0f0fu;
        const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, step * 4);
        bits = lane & step * 4 ? (bits & ~low) | (other >> step & low)
                               : (bits & low) | (other << step & ~low);
    }
    return bits;
}

/* The sums of groups of 8 positions from `last` down, which may be before `first`. */
template <int BATCH>
__device__ __forceinline__ void load_sums(const bands_records &records, int last, int first,
                                          int32_t pair, int4 (&sums)[BATCH]) {
#pragma unroll
    for (int n = 0; n < BATCH; n++)
        sums[n] = records.sums(4 * max(last - n, first) + pair);
}

template <int N>
__device__ __forceinline__ void
write_outputs(const bands_args &a, const bands_block &b, const bands_table &t,
              const bands_records &records, const bands_job &job, const int32_t (&counts)[N / 2]) {
    constexpr int WORDS = (N / 8 + 15) / 16;
    const xn_cuda_bands_shape &s = a.shape;
    const int32_t g = job.lane >> 2, pair = job.lane & 3;
    const char *rows = t.rows + (job.tile * M + job.warp * 16 + g) * 4;
    char *stage = b.memory + s.stage_at + job.consumer * s.stage_bytes +
                  job.number / s.consumers % 2 * (N * 8);
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        uint32_t bits[2] = {0, 0};
        constexpr int BATCH = 4;
        const int last = min(w * 16 + 16, N / 8) - 1;
        int4 now[BATCH], next[BATCH];
        load_sums<BATCH>(records, last, w * 16, pair, next);
#pragma unroll
        for (int top = last; top >= w * 16; top -= BATCH) {
            int32_t limits[BATCH][2][2];
#pragma unroll
            for (int n = 0; n < BATCH; n++)
                now[n] = next[n];
#pragma unroll
            for (int n = 0; n < BATCH; n++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    limits[n][h][0] = *(const int32_t *)(rows + now[n].z + h * 32);
                    limits[n][h][1] = *(const int32_t *)(rows + now[n].w + h * 32);
                }
            load_sums<BATCH>(records, top - BATCH, w * 16, pair, next);
#pragma unroll
            for (int n = 0; n < BATCH; n++)
#pragma unroll
                for (int h = 0; h < 2 && top - n >= w * 16; h++) {
                    const int32_t *count = counts + 4 * (top - n) + 2 * h;
                    const int32_t second = limits[n][h][1] + now[n].y - count[1];
                    const int32_t first = limits[n][h][0] + now[n].x - count[0];
                    bits[h] = __funnelshift_l((uint32_t)second, bits[h], 1);
                    bits[h] = __funnelshift_l((uint32_t)first, bits[h], 1);
                }
        }
        const uint32_t low = turn_bits(bits[0], job.lane), high = turn_bits(bits[1], job.lane);
        const uint32_t halves[2] = {xn_permute(low, high, 0x5140), xn_permute(low, high, 0x7362)};
        char *to = stage + ((w * 16 + g / 2) * 8 + 2 * pair + g % 2) * 8 + job.warp * 2;
#pragma unroll
        for (int q = 0; q < 4; q++)
            if (w * 16 + q * 4 + g / 2 < N / 8)
                *(uint16_t *)(to + q * 4 * 64) = (uint16_t)(halves[q / 2] >> q % 2 * 16);
    }
    xn_named_barrier(GROUP_MEETS + job.consumer, GROUP);
    const int32_t words = a.conv.groups > 1 ? a.conv.group_out_channels / 32 : s.packed_words;
    const int32_t first = job.m / 32, live = words - first;
    const uint32_t *flips = t.flips + job.tile * 2;
    uint32_t *output = a.io.packed + (job.group * words + first);
    for (int32_t m = job.warp * 32 + job.lane; m < N; m += GROUP) {
        const int32_t pixel = records.place(m);
        if (pixel == NO_OUTPUT)
            continue;
        uint2 v = *(const uint2 *)(stage + m * 8);
        uint32_t *at = output + (int64_t)pixel * s.packed_words;
        v.x ^= flips[0];
        v.y ^= flips[1];
        if (live > 1 && (uint32_t)(uintptr_t)at % 8 == 0) {
            *(uint2 *)at = v;
            continue;
        }
        at[0] = v.x;
        if (live > 1)
            at[1] = v.y;
    }
}

#endif
#endif
