/* gemm_bands_out.cuh: from the counts of a job, 64 filters by N positions in the registers of a
 * warpgroup, to outputs. A warp has 16 filters: thread 4g + t has filters g and g + 8 (h = 0, 1),
 * of every 8 positions the pair 2t and 2t + 1: position 8j + 2t + e in counts[4j + 2h + e].
 *
 * Real outputs of a filter are neighbours in memory along the positions. A warp puts them into its
 * part of a stage in shared memory without those that only separate rows, where they make up runs
 * of memory that bulk copies take away; the warps never meet. For packed output a thread collects
 * the bits of its filters along the positions, 8 lanes turn 8 x 8 of them, and the warps put a
 * pixel's bits together in the stage. */
#ifndef XN_CUDA_GEMM_BANDS_OUT_CUH
#define XN_CUDA_GEMM_BANDS_OUT_CUH

#include "gemm_bands.cuh"

#if XN_HAS_WGMMA

/* What a block has of its filters. */
struct bands_table {
    char *rows;           /* int32_t [class][filter]; packed output: [class][odd][filter] */
    float *factor, *bias; /* of each filter; flips in the place of factor for packed output */
    uint32_t *largest;    /* bits of the largest |factor| and |bias| */
};

__device__ __forceinline__ bands_table table_of(const bands_args &a, char *memory) {
    bands_table t;
    t.rows = memory + a.shape.table_at;
    t.factor = (float *)(memory + a.shape.constants_at);
    t.bias = t.factor + a.shape.block_tiles * M;
    t.largest = (uint32_t *)(t.bias + a.shape.block_tiles * M);
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

/* ---- real outputs: ways out of the stage ---- */

/* A run: neighbours in the stage and in the output. */
struct bands_run {
    int64_t to;
    int32_t from, bytes;
};

/* Run r of a warp's filters from f on, of the group, and how many runs there are: images of 8
 * filters, or the rows of a filter, all at once where they are as wide as the image. */
struct bands_runs {
    int32_t count, half; /* in all; of 8 filters */
};

__device__ __forceinline__ bands_runs runs_of(const bands_args &a, const bands_origin &o) {
    const xn_cuda_bands_shape &s = a.shape;
    const int32_t each = s.whole               ? min(s.images, a.images - o.image)
                         : s.column_bands == 1 ? 8
                                               : 8 * min(s.rows, a.conv.out_height - o.y);
    return {2 * each, each};
}

template <int SIZE>
__device__ __forceinline__ bands_run run_of(const bands_args &a, const bands_job &job,
                                            const bands_origin &o, int32_t f, int32_t half,
                                            int32_t r) {
    const xn_cuda_bands_shape &s = a.shape;
    const xn_conv &c = a.conv;
    const int32_t plane_bytes = c.out_height * c.out_width * SIZE, h = r >= half;
    const int32_t from = h * s.stage_half;
    r -= h ? half : 0;
    f += h * 8;
    int32_t image = o.image, live = c.group_out_channels - f;
    if (s.whole) {
        const int32_t bytes = max(min(live, 8), 0) * plane_bytes;
        const int32_t first = (image + r) * c.out_channels + job.group * c.group_out_channels + f;
        return {(int64_t)first * plane_bytes, from + r * s.stage_image, bytes};
    }
    const int32_t rows = min(s.rows, c.out_height - o.y);
    const int32_t columns = min(s.columns, c.out_width - o.x);
    int32_t filter = r, row = 0, lines = rows;
    if (s.column_bands > 1) {
        filter = r / rows;
        row = r - filter * rows;
        lines = 1;
    }
    const int32_t first = image * c.out_channels + job.group * c.group_out_channels + f + filter;
    return {(int64_t)first * plane_bytes + ((o.y + row) * c.out_width + o.x) * SIZE,
            from + filter * s.stage_row + row * s.columns * SIZE,
            filter < live ? lines * columns * SIZE : 0};
}

template <typename T>
__device__ __forceinline__ void copy_run(char *to, const char *from, int32_t bytes) {
    for (int32_t at = (threadIdx.x & 31) * (int32_t)sizeof(T); at < bytes;
         at += 32 * (int32_t)sizeof(T))
        *(T *)(to + at) = *(const T *)(from + at);
}

/* A warp's runs leave: in the background where all are multiples of 16 bytes. */
template <int SIZE>
__device__ __forceinline__ void send_runs(const bands_args &a, const bands_job &job, int32_t f,
                                          const char *stage) {
    const bands_origin o = origin_of(a, job.band);
    const bands_runs runs = runs_of(a, o);
#pragma unroll 1
    for (int32_t begin = 0; begin < runs.count; begin += 32) {
        bands_run run = {0, 0, 0};
        if (begin + job.lane < runs.count)
            run = run_of<SIZE>(a, job, o, f, runs.half, begin + job.lane);
        char *to = (char *)a.output + run.to;
        const uint32_t odd =
            run.bytes ? (uint32_t)(uintptr_t)to | (uint32_t)run.from | (uint32_t)run.bytes : 0;
        if (__all_sync(0xffffffffu, odd % 16 == 0)) {
            if (run.bytes)
                xn_bulk_store(to, xn_shared_address(stage + run.from), (uint32_t)run.bytes);
            continue;
        }
        const bool words = __all_sync(0xffffffffu, odd % 4 == 0);
#pragma unroll 1
        for (int32_t n = 0; n < min(32, runs.count - begin); n++) {
            const uint32_t low = __shfl_sync(0xffffffffu, (uint32_t)run.to, n);
            const uint32_t high = __shfl_sync(0xffffffffu, (uint32_t)(run.to >> 32), n);
            const int32_t from = __shfl_sync(0xffffffffu, run.from, n);
            const int32_t bytes = __shfl_sync(0xffffffffu, run.bytes, n);
            char *there = (char *)a.output + (int64_t)((uint64_t)high << 32 | low);
            if (SIZE == 4 || words)
                copy_run<uint32_t>(there, stage + from, bytes);
            else
                copy_run<uint16_t>(there, stage + from, bytes);
        }
    }
}

/* ---- real outputs: into the stage ---- */

/* Whether no product or sum of the epilogue can overflow at any of a band's pixels. */
__device__ __forceinline__ bool cannot_overflow(const bands_args &a, const bands_table &t,
                                                const bands_records &records) {
    const float most = (float)(a.conv.group_channels * a.conv.kernel_h * a.conv.kernel_w);
    const uint32_t k = *records.largest_k();
    const float factor = fmaxf(__uint_as_float(t.largest[0]), 1.0f);
    const float bias = __uint_as_float(t.largest[1]); /* NaN: the comparison fails */
    return t.largest[0] < 0x7f800000u && k < 0x7f800000u &&
           __uint_as_float(k) * most * factor + bias < 3e38f;
}

/* Two neighbours of a filter into the stage, where they are outputs. */
template <typename T, bool PAIRED>
__device__ __forceinline__ void put(char *to, const int32_t (&place)[2], const float (&v)[2]) {
    constexpr bool HALF = sizeof(T) == 2;
    if constexpr (PAIRED) {
        if (place[0] != NO_OUTPUT && HALF)
            *(uint32_t *)(to + place[0]) = xn_half_pair(v[0], v[1]);
        if (place[0] != NO_OUTPUT && !HALF)
            *(float2 *)(to + place[0]) = make_float2(v[0], v[1]);
    } else {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (place[e] != NO_OUTPUT && HALF)
                *(__half *)(to + place[e]) = __float2half_rn(v[e]);
            if (place[e] != NO_OUTPUT && !HALF)
                *(float *)(to + place[e]) = v[e];
        }
    }
}

