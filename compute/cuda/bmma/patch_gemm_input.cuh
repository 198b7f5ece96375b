/* patch_gemm_input.cuh: step 1 of patch_gemm.cu: the inputs of a tile as two images of fields, and
 * the means of their magnitudes, or their
 * sums in layers of an octet. Where rows are whole vectors in memory a thread takes a run of
 * them and up to 8 channels, else a pixel and up to 16. */
#ifndef XN_CUDA_PATCH_GEMM_INPUT_CUH
#define XN_CUDA_PATCH_GEMM_INPUT_CUH

#include "load_run.cuh"
#include "patch_gemm_shape.cuh"

#include <type_traits>

enum {
    IN_FLIGHT = 16, /* elements a thread reads at a time: so many channels of one pixel, or fewer of
                       several */
};

/* ---- pixel by pixel ---- */

/* Which input column lies at a position of a staged row. */
__device__ __forceinline__ int32_t column_at(const patch_args &a, int32_t position) {
    const int32_t d = a.conv.dilation_w;
    const int32_t phase = d == 1 ? 0 : xn_divide(position, a.shape.by_phase_w);
    return (position - phase * a.shape.phase_w) * d + phase;
}

/* Where a column from the first that a window reads on lies. */
__device__ __forceinline__ int32_t position_of(const patch_args &a, int32_t column) {
    const int32_t d = a.conv.dilation_w;
    return d == 1 ? column + a.shape.lead : column % d * a.shape.phase_w + column / d;
}

/* The input from element `first` on: fp32 and fp16 as such, what else there is by a branch a pixel,
 * which keeps the kernel small. read: elements `step` apart, of which `count` exist; 0 past them.
 */
template <class T>
struct patch_input {
    const T *data;
    int64_t first;
    template <int CHANNELS>
    __device__ __forceinline__ void read(int32_t index, int32_t step, int32_t count,
                                         float (&values)[CHANNELS]) const {
        const T *from = data + first;
#pragma unroll
        for (int n = 0; n < CHANNELS; n++, index += step) {
            values[n] = 0.0f;
            if (n < count)
                values[n] = xn_to_fp32(from[index]);
        }
    }
};

struct patch_any_input {
    const void *data;
    int64_t first;
    int32_t datatype;
    template <int CHANNELS>
    __device__ __forceinline__ void read(int32_t index, int32_t step, int32_t count,
                                         float (&values)[CHANNELS]) const {
        xn_with_other_input(data, datatype, [&](auto *from) {
            patch_input<std::remove_cv_t<std::remove_pointer_t<decltype(from)>>>{from, first}.read(
                index, step, count, values);
        });
    }
};

/* A pixel that a lane stages. */
struct patch_pixel {
    int32_t row, position; /* of the stage; row in_h and on: none */
    int32_t offset;        /* in the image's plane; -1: outside */
};

__device__ __forceinline__ patch_pixel find_pixel(const patch_args &a, const patch_block &b,
                                                  int32_t at) {
    const xn_conv &c = a.conv;
    const patch_shape &s = a.shape;
    patch_pixel p;
    p.row = xn_divide(at, s.by_width);
    p.position = at - p.row * s.width;
    const int32_t column = column_at(a, p.position);
    const int32_t y = b.out_y * c.stride_h - c.pad_top + p.row;
    const int32_t x = b.out_x * c.stride_w - c.pad_left + column;
    const bool inside = (uint32_t)y < (uint32_t)c.height && (uint32_t)x < (uint32_t)c.width &&
                        column < s.in_w && p.row < s.in_h;
    p.offset = inside ? y * c.width + x : -1;
    return p;
}

/* Writes the fields of positive and negative signs of this lane and its neighbours, a byte at
 * least, where `valid`. All lanes; 8 neighbours are of one row. */
