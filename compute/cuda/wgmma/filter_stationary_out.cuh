/* filter_stationary_out.cuh: from the counts of a subtile, 64 pixels by NT filters in the registers
 * of a warpgroup, to outputs. A warp has 16 pixels: thread 4g + t has pixels g and g + 8 (h = 0,
 * 1), and of every 32 filters (a word b) the 8 neighbours from 8t on, filter 8t + 2j + e in
 * counts[16b + 4j + 2h + e]. For packed output a warp needs no other. Other outputs are planes of
 * pixels, and memory takes whole lines at several times the rate of the 32 bytes that 8 lanes have
 * at once: the warpgroup turns them in shared memory. */
#ifndef XN_CUDA_FILTER_STATIONARY_OUT_CUH
#define XN_CUDA_FILTER_STATIONARY_OUT_CUH

#include "filter_stationary.cuh"

#if XN_HAS_WGMMA

/* ---- packed ---- */

/* Byte n of thread t's word becomes byte t of thread n's, in a quad of lanes. */
__device__ __forceinline__ uint32_t turn_bytes(uint32_t word, int32_t t) {
    const uint32_t near = __shfl_xor_sync(0xffffffffu, word, 1);
    word = xn_permute(word, near, t & 1 ? 0x3715 : 0x6240);
    const uint32_t far = __shfl_xor_sync(0xffffffffu, word, 2);
    return xn_permute(word, far, t & 2 ? 0x3276 : 0x5410);
}

/* Appends to `bits` the outputs of pixel h, the first filter lowest. */
template <int NT>
__device__ __forceinline__ uint32_t threshold_bits(const int32_t *limits, int32_t part, int h,
                                                   const int32_t (&counts)[NT / 2], uint32_t bits) {
#pragma unroll
    for (int b = NT / 32 - 1; b >= 0; b--) {
        const int4 low = *(const int4 *)(limits + b * 32);
        const int4 high = *(const int4 *)(limits + b * 32 + 4);
        const int32_t limit[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int f = 7; f >= 0; f--) {
            const int32_t count = counts[b * 16 + f / 2 * 4 + h * 2 + f % 2];
            bits = __funnelshift_l((uint32_t)(limit[f] + part - count), bits, 1);
        }
    }
    return bits;
}

/* A thread ends up with one word of a pixel: of its NT / 32 words of two pixels as many as fit the
 * 4 lanes of a quad. */
template <int NT>
__device__ __forceinline__ void write_packed(const stationary_args &a, const stationary_block &b,
                                             const stationary_pixel *pixels, int32_t column,
                                             const int32_t (&counts)[NT / 2]) {
    constexpr int WORDS = NT / 32;
    const int32_t t = threadIdx.x & 3;
    const int32_t words = a.conv.groups > 1 ? a.conv.group_out_channels / 32 : a.shape.packed_words;
    const int32_t first = b.group * words + (b.m0 + column) / 32;
    const int32_t w = t % WORDS;
    const bool live = (b.m0 + column) / 32 + w < words;
    const uint32_t flip = b.flips[column / 32 + w];
    uint32_t bits = 0;
#pragma unroll
    for (int h = 1; h >= 0; h--) {
        const stationary_pixel pixel = pixels[h * 8];
        bits =
            threshold_bits<NT>(b.table + pixel.row + column + 8 * t, pixel.part, h, counts, bits);
        if (WORDS == 4) {
            bits = turn_bytes(bits, t);
            if (live && pixel.base >= 0)
                a.io.packed[pixel.base + first + w] = bits ^ flip;
        }
    }
    if (WORDS < 4) {
        bits = turn_bytes(bits, t);
        const int64_t base = pixels[t / WORDS % 2 * 8].base;
        if (t < 2 * WORDS && live && base >= 0)
            a.io.packed[base + first + w] = bits ^ flip;
    }
}

/* ---- INT32 and floats ---- */

/* Four dots of a pixel, as floats where MAGIC is in its part, else as integers in their place. */
template <int OUT>
__device__ __forceinline__ void four_dots(const int32_t *table, const int32_t *counts,
                                          const stationary_pixel &p, float (&dot)[4]) {
    const int4 part = *(const int4 *)(table + p.row);
    const int32_t parts[4] = {part.x, part.y, part.z, part.w};
    const int32_t count[4] = {counts[0], counts[1], counts[4], counts[5]};
#pragma unroll
    for (int r = 0; r < 4; r++) {
        dot[r] = __int_as_float(p.part + parts[r] + 4 * count[r]);
        if (OUT != XN_INT32)
            dot[r] -= __int_as_float(MAGIC);
    }
}