/* The records of neighbouring groups of 8 positions. */
template <int BATCH>
struct bands_batch {
    int4 sums[BATCH], places[BATCH];

    __device__ __forceinline__ void load(const bands_records &records, int32_t pair) {
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            sums[n] = records.sums(pair + 4 * n);
            places[n] = records.places(pair + 4 * n);
        }
    }
};

/* All outputs of a thread. MAGIC is in the pixels' parts for floats. Some groups at a time have all
 * their loads before their stores, and the next ones' records are loaded meanwhile: a warp is alone
 * with its latencies, and the compiler moves no load before a store. */
template <int N, int OUT, typename T, bool PAIRED, bool SAFE>
__device__ __forceinline__ void fill_stage(const bands_args &a, const bands_table &t,
                                           const bands_records &records, const bands_job &job,
                                           char *stage, const int32_t (&counts)[N / 2]) {
    constexpr int BATCH = N <= 128 || OUT != XN_INT32 ? 2
                          : N > 224                   ? 3
                                                      : 4; /* what registers allow */
    const int32_t g = job.lane >> 2, filter = job.tile * M + job.warp * 16 + g;
    const char *rows = t.rows + filter * 4;
    const float factor[2] = {t.factor[filter], t.factor[filter + 8]};
    const float bias[2] = {t.bias[filter], t.bias[filter + 8]};
    char *to[2] = {stage + g * a.shape.stage_row,
                   stage + g * a.shape.stage_row + a.shape.stage_half};
    bands_batch<BATCH> now, next;
    next.load(records, job.lane & 3);
#pragma unroll
    for (int first = 0; first < N / 8; first += BATCH) {
        if (first * 8 >= a.shape.extent)
            break;
        int32_t parts[BATCH][2][2];
        now = next;
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const int32_t part[2] = {now.sums[n].x, now.sums[n].y};
            const char *row[2] = {rows + now.sums[n].z, rows + now.sums[n].w};
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    parts[n][h][e] = part[e] + *(const int32_t *)(row[e] + h * 32);
        }
        if (first + BATCH < N / 8)
            next.load(records, 4 * (first + BATCH) + (job.lane & 3));
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const float k[2] = {__int_as_float(now.places[n].x), __int_as_float(now.places[n].y)};
            const int32_t place[2] = {now.places[n].z, now.places[n].w};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float v[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int32_t whole = parts[n][h][e] + 4 * counts[4 * (first + n) + 2 * h + e];
                    const float dot = __int_as_float(whole) - __int_as_float(MAGIC);
                    v[e] = OUT == XN_INT32 ? __int_as_float(whole)
                           : SAFE          ? fmaf(dot * k[e], factor[h], bias[h])
                                           : xn_scaled_epilogue(dot, k[e], factor[h], bias[h]);
                }
                put<T, PAIRED>(to[h], place, v);
            }
        }
    }
}