__device__ __forceinline__ void write_fields(uint32_t *positives, uint32_t *negatives,
                                             int32_t position, bool valid, int32_t field_log2,
                                             uint32_t positive, uint32_t negative) {
    if (field_log2 == 5) {
        if (valid) {
            positives[position] = positive;
            negatives[position] = negative;
        }
    } else if (field_log2 == 4) {
        if (valid) {
            ((uint16_t *)positives)[position] = (uint16_t)positive;
            ((uint16_t *)negatives)[position] = (uint16_t)negative;
        }
    } else {
        uint32_t both = negative << 16 | positive;
        for (int32_t log2 = field_log2; log2 < 3; log2++) /* two lanes' into the lower one's */
            both |= __shfl_down_sync(0xffffffffu, both, 1 << (log2 - field_log2)) << (1 << log2);
        if (valid && (position & ((8 >> field_log2) - 1)) == 0) {
            ((uint8_t *)positives)[position >> (3 - field_log2)] = (uint8_t)both;
            ((uint8_t *)negatives)[position >> (3 - field_log2)] = (uint8_t)(both >> 16);
        }
    }
}

/* The fields of a staged pixel, from the signs of its channels. All lanes. */
__device__ __forceinline__ void write_pixel(const patch_args &a, const patch_pixel &p, uint32_t all,
                                            uint32_t signs, uint32_t *rows) {
    const patch_shape &s = a.shape;
    const bool inside = p.offset >= 0;
    const uint32_t counted = inside || a.conv.pad_value ? all : 0u;
    signs = inside ? signs : a.conv.pad_value > 0 ? all : 0u;
    uint32_t *at = rows + p.row * s.pitch;
    write_fields(at, at + s.in_h * s.pitch, p.position, p.row < s.in_h, s.field_log2,
                 counted & signs, counted & ~signs);
}

/* The sum of magnitudes, octet by octet (epilogue.cuh). */
template <int COUNT>
__device__ __forceinline__ float sum_magnitudes(const float (&values)[COUNT]) {
    float sums[2] = {};
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        sums[n / XN_OCTET] += fabsf(values[n]);
    return COUNT > XN_OCTET ? sums[0] + sums[1] : sums[0];
}

/* The sums of several groups of a pixel, `staged` apart. */
__device__ __forceinline__ void write_sums(const patch_args &a, int32_t groups,
                                           const float (&values)[IN_FLIGHT], float *to,
                                           int32_t staged) {
    const int32_t each = a.conv.group_channels;
    auto sums_of = [&](auto channels) {
        constexpr int EACH = decltype(channels)::value;
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; n += EACH) {
            float sum = fabsf(values[n]);
#pragma unroll
            for (int c = 1; c < EACH; c++)
                sum += fabsf(values[n + c]);
            if (n / EACH < groups)
                to[n / EACH * staged] = xn_mean(sum, a.shape.staged_reciprocal);
        }
    };
    if (each == 1)
        return sums_of(std::integral_constant<int, 1>());
    if (each == 2)
        return sums_of(std::integral_constant<int, 2>());
    if (each == 4)
        return sums_of(std::integral_constant<int, 4>());
    if (each == 8)
        return sums_of(std::integral_constant<int, 8>());
    float sum = 0.0f;
    int32_t left = each;
#pragma unroll
    for (int n = 0; n < IN_FLIGHT; n++) {
        sum += fabsf(values[n]);
        if (--left == 0 && groups-- > 0) {
            *to = xn_mean(sum, a.shape.staged_reciprocal);
            to += staged;
            left = each;
            sum = 0.0f;
        }
    }
}

/* PIXELS a lane at a time, of up to CHANNELS channels each. Where PIXELS is 1: of as many in
 * several groups, or of more in one. */