/* The filter, of 32, that column n of the matrix instruction has. */
__device__ __forceinline__ int32_t filter_of_column(int32_t n) {
    return (n >> 1 & 3) * 8 + (n >> 3) * 2 + (n & 1);
}

/* Bytes from column to column of a turned pass: what a warp writes at once lies in different
 * banks. */
template <typename T>
struct turn_pitch {
    enum { BYTES = (SUB + 16 / sizeof(T)) * sizeof(T) };
};

/* Four filters of each of a thread's two pixels into a turned pass. fp16: as 8 x 8 matrices. */
__device__ __forceinline__ void put_turned(const float (&v)[2][4], int32_t own, char *turn,
                                           const __half *) {
    const int32_t lane = threadIdx.x & 31, column = (lane >> 4) * 8 + (lane & 7);
    const uint32_t pairs[4] = {xn_fp16_pair(v[0][0], v[0][1]), xn_fp16_pair(v[1][0], v[1][1]),
                               xn_fp16_pair(v[0][2], v[0][3]), xn_fp16_pair(v[1][2], v[1][3])};
    xn_store_matrices<true>(xn_shared_address(turn) + column * turn_pitch<__half>::BYTES +
                                (own + (lane >> 3 & 1) * 8) * 2,
                            pairs);
}

__device__ __forceinline__ void put_turned(const float (&v)[2][4], int32_t own, char *turn,
                                           const float *) {
    const int32_t lane = threadIdx.x & 31;
    char *to = turn + (lane & 3) * 2 * turn_pitch<float>::BYTES + (own + (lane >> 2)) * 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int r = 0; r < 4; r++)
            *(float *)(to + (r / 2 * 8 + r % 2) * turn_pitch<float>::BYTES + h * 32) = v[h][r];
}

/* A thread stores BYTES of neighbouring pixels of every WORKER / LANES-th column, from
 * the filter of `to` on; `left` filters from there are live. */
template <int BYTES, int LANES, int PITCH>
__device__ __forceinline__ void store_turned(const char *turn, char *to, int64_t plane_bytes,
                                             int32_t left) {
#pragma unroll
    for (int n = 0; n < 16 * LANES / WORKER; n++) {
        const int column = n * (WORKER / LANES); /* more; disjoint bits, so filters add up */
        const int more = (column >> 1 & 3) * 8 + (column >> 3) * 2;
        xn_copy_out<BYTES>(to + more * plane_bytes, turn + column * PITCH, more < left);
    }
}

/* A plain subtile once it is known how many pixels a thread stores at a time. A warpgroup turns 16
 * filters at a time in shared memory, where pixels become neighbours, and stores them by whole
 * lines. It does so in two places by turns: by the meeting of the next pass all have read the one
 * before. */
template <int NT, int OUT, typename T, int VECTOR>
__device__ __forceinline__ void write_plain(const stationary_args &a, const stationary_block &b,
                                            const stationary_worker &w,
                                            const stationary_pixel *pixels, const float *boxes,
                                            int32_t block_column, const int32_t (&counts)[NT / 2]) {
    constexpr int32_t PITCH = turn_pitch<T>::BYTES, SIZE = sizeof(T);
    constexpr int32_t LANES = VECTOR > 1 ? SUB / VECTOR : 32;
    const int64_t plane_bytes = (int64_t)a.conv.out_height * a.conv.out_width * SIZE;
    const int32_t own = w.thread / 32 * 16, first = w.thread % LANES * VECTOR;
    const int32_t filter = filter_of_column(w.thread / LANES), m = b.m0 + block_column;
    const int64_t base = pixels[first].base, next = VECTOR > 1 ? 0 : pixels[first + 32].base;
    char *to = (char *)a.out.output + base * SIZE +
               (int64_t)(b.group * a.conv.group_out_channels + m + filter) * plane_bytes;
    const char *from = w.turn + w.thread / LANES * PITCH + first * SIZE;
    const int32_t column = block_column + 8 * (w.thread & 3);
    stationary_pixel p[2];
    float box[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        p[h] = pixels[own + w.thread % 32 / 4 + h * 8];
        box[h] = OUT == XN_INT32 ? 1.0f : boxes[own + w.thread % 32 / 4 + h * 8];
    }
#pragma unroll
    for (int q = 0; q < NT / 16; q++) {
        const int32_t at = column + q / 2 * 32 + q % 2 * 4;
        const int32_t left = a.conv.group_out_channels - m - filter - q / 2 * 32 - q % 2 * 4;
        float factor[4], bias[4], v[2][4];
        if (OUT != XN_INT32) {
            *(float4 *)factor = *(const float4 *)(b.constants.factor + at);
            *(float4 *)bias = *(const float4 *)(b.constants.bias + at);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            four_dots<OUT>(b.table + at, &counts[q * 8 + h * 2], p[h], v[h]);
#pragma unroll
            for (int r = 0; r < 4 && OUT != XN_INT32; r++)
                v[h][r] = xn_value(v[h][r], box[h], {factor[r], bias[r]});
        }
        put_turned(v, own, w.turn + q % 2 * 16 * PITCH, (const T *)nullptr);
        worker_barrier(w);
        char *pass = to + (q / 2 * 32 + q % 2 * 4) * plane_bytes;
        const char *turned = from + q % 2 * 16 * PITCH;
        store_turned<VECTOR * SIZE, LANES, PITCH>(turned, pass, plane_bytes, base >= 0 ? left : 0);
        if (VECTOR == 1)
            store_turned<SIZE, LANES, PITCH>(turned + 32 * SIZE, pass + (next - base) * SIZE,
                                             plane_bytes, next >= 0 ? left : 0);
    }
}