template <int N, int OUT, typename T>
__device__ __forceinline__ void write_real(const bands_args &a, const bands_block &b,
                                           const bands_table &t, const bands_records &records,
                                           const bands_job &job, const int32_t (&counts)[N / 2]) {
    const xn_cuda_bands_shape &s = a.shape;
    const int32_t consumer = s.shared_stage ? 0 : job.consumer;
    char *stage = b.memory + s.stage_at + consumer * s.stage_bytes + job.warp * 2 * s.stage_half;
    const uint32_t mine = barrier_at(b.barriers, STAGES + job.warp);
    if (!s.shared_stage)
        xn_bulk_wait_read();
    else if (job.number > 0) /* the job before, by another warpgroup, has sent its outputs */
        xn_mbarrier_wait(mine, (uint32_t)(job.number - 1) & 1);
    __syncwarp();
    if (OUT != XN_INT32 && !cannot_overflow(a, t, records))
        fill_stage<N, OUT, T, false, false>(a, t, records, job, stage, counts);
    else if (s.paired)
        fill_stage<N, OUT, T, true, true>(a, t, records, job, stage, counts);
    else
        fill_stage<N, OUT, T, false, true>(a, t, records, job, stage, counts);
    xn_fence_proxy();
    __syncwarp();
    send_runs<sizeof(T)>(a, job, job.m + job.warp * 16, stage);
    xn_bulk_commit();
    if (!s.shared_stage)
        return;
    xn_bulk_wait_read();
    __syncwarp();
    if (job.lane == 0)
        xn_mbarrier_arrive(mine);
}

/* ---- packed outputs ---- */

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
__device__ __forceinline__ void write_packed(const bands_args &a, const bands_block &b,
                                             const bands_table &t, const bands_records &records,
                                             const bands_job &job, const int32_t (&counts)[N / 2]) {
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
    const uint32_t *flips = (const uint32_t *)t.factor + job.tile * 2;
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

template <int N, int OUT>
__device__ __forceinline__ void
write_outputs(const bands_args &a, const bands_block &b, const bands_table &t,
              const bands_records &records, const bands_job &job, const int32_t (&counts)[N / 2]) {
    if constexpr (OUT == XN_CUDA_BANDS_PACKED)
        write_packed<N>(a, b, t, records, job, counts);
    else if constexpr (OUT == XN_FP16)
        write_real<N, OUT, __half>(a, b, t, records, job, counts);
    else
        write_real<N, OUT, float>(a, b, t, records, job, counts);
}

#endif
#endif