template <int PIXELS, int CHANNELS, class Input>
__device__ __forceinline__ void stage_pixels(const patch_args &a, const patch_block &b,
                                             const Input &input, uint32_t *rows, float *sums) {
    const patch_shape &s = a.shape;
    const int32_t channels = b.groups * a.conv.group_channels;
    const int32_t plane = a.conv.height * a.conv.width, staged = s.in_h * s.width;
    const uint32_t all = xn_cuda_low_bits(channels);
    const int32_t lane = (int32_t)threadIdx.x & 31;
    for (int32_t first = threadIdx.x; first - lane < staged; first += THREADS * PIXELS) {
        patch_pixel pixels[PIXELS];
        float values[PIXELS][CHANNELS];
#pragma unroll
        for (int u = 0; u < PIXELS; u++) {
            pixels[u] = find_pixel(a, b, first + u * THREADS);
            if (PIXELS > 1)
                input.read(pixels[u].offset, plane, pixels[u].offset >= 0 ? channels : 0,
                           values[u]);
        }
#pragma unroll
        for (int u = 0; u < PIXELS; u++) {
            const patch_pixel &p = pixels[u];
            float *const to = sums + p.row * s.width + p.position;
            uint32_t signs = 0;
            float sum = 0.0f;
            for (int32_t from = 0; from < channels; from += CHANNELS) {
                uint32_t bits = 0;
                if (PIXELS == 1)
                    input.read(p.offset + from * plane, plane, p.offset >= 0 ? channels - from : 0,
                               values[u]);
#pragma unroll
                for (int n = 0; n < CHANNELS; n++)
                    if (values[u][n] >= 0.0f) /* xn_sign_bit */
                        bits |= 1u << n;
                signs |= bits << from;
                if (a.conv.epilogue.k)
                    sum += sum_magnitudes(values[u]);
                if (PIXELS > 1)
                    break;
            }
            write_pixel(a, p, all, signs, rows);
            if (!a.conv.epilogue.k || p.row >= s.in_h)
                continue;
            if constexpr (CHANNELS == IN_FLIGHT) {
                if (a.cut.together > 1) {
                    write_sums(a, b.groups, values[u], to, staged);
                    continue;
                }
            }
            *to = xn_mean(sum, s.staged_reciprocal);
        }
    }
}

/* ---- runs of pixels ---- */

template <int COUNT>
__device__ __forceinline__ void store_run(float *to, const float (&from)[COUNT]) {
#pragma unroll
    for (int n = 0; n < COUNT; n += RUN)
        asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(xn_shared_address(to + n)),
                     "f"(from[n]), "f"(from[n + 1]), "f"(from[n + 2]), "f"(from[n + 3])
                     : "memory");
}

/* Runs of pixels side by side, of some channels: FIELD bits of each pixel, as a power of 2. The
 * host knows how many pixels they are (make_runs). */
template <int FIELD>
struct patch_task {
    static constexpr int CHANNELS = 1 << FIELD;
    static constexpr int PIXELS = FIELD < 2 ? 8 : RUN;
    static constexpr int RUNS = PIXELS / RUN;
    static constexpr int AHEAD = PIXELS * CHANNELS > IN_FLIGHT ? 1 : 2; /* tasks under way */
    int32_t octet, row, position;                                       /* of the stage */
    int32_t offset; /* of its first element, from the image's first */
    bool inside[RUNS];
};

template <int FIELD>
__device__ __forceinline__ patch_task<FIELD> find_task(const patch_args &a, const patch_block &b,
                                                       int32_t at) {
    const xn_conv &c = a.conv;
    const patch_shape &s = a.shape;
    patch_task<FIELD> t;
    const int32_t line = xn_divide(at, s.by_tasks_across);
    t.position = (at - line * s.tasks_across) * t.PIXELS;
    t.octet = FIELD == 3 ? xn_divide(line, s.by_in_h) : 0;
    t.row = line - t.octet * s.in_h;
    const int32_t y = b.out_y * c.stride_h - c.pad_top + t.row;
    const int32_t x = b.out_x * c.stride_w - c.pad_left - s.lead + t.position;
    t.offset = (t.octet * OCTET * c.height + y) * c.width + x;
#pragma unroll
    for (int n = 0; n < t.RUNS; n++)
        t.inside[n] =
            (uint32_t)y < (uint32_t)c.height && (uint32_t)(x + n * RUN) < (uint32_t)c.width;
    return t;
}