/* V neighbouring outputs of the block's filter m, from their dots. Where bits are wanted y takes
 * the dots' place. */
template <int V>
__device__ __forceinline__ void
finish_outputs(const stationary_args &a, const stationary_block &b, const float *boxes, int32_t m,
               int32_t o, int64_t index, const xn_residual_vector<V> &residual, float *dots) {
    const xn_filter f = {b.constants.factor[m], b.constants.bias[m]};
    float y[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        y[v] = xn_value(dots[v], boxes[v], f);
        if (a.out.what.residual)
            y[v] += residual.at(a.out, v);
    }
    if (a.out.what.activation != XN_ACTIVATION_NONE) {
        const xn_activation_of_filter activate(a.out, o);
#pragma unroll
        for (int v = 0; v < V; v++)
            y[v] = activate(y[v]);
    }
    if (a.out.what.datatype != XN_BITS)
        xn_store_reals(a.out, index, y);
    if (a.out.what.bits)
        xn_store(dots, y);
}

/* A pass of 16 filters of a subtile, whose dots lie turned in shared memory, to outputs. A thread
 * has V neighbouring pixels of some filters. m: the first filter, of the block. Where bits are
 * wanted y takes the place of the dot. */
template <int V>
__device__ __forceinline__ void
finish_pass(const stationary_args &a, const stationary_block &b, const stationary_worker &w,
            const stationary_pixel *pixels, const float *boxes, int32_t m, char *turned) {
    constexpr int LANES = SUB / V, STEP = WORKER / LANES, BATCH = V == 1 ? 4 : 2; /* columns */
    const int32_t first = w.thread % LANES * V, live = a.conv.group_out_channels - b.m0 - m;
    const int32_t o = b.group * a.conv.group_out_channels + b.m0 + m;
    const int64_t plane = (int64_t)a.conv.out_height * a.conv.out_width;
    const int64_t base = pixels[first].base;
#pragma unroll 1
    for (int32_t column = w.thread / LANES; column < 16 && base >= 0; column += BATCH * STEP) {
        xn_residual_vector<V> residual[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH && a.out.what.residual; n++) {
            const int32_t filter = filter_of_column(column + n * STEP);
            residual[n].load(a.out, base + (o + filter) * plane, filter < live);
        }
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const int32_t filter = filter_of_column(column + n * STEP);
            char *row = turned + (column + n * STEP) * turn_pitch<float>::BYTES;
            if (filter < live)
                finish_outputs<V>(a, b, boxes + first, m + filter, o + filter,
                                  base + (o + filter) * plane, residual[n], (float *)row + first);
        }
    }
}

/* The bits of half of the pass's columns, every second thread's the other half, of a pixel. */
__device__ __forceinline__ uint32_t bits_of_pass(const stationary_args &a,
                                                 const stationary_worker &w, int32_t o,
                                                 int32_t live, const char *turned) {
    uint32_t bits = 0;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const int32_t column = w.thread % 2 * 8 + n, filter = filter_of_column(column);
        if (filter < live)
            bits |= xn_output_bit(a.out, o + filter,
                                  *(const float *)(turned + column * turn_pitch<float>::BYTES +
                                                   w.thread / 2 * 4))
                    << filter;
    }
    return bits;
}