/* The sums of a task's layers, of EACH channels. */
template <int EACH, int CHANNELS, int PIXELS>
__device__ __forceinline__ void write_layers(const patch_args &a, int32_t layers,
                                             const float (&v)[CHANNELS][PIXELS], float *to) {
#pragma unroll
    for (int n = 0; n < CHANNELS / EACH; n++) {
        float sum[PIXELS] = {};
#pragma unroll
        for (int u = 0; u < PIXELS; u++)
#pragma unroll
            for (int c = 0; c < EACH; c++)
                sum[u] += fabsf(v[n * EACH + c][u]);
#pragma unroll
        for (int u = 0; u < PIXELS; u++)
            sum[u] = xn_mean(sum[u], a.shape.staged_reciprocal);
        if (n < layers)
            store_run(to + n * a.shape.in_h * a.shape.width, sum);
    }
}

/* The same for any number of channels of a layer. */
template <int CHANNELS, int PIXELS>
__device__ __forceinline__ void write_run_sums(const patch_args &a, int32_t layers,
                                               const float (&v)[CHANNELS][PIXELS], float *to) {
    const int32_t each = a.shape.layer_channels;
    if constexpr (CHANNELS > 1) {
        if (each == 1)
            return write_layers<1>(a, layers, v, to);
        if constexpr (CHANNELS > 2) {
            if (each == 2)
                return write_layers<2>(a, layers, v, to);
            if constexpr (CHANNELS > 4) {
                if (each == 4)
                    return write_layers<4>(a, layers, v, to);
            }
        }
    }
    write_layers<CHANNELS>(a, layers, v, to);
}

/* The task's fields: bits has each pixel's signs, `all` its channels, `inside` the pixels inside.
 */
template <int FIELD>
__device__ __forceinline__ void write_run(const patch_args &a, const patch_task<FIELD> &t,
                                          uint32_t bits, uint32_t all, uint32_t inside,
                                          uint32_t *rows) {
    const patch_shape &s = a.shape;
    const int32_t pad_value = a.conv.pad_value;
    const uint32_t counted = pad_value ? all : all & inside;
    const uint32_t positive = (pad_value > 0 ? bits | ~inside : bits & inside) & counted;
    const uint32_t negative = counted & ~positive;
    uint32_t *const to = rows + t.row * s.pitch;
    const auto write = [&](uint32_t *words, uint32_t word) {
        if constexpr (FIELD == 0) {
            ((uint8_t *)words)[t.position >> 3] = (uint8_t)word;
        } else if constexpr (FIELD < 3) {
            ((uint16_t *)words)[t.position >> (4 - FIELD)] = (uint16_t)word;
        } else if (s.octets > 1) {
            uint8_t *bytes = (uint8_t *)words + (t.position << (s.field_log2 - 3)) + t.octet;
#pragma unroll
            for (int u = 0; u < RUN; u++)
                bytes[u << (s.field_log2 - 3)] = (uint8_t)(word >> (8 * u));
        } else {
            words[t.position >> 2] = word;
        }
    };
    write(to, positive);
    write(to + s.in_h * s.pitch, negative);
}

/* What a thread has read of a task. */
template <int FIELD>
__device__ __forceinline__ void
finish_task(const patch_args &a, const patch_block &b, const patch_task<FIELD> &t,
            float (&v)[patch_task<FIELD>::CHANNELS][patch_task<FIELD>::PIXELS], int32_t channels,
            uint32_t *rows, float *sums) {
    constexpr uint32_t EACH = FIELD == 0   ? 0xffu /* one bit of each pixel */
                              : FIELD == 1 ? 0x5555u
                              : FIELD == 2 ? 0x1111u
                                           : 0x01010101u;
    constexpr uint32_t RUN_BITS = (uint32_t)((UINT64_C(1) << (RUN << FIELD)) - 1);
    uint32_t bits = 0, inside = 0;
#pragma unroll
    for (int u = 0; u < t.PIXELS; u++)
#pragma unroll
        for (int n = 0; n < t.CHANNELS; n++)
            if (v[n][u] >= 0.0f) /* xn_sign_bit */
                bits |= 1u << ((u << FIELD) + n);
#pragma unroll
    for (int n = 0; n < t.RUNS; n++)
        inside |= t.inside[n] ? RUN_BITS << (n * (RUN << FIELD)) : 0u;
    write_run<FIELD>(a, t, bits, xn_cuda_low_bits(channels) * EACH, inside, rows);
    if (!a.conv.epilogue.k)
        return;
    const int32_t layer = t.octet * a.shape.octet_layers;
    write_run_sums(a, b.groups * a.shape.layers - layer, v,
                   sums + (layer * a.shape.in_h + t.row) * a.shape.width + t.position);
}

template <int FIELD, class T>
__device__ __forceinline__ void stage_runs(const patch_args &a, const patch_block &b,
                                           const patch_input<T> &input, uint32_t *rows,
                                           float *sums) {
    typedef patch_task<FIELD> task;
    const patch_shape &s = a.shape;
    const int32_t channels = b.groups * a.conv.group_channels;
    const int32_t plane = a.conv.height * a.conv.width;
    const int32_t tasks = s.tasks_across * s.in_h * (FIELD == 3 ? s.octets : 1);
#pragma unroll 1
    for (int32_t first = threadIdx.x; first < tasks; first += THREADS * task::AHEAD) {
        task t[task::AHEAD];
        float v[task::AHEAD][task::CHANNELS][task::PIXELS];
#pragma unroll
        for (int k = 0; k < task::AHEAD; k++) {
            const int32_t at = first + k * THREADS;
            if (k > 0 && at >= tasks)
                break;
            t[k] = find_task<FIELD>(a, b, at);
            const T *from = input.data + input.first + t[k].offset;
#pragma unroll
            for (int n = 0; n < task::CHANNELS; n++, from += plane)
#pragma unroll
                for (int r = 0; r < task::RUNS; r++)
                    xn_load_run(from + r * RUN, t[k].inside[r] && n < channels - t[k].octet * OCTET,
                                v[k][n] + r * RUN);
        }
#pragma unroll
        for (int k = 0; k < task::AHEAD; k++) {
            if (k > 0 && first + k * THREADS >= tasks)
                break;
            finish_task<FIELD>(a, b, t[k], v[k], min(OCTET, channels - t[k].octet * OCTET), rows,
                               sums);
        }
    }
}

/* Both planes of fields and the sums of the block's tile. */
template <class T>
__device__ __forceinline__ bool stage_all_runs(const patch_args &a, const patch_block &b,
                                               const patch_input<T> &input, uint32_t *rows,
                                               float *sums) {
    const patch_shape &s = a.shape;
    if (s.run == 1)
        return false;
    if (s.run_field == 0)
        stage_runs<0>(a, b, input, rows, sums);
    else if (s.run_field == 1)
        stage_runs<1>(a, b, input, rows, sums);
    else if (s.run_field == 2)
        stage_runs<2>(a, b, input, rows, sums);
    else
        stage_runs<3>(a, b, input, rows, sums);
    return true;
}

template <class Input>
__device__ __forceinline__ void stage_inputs(const patch_args &a, const patch_block &b,
                                             const Input &input, uint32_t *rows, float *sums) {
    if constexpr (!std::is_same<Input, patch_any_input>::value) {
        if (stage_all_runs(a, b, input, rows, sums))
            return;
        if (a.cut.together == 1 && a.shape.channels <= IN_FLIGHT / 4)
            return stage_pixels<4, IN_FLIGHT / 4>(a, b, input, rows, sums);
        if (a.cut.together == 1 && a.shape.channels <= IN_FLIGHT / 2)
            return stage_pixels<2, IN_FLIGHT / 2>(a, b, input, rows, sums);
    }
    stage_pixels<1, IN_FLIGHT>(a, b, input, rows, sums);
}

#endif