/* The bits of 32 filters from o on, of an output pixel. */
__device__ __forceinline__ void store_word(const stationary_args &a, const position &p, int32_t o,
                                           uint32_t word) {
    const xn_conv &c = a.conv;
    const int64_t plane = (int64_t)c.out_height * c.out_width;
    const int64_t pixel = p.image * plane + p.row * c.out_width + p.column;
    if (xn_has_half_words(c))
        a.out.bits[pixel * (c.out_channels / 32) + o / 32] = word;
    else
        xn_add_bits(a.out, c.out_channels, pixel, o, word);
}

/* A subtile whatever the epilogue is: as write_plain, but dots are turned, and a third step makes
 * words of the bits. raster: of its first position. */
template <int NT, int V>
__device__ __forceinline__ void
write_rest(const stationary_args &a, const stationary_block &b, const stationary_worker &w,
           const stationary_pixel *pixels, const float *boxes, int32_t raster, int32_t column,
           const int32_t (&counts)[NT / 2]) {
    constexpr int32_t PITCH = turn_pitch<float>::BYTES;
    const xn_conv &c = a.conv;
    const int32_t lane = w.thread % 32, own = w.thread / 32 * 16;
    uint32_t word = 0;
#pragma unroll
    for (int q = 0; q < NT / 16; q++) {
        const int32_t m = column + q / 2 * 32 + q % 2 * 4, live = c.group_out_channels - b.m0 - m;
        const int32_t o = b.group * c.group_out_channels + b.m0 + m;
        char *turned = w.turn + q % 2 * 16 * PITCH;
        float dot[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++)
            four_dots<XN_CUDA_STATIONARY_ANY>(b.table + m + 8 * (lane & 3), &counts[q * 8 + h * 2],
                                              pixels[own + lane / 4 + h * 8], dot[h]);
        put_turned(dot, own, turned, (const float *)nullptr);
        worker_barrier(w);
        finish_pass<V>(a, b, w, pixels, boxes, m, turned);
        if (!a.out.what.bits)
            continue;
        worker_barrier(w);
        word |= bits_of_pass(a, w, o, live, turned) << q % 2 * 4;
        if (q % 2) {
            const int32_t n = w.thread / 2;
            word |= __shfl_xor_sync(0xffffffffu, word, 1);
            if (w.thread % 2 == 0 && pixels[n].base >= 0 && live + 4 > 0)
                store_word(a, position_of(a, raster + n), o - 4, word);
            word = 0;
        }
    }
}

__device__ __forceinline__ int32_t bits_of_and(const uint4 &x, const uint4 &y) {
    return __popc(x.x & y.x) + __popc(x.y & y.y) + __popc(x.z & y.z) + __popc(x.w & y.w);
}

/* An output of the block's filter m at a position of the raster, where fp32 may not hold all of it.
 * Its bit comes back. */
__device__ __forceinline__ uint32_t any_output(const stationary_args &a, const stationary_block &b,
                                               const position &p, const stationary_pixel &pixel,
                                               float box, int32_t m, float dot) {
    const xn_conv &c = a.conv;
    const int32_t o = b.group * c.group_out_channels + b.m0 + m;
    const xn_filter f = {b.constants.factor[m], b.constants.bias[m]};
    float v[1] = {xn_value_or_again(a.out, f, o, dot, box, [&]() {
        const int64_t image = (int64_t)p.image * c.groups + b.group;
        return xn_box_of_means<double>(c, a.io.mean + image * c.height * c.width, p.row, p.column);
    })};
    return xn_finish_and_store<1, false>(a.out, o,
                                         pixel.base + o * ((int64_t)c.out_height * c.out_width), v);
}

/* The count of a pixel and filter, from shared memory. */
template <int NT>
__device__ __forceinline__ int32_t count_again(const stationary_args &a, const uint4 *positions,
                                               const uint4 *filters, int32_t pixel, int32_t m) {
    const int32_t step = a.shape.block_tiles * NT * 2, row = (int32_t)xn_cuda_wgmma_row(m);
    const uint4 *filter = filters + row / 8 * 16 + row % 8;
    int32_t count = 0;
#pragma unroll 1
    for (int32_t pair = 0; pair < a.shape.pairs; pair++, filter += step) {
        const uint32_t low = a.shape.pair_low[pair];
        const uint4 *at = positions + pixel + (low & 0xffff);
        count += bits_of_and(at[0], filter[0]) + bits_of_and(at[low >> 16], filter[8]);
    }
    return count;
}

/* A subtile that fp32 may overflow in, from its positions and the filters in shared memory again:
 * what the matrix unit counted would take the registers that this wants. A thread has 32 filters of
 * a pixel. */
template <int NT>
__device__ __forceinline__ void write_again(const stationary_args &a, const stationary_block &b,
                                            const stationary_worker &w, const uint4 *positions,
                                            const uint4 *filters, const stationary_pixel *pixels,
                                            const float *boxes, int32_t raster, int32_t column) {
    const int32_t live = a.conv.group_out_channels - b.m0;
#pragma unroll 1
    for (int32_t task = w.thread; task < SUB * (NT / 32); task += WORKER) {
        const int32_t n = task % SUB, first = column + task / SUB * 32;
        if (pixels[n].base == NO_OUTPUT || first >= live)
            continue;
        const position p = position_of(a, raster + n);
        uint32_t word = 0;
#pragma unroll 1
        for (int32_t m = first; m < min(first + 32, live); m++) {
            const int32_t count = count_again<NT>(a, positions, filters, n, m);
            const float dot =
                __int_as_float(pixels[n].part + b.table[pixels[n].row + m] + 4 * count) -
                __int_as_float(MAGIC);
            word |= any_output(a, b, p, pixels[n], boxes[n], m, dot) << (m - first);
        }
        if (a.out.what.bits)
            store_word(a, p, b.group * a.conv.group_out_channels + b.m0 + first, word);
    }
}

/* Whether no product or sum of the epilogue can overflow at any of a subtile's pixels. All warps of
 * the worker ask for the same pixels, since together they store what each has turned. */
__device__ __forceinline__ bool cannot_overflow(const stationary_args &a, const stationary_block &b,
                                                const float *boxes) {
    const int32_t lane = threadIdx.x & 31;
    return __all_sync(0xffffffffu, b.constants.cannot_overflow(a.conv, boxes[lane]) &&
                                       b.constants.cannot_overflow(a.conv, boxes[lane + 32]));
}

template <int NT, int OUT, typename T>
__device__ __forceinline__ void write_real(const stationary_args &a, const stationary_block &b,
                                           const stationary_worker &w, int32_t subtile,
                                           int32_t column, const int32_t (&counts)[NT / 2]) {
    constexpr int32_t MOST = 16 / sizeof(T);
    const stationary_pixel *pixels = w.pixels + subtile * SUB;
    const float *boxes = w.boxes + subtile * SUB;
    if (a.vector >= MOST)
        write_plain<NT, OUT, T, MOST>(a, b, w, pixels, boxes, column, counts);
    else if (a.vector >= 4)
        write_plain<NT, OUT, T, 4>(a, b, w, pixels, boxes, column, counts);
    else
        write_plain<NT, OUT, T, 1>(a, b, w, pixels, boxes, column, counts);
}

template <int NT>
__device__ __forceinline__ void
write_rest_of(const stationary_args &a, const stationary_block &b, const stationary_worker &w,
              int32_t subtile, int32_t raster, int32_t column, const int32_t (&counts)[NT / 2]) {
    const stationary_pixel *pixels = w.pixels + subtile * SUB;
    const float *boxes = w.boxes + subtile * SUB;
    if (a.vector >= 4)
        write_rest<NT, 4>(a, b, w, pixels, boxes, raster, column, counts);
    else
        write_rest<NT, 1>(a, b, w, pixels, boxes, raster, column, counts);
}

/* A subtile's outputs; raster: of its first position. */
template <int NT, int OUT>
__device__ __forceinline__ void
write_outputs(const stationary_args &a, const stationary_block &b, const stationary_worker &w,
              int32_t subtile, int32_t raster, int32_t column, const int32_t (&counts)[NT / 2]) {
    if constexpr (OUT == XN_CUDA_STATIONARY_PACKED)
        write_packed<NT>(a, b, w.pixels + subtile * SUB + w.thread / 32 * 16 + w.thread % 32 / 4,
                         column, counts);
    else if constexpr (OUT == XN_CUDA_STATIONARY_ANY)
        write_rest_of<NT>(a, b, w, subtile, raster, column, counts);
    else if constexpr (OUT == XN_FP16)
        write_real<NT, OUT, __half>(a, b, w, subtile, column, counts);
    else
        write_real<NT, OUT, float>(a, b, w, subtile, column, counts);
}

#endif
#endif
