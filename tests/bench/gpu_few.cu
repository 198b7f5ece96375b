/* gpu_few.cu: `make bench-gpu-few`: convolutions of few channels beside a copy kernel of the same
 * bytes, in one run. Every result is checked against the reference backend first. Times are kernel
 * times by graph replay: LAUNCHES launches a graph, back to back on the same buffers, so what fits
 * the L2 cache is read from there on both sides; median, 10th and 90th percentile of the replays.
 *   bench-gpu-few [--json FILE] [--sweep] [--once] [--check N]
 *     --sweep: every cut of the 3 x 3 kernels; --once: check only, a launch a problem, to profile;
 *     --check N: instead, N random geometries and cuts of all kernels but tiles against ref
 */
#include "bench_runner.h"
#include "few_choose.h"
#include "fused_gemm.h"
#include "gpu_timing.cuh"
#include "xn_cuda.h"

#include <cmath>
#include <cstring>
#include <string>

enum { LAUNCHES = 50, REPLAYS = 21 };

struct problem {
    int64_t images, channels, side, filters, kernel, stride, groups;
    xn_datatype datatype;
    double target; /* microseconds below 0, ratio to the copy above; 0: none */
};

static const problem problems[] = {
    {1, 1, 256, 1, 3, 1, 1, XN_FP32, -3.0},  {1, 1, 512, 1, 3, 1, 1, XN_FP32, -3.0},
    {1, 1, 1024, 1, 3, 1, 1, XN_FP32, -3.5}, {1, 1, 2048, 1, 3, 1, 1, XN_FP32, 1.15},
    {1, 1, 4096, 1, 3, 1, 1, XN_FP32, 1.15}, {1, 1, 8192, 1, 3, 1, 1, XN_FP32, 1.15},
    {1, 1, 2048, 1, 3, 1, 1, XN_FP16, 0},    {1, 1, 4096, 1, 3, 1, 1, XN_FP16, 0},
    {1, 1, 1024, 1, 5, 1, 1, XN_FP32, 0},    {1, 1, 4096, 1, 5, 1, 1, XN_FP32, 0},
    {1, 1, 1024, 1, 7, 1, 1, XN_FP32, 0},    {1, 1, 4096, 1, 7, 1, 1, XN_FP32, 0},
    {1, 1, 1024, 16, 3, 1, 1, XN_FP32, 0},   {1, 3, 1024, 1, 3, 1, 1, XN_FP32, 0},
    {1, 8, 1024, 8, 3, 1, 1, XN_FP32, 0},    {1, 8, 512, 8, 5, 1, 1, XN_FP32, 0},
    {16, 3, 224, 64, 3, 1, 1, XN_FP32, 0},   {16, 3, 224, 64, 7, 2, 1, XN_FP32, 0},
    {16, 64, 56, 64, 3, 1, 64, XN_FP32, 0},  {16, 512, 14, 512, 3, 1, 512, XN_FP32, 0},
};

struct made {
    xn_conv conv;
    xn_prepared *prepared;
    void *input, *output; /* device */
    std::vector<unsigned char> host_input;
    size_t in_bytes, out_bytes;
};

static stats time_copy(cudaStream_t stream, const made &m) {
    return time_copy(stream, m.input, m.in_bytes, m.output, m.out_bytes, LAUNCHES, REPLAYS);
}

static xn_cuda_epilogue_args epilogue_of(const made &m) {
    return {m.conv.epilogue.factor == XN_FACTOR_NONE ? NULL : m.prepared->alpha, NULL, m.output};
}

static xn_cuda_few_io io_of(const made &m) {
    return {m.input, m.prepared->patches, m.prepared->rows, m.prepared->fields};
}

/* ---- problems ---- */

static uint64_t next_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static std::vector<float> random_floats(size_t count, uint64_t seed) {
    std::vector<float> v(count);
    for (float &x : v)
        x = (float)((double)(next_random(&seed) >> 40) / (1 << 23) - 1.0);
    return v;
}

static std::vector<unsigned char> encode(const std::vector<float> &v, xn_datatype datatype) {
    std::vector<unsigned char> bytes(v.size() * xn_datatype_bytes(datatype));
    if (datatype == XN_FP32)
        memcpy(bytes.data(), v.data(), bytes.size());
    else
        for (size_t i = 0; i < v.size(); i++)
            ((uint16_t *)bytes.data())[i] = xn_fp32_to_fp16(v[i]);
    return bytes;
}

static xn_conv resolve(const problem &p, xn_datatype in, xn_datatype out, int64_t images) {
    const xn_conv_limits limits = {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 60};
    const xn_shape input = {4, {images, p.channels, p.side, p.side}};
    const xn_weights_shape weights = {
        {p.filters, p.channels / p.groups, p.kernel, p.kernel}, XN_FP32, false, false};
    xn_conv_params params;
    xn_conv conv;
    xn_error error;
    int64_t resolved;
    xn_conv_params_default(&params);
    for (int i = 0; i < 4; i++)
        params.padding[i] = p.kernel / 2;
    params.stride[0] = params.stride[1] = p.stride;
    params.groups = p.groups;
    params.output_datatype = out;
    REQUIRE(xn_conv_resolve(&params, in, &input, &weights, &limits, &conv, &resolved, &error));
    return conv;
}

static xn_weights *make_weights(const problem &p) {
    const std::vector<float> values =
        random_floats((size_t)(p.filters * (p.channels / p.groups) * p.kernel * p.kernel), 99);
    const xn_tensor tensor = {XN_FP32,
                              {4, {p.filters, p.channels / p.groups, p.kernel, p.kernel}},
                              (int64_t)values.size(),
                              values.size() * sizeof(float),
                              values.data()};
    xn_weights *weights;
    xn_error error;
    REQUIRE(xn_weights_create(&tensor, NULL, NULL, &weights, &error));
    return weights;
}

static made make(xn_device *device, const problem &p, const xn_weights *weights) {
    made m = {};
    xn_error error;
    m.conv = resolve(p, p.datatype, p.datatype, p.images);
    m.in_bytes = (size_t)p.images * xn_conv_input_bytes(&m.conv);
    m.out_bytes = (size_t)p.images * xn_conv_output_bytes(&m.conv);
    m.host_input = encode(random_floats(m.in_bytes / xn_datatype_bytes(p.datatype), 7), p.datatype);
    REQUIRE(xn_backend_cuda.weights_prepare(device, weights, &m.prepared, &error));
    CHECK(cudaMalloc(&m.input, m.in_bytes));
    CHECK(cudaMalloc(&m.output, m.out_bytes));
    CHECK(cudaMemcpy(m.input, m.host_input.data(), m.in_bytes, cudaMemcpyHostToDevice));
    return m;
}

/* Images by the reference backend; conv says in what datatype. */
static std::vector<unsigned char> reference_of(const xn_conv &conv, int64_t images,
                                               const void *input, const xn_weights *weights) {
    std::vector<unsigned char> out((size_t)images * xn_conv_output_bytes(&conv));
    xn_bench_run_on("ref", &conv, weights, images, input, out.data());
    return out;
}

/* The first image, in fp32. */
static std::vector<float> reference(const problem &p, const made &m, const xn_weights *weights) {
    const xn_conv conv = resolve(p, p.datatype, XN_FP32, 1);
    const std::vector<unsigned char> bytes = reference_of(conv, 1, m.host_input.data(), weights);
    std::vector<float> out(bytes.size() / sizeof(float));
    memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

static bool is_right(xn_datatype datatype, const void *output, size_t i, double want) {
    if (datatype == XN_INT32)
        return ((const int32_t *)output)[i] == want;
    const bool half = datatype == XN_FP16;
    const double got = half ? (double)xn_fp16_to_fp32(((const uint16_t *)output)[i])
                            : (double)((const float *)output)[i];
    if (std::isnan(want))
        return std::isnan(got);
    if (half && std::fabs(want) > 65000 && std::isinf(got))
        return (got > 0) == (want > 0);
    if (std::isinf(want))
        return got == want;
    return std::fabs(got - want) <= (half ? 5e-4 : 1e-5) * std::fabs(want) + (half ? 1e-7 : 1e-37);
}

/* Outputs that are not within 1e-5 of the reference, after one launch into poisoned memory. */
static size_t count_wrong(const made &m, xn_datatype datatype, const std::vector<float> &want,
                          cudaStream_t stream, const std::function<void()> &launch) {
    std::vector<unsigned char> got(m.out_bytes);
    size_t wrong = 0;
    CHECK(cudaMemsetAsync(m.output, 0xff, m.out_bytes, stream));
    launch();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(got.data(), m.output, m.out_bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < want.size(); i++)
        wrong += !is_right(datatype, got.data(), i, want[i]);
    return wrong;
}

/* ---- random geometries and cuts ---- */

static int64_t pick(uint64_t *state, int64_t first, int64_t last) {
    return first + (int64_t)(next_random(state) % (uint64_t)(last - first + 1));
}

static float pick_value(uint64_t *state, int64_t kind) {
    static const float odd[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1.0f, -1.0f, 3e38f, 1e-40f};
    if (kind == 1 && pick(state, 0, 9) == 0)
        return odd[pick(state, 0, 8)];
    if (kind == 2)
        return pick(state, 0, 1) ? 3.4e38f : -3.4e38f;
    return (float)pick(state, -1000000, 1000000) / 250000.0f;
}

/* Geometries of which most take the vector kernels, a third with strides or dilation, which only
 * the matrix kernels take, and some with channels that only the fused one does; what does not
 * resolve is drawn again. */
static bool draw(uint64_t *state, problem *p, xn_conv_params *params, xn_datatype *out) {
    static const int64_t kernels[] = {3, 3, 3, 5, 7, 1, 2, 4, 6};
    const bool single = pick(state, 0, 2) > 0;
    p->groups = pick(state, 0, 3) ? 1 : pick(state, 2, 9);
    p->channels = p->groups * (single ? 1
                                      : pick(state, 1,
                                             pick(state, 0, 3)   ? 8
                                             : pick(state, 0, 1) ? 32
                                                                 : 300));
    p->filters = p->groups * (single ? 1 : pick(state, 1, pick(state, 0, 3) ? 20 : 150));
    p->kernel = kernels[pick(state, 0, 8)];
    p->images = pick(state, 1, 3);
    p->side = pick(state, 0, 2) ? 4 * pick(state, 1, 75) : pick(state, 1, 300);
    p->datatype = (xn_datatype)(pick(state, 0, 3) ? pick(state, 0, 1) : pick(state, 0, 5));
    xn_conv_params_default(params);
    for (int64_t &padding : params->padding)
        padding = pick(state, 0, 4) ? p->kernel / 2 : pick(state, 0, 5);
    for (int axis = 0; axis < 2; axis++) {
        params->stride[axis] = pick(state, 0, 2) ? 1 : pick(state, 1, 4);
        params->dilation[axis] = pick(state, 0, 3) ? 1 : pick(state, 1, 4);
    }
    params->groups = p->groups;
    params->pad_value = (int)(pick(state, 0, 3) ? 0 : pick(state, -1, 1));
    params->scaling = (xn_scaling)(pick(state, 0, 3) ? 0 : pick(state, 0, 2));
    *out = pick(state, 0, 5) && p->datatype <= XN_FP16 ? p->datatype : XN_FP32;
    if (params->scaling == XN_SCALING_NONE && pick(state, 0, 1))
        *out = XN_INT32;
    params->output_datatype = *out;
    const int64_t height = pick(state, 1, 100);
    const xn_conv_limits limits = {1 << 24, 1 << 26, (int64_t)1 << 27};
    const xn_shape input = {4, {p->images, p->channels, height, p->side}};
    const xn_weights_shape weights = {
        {p->filters, p->channels / p->groups, p->kernel, p->kernel}, XN_FP32, false, false};
    int64_t images;
    xn_error error;
    xn_conv conv;
    if (xn_conv_resolve(params, p->datatype, &input, &weights, &limits, &conv, &images, &error))
        return false;
    p->stride = height; /* of the image: the stride is 1 */
    return true;
}

/* A cut of one of the kernels; kind XN_CUDA_FEW_NONE: of fused_gemm.cu. */
struct any_cut {
    xn_cuda_few_kind kind;
    xn_cuda_fused_shape fused;
    xn_cuda_sliding strip;
    xn_cuda_depthwise_cut planes;
    xn_cuda_patch_cut matrix;

    cudaError_t launch(const xn_conv *conv, int64_t images, const xn_cuda_few_io *io,
                       const int32_t *prefix, const xn_cuda_epilogue_args *epilogue,
                       cudaStream_t stream) const {
        const xn_cuda_fused_io fused_io = {io->input, io->rows, prefix};
        switch (kind) {
        case XN_CUDA_FEW_NONE:
            return xn_cuda_fused_launch_shape(&fused, &fused_io, epilogue, true, stream);
        case XN_CUDA_FEW_SLIDING_WINDOW:
            return xn_cuda_sliding_launch(conv, images, &strip, io, epilogue, true, stream);
        case XN_CUDA_FEW_DEPTHWISE:
            return xn_cuda_depthwise_launch(conv, images, &planes, io, epilogue, true, stream);
        default:
            return xn_cuda_patch_launch(conv, images, &matrix, io, epilogue, true, stream);
        }
    }

    std::string name() const {
        char text[80];
        if (kind == XN_CUDA_FEW_SLIDING_WINDOW)
            snprintf(text, sizeof text, "strip r%d c%d d%d l%d a%d s%d t%d f%d", strip.rows,
                     strip.chunks, strip.depth, strip.lanes, strip.across, strip.stack,
                     strip.threads, strip.span);
        else if (kind == XN_CUDA_FEW_DEPTHWISE)
            snprintf(text, sizeof text, "planes %d band %d rows %d threads %d", planes.planes,
                     planes.band, planes.rows, planes.threads);
        else if (kind == XN_CUDA_FEW_NONE)
            snprintf(text, sizeof text, "fused %dx%d rows %d cluster %d warps %d", fused.cut.tile_w,
                     fused.cut.tile_h, fused.cut.row_tiles, fused.cut.cluster, fused.cut.warps);
        else
            snprintf(text, sizeof text, "matrix g%d %dx%d f%d", matrix.together, matrix.tile_w,
                     matrix.tile_h, matrix.span);
        return text;
    }
};

static bool draw_strip(uint64_t *state, const xn_conv *conv, int64_t images, xn_cuda_sliding *cut) {
    for (int tries = 0; tries < 200; tries++) {
        cut->rows = 1 << 2 * pick(state, 0, 1);
        cut->chunks = (int32_t)pick(state, 1, 8);
        cut->depth = 2 * (int32_t)pick(state, 0, 2);
        cut->lanes = 4 << pick(state, 0, 3);
        cut->across = 1 << pick(state, 0, 2);
        cut->stack = 1 << pick(state, 0, 3);
        cut->threads = 32 << pick(state, 0, 3);
        cut->span = (int32_t)pick(state, 1, 20);
        if (xn_cuda_sliding_fits(conv, images, cut))
            return true;
    }
    return xn_cuda_sliding_choose(conv, images, 132, cut);
}

static bool draw_matrix(uint64_t *state, const xn_conv *conv, int64_t images,
                        xn_cuda_patch_cut *cut) {
    for (int tries = 0; tries < 50; tries++) {
        cut->together = (int32_t)pick(state, 1, 16);
        cut->tile_w = pick(state, 0, 1) ? conv->out_width : 16 * (int32_t)pick(state, 1, 8);
        cut->tile_h = (int32_t)pick(state, 1, 20);
        cut->span = (int32_t)pick(state, 1, 64);
        if (xn_cuda_patch_fits(conv, images, cut))
            return true;
    }
    return xn_cuda_patch_choose(conv, images, 132, cut);
}

static bool draw_planes(uint64_t *state, const xn_conv *conv, int64_t images,
                        xn_cuda_depthwise_cut *cut) {
    for (int tries = 0; tries < 50; tries++) {
        cut->planes = (int32_t)pick(state, 1, 8);
        cut->band = cut->planes > 1 ? conv->out_height : (int32_t)pick(state, 1, conv->out_height);
        cut->rows = (int32_t)pick(state, 1, 12);
        cut->threads = 32 * (int32_t)pick(state, 1, 8);
        if (xn_cuda_depthwise_fits(conv, images, cut))
            return true;
    }
    return xn_cuda_depthwise_choose(conv, images, 132, cut);
}

static bool draw_fused(uint64_t *state, const xn_conv *conv, int64_t images,
                       const xn_cuda_few_chip *chip, xn_cuda_fused_shape *shape) {
    for (int tries = 0; tries < 50; tries++) {
        xn_cuda_fused_cut cut;
        cut.tile_w = pick(state, 0, 1) ? conv->out_width : 8 * (int32_t)pick(state, 1, 12);
        cut.tile_h = (int32_t)pick(state, 1, pick(state, 0, 1) ? 3 : 14);
        cut.row_tiles = 1 << pick(state, 0, 3);
        cut.cluster = 1 << pick(state, 0, 3);
        cut.warps = 4 << pick(state, 0, 1);
        if (xn_cuda_fused_shape_of(conv, images, &cut, chip->overlaps, shape))
            return true;
    }
    return xn_cuda_fused_choose(conv, images, chip, shape);
}

static bool draw_cut(uint64_t *state, const xn_conv *conv, int64_t images,
                     const xn_cuda_few_chip *chip, any_cut *cut) {
    static const xn_cuda_few_kind kinds[] = {XN_CUDA_FEW_SLIDING_WINDOW, XN_CUDA_FEW_DEPTHWISE,
                                             XN_CUDA_FEW_PATCH_GEMM, XN_CUDA_FEW_NONE};
    cut->kind = kinds[pick(state, 0, 3)];
    switch (cut->kind) {
    case XN_CUDA_FEW_NONE:
        return draw_fused(state, conv, images, chip, &cut->fused);
    case XN_CUDA_FEW_SLIDING_WINDOW:
        return draw_strip(state, conv, images, &cut->strip);
    case XN_CUDA_FEW_DEPTHWISE:
        return draw_planes(state, conv, images, &cut->planes);
    default:
        return draw_matrix(state, conv, images, &cut->matrix);
    }
}

static bool check_one(xn_device *device, cudaStream_t stream, uint64_t seed) {
    uint64_t state = seed;
    problem p = {};
    xn_conv_params params;
    xn_datatype out;
    while (!draw(&state, &p, &params, &out)) {
    }
    const int64_t height = p.stride, kind = pick(&state, 0, 2) ? 0 : pick(&state, 1, 2);
    const xn_conv_limits limits = {1 << 24, 1 << 26, (int64_t)1 << 27};
    const xn_shape input = {4, {p.images, p.channels, height, p.side}};
    const xn_weights_shape shape = {
        {p.filters, p.channels / p.groups, p.kernel, p.kernel}, XN_FP32, false, false};
    made m = {};
    xn_conv want_conv;
    any_cut cut;
    xn_error error;
    int64_t images;
    REQUIRE(
        xn_conv_resolve(&params, p.datatype, &input, &shape, &limits, &m.conv, &images, &error));
    params.output_datatype = out == XN_INT32 ? XN_INT32 : XN_FP32;
    REQUIRE(
        xn_conv_resolve(&params, p.datatype, &input, &shape, &limits, &want_conv, &images, &error));
    const xn_cuda_few_chip chip = xn_cuda_few_chip_of(device);
    if (!draw_cut(&state, &m.conv, images, &chip, &cut))
        return true; /* that kernel does not take it */
    m.in_bytes = (size_t)images * xn_conv_input_bytes(&m.conv);
    m.out_bytes = (size_t)images * xn_conv_output_bytes(&m.conv);
    m.host_input.resize(m.in_bytes);
    const size_t each = xn_datatype_bytes(p.datatype);
    for (size_t i = 0; i < m.in_bytes / each; i++) {
        const float v = pick_value(&state, kind);
        if (each == 4)
            ((float *)m.host_input.data())[i] = v;
        else if (each == 2)
            ((uint16_t *)m.host_input.data())[i] =
                p.datatype == XN_FP16 ? xn_fp32_to_fp16(v) : xn_fp32_to_bf16(v);
        else
            m.host_input[i] = (unsigned char)next_random(&state);
    }
    xn_weights *weights = make_weights(p);
    REQUIRE(xn_backend_cuda.weights_prepare(device, weights, &m.prepared, &error));
    CHECK(cudaMalloc(&m.input, m.in_bytes));
    CHECK(cudaMalloc(&m.output, m.out_bytes));
    CHECK(cudaMemcpy(m.input, m.host_input.data(), m.in_bytes, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize()); /* a small copy may return before it has arrived */
    const xn_cuda_epilogue_args epilogue = epilogue_of(m);
    const xn_cuda_few_io io = io_of(m);
    const std::vector<unsigned char> bytes =
        reference_of(want_conv, images, m.host_input.data(), weights);
    std::vector<float> want(bytes.size() / 4);
    for (size_t i = 0; i < want.size(); i++)
        want[i] = out == XN_INT32 ? (float)((const int32_t *)bytes.data())[i]
                                  : ((const float *)bytes.data())[i];
    const size_t wrong = count_wrong(m, out, want, stream, [&] {
        CHECK(cut.launch(&m.conv, images, &io, m.prepared->prefix, &epilogue, stream));
    });
    if (wrong)
        printf("WRONG seed %llu: %zu of %zu; %lldx%lldx%lldx%lld o%lld g%lld k%lld pad %lld,%lld "
               "value %d scaling %d in %d out %d kind %lld stride %d,%d dilation %d,%d; %s\n",
               (unsigned long long)seed, wrong, want.size(), (long long)images,
               (long long)p.channels, (long long)height, (long long)p.side, (long long)p.filters,
               (long long)p.groups, (long long)p.kernel, (long long)params.padding[0],
               (long long)params.padding[1], params.pad_value, params.scaling, p.datatype, out,
               (long long)kind, m.conv.stride_h, m.conv.stride_w, m.conv.dilation_h,
               m.conv.dilation_w, cut.name().c_str());
    CHECK(cudaFree(m.input));
    CHECK(cudaFree(m.output));
    xn_backend_cuda.weights_free(m.prepared);
    xn_weights_free(weights);
    return !wrong;
}

/* ---- the runs ---- */

static void sweep(const problem &p, const made &m, const std::vector<float> &want,
                  cudaStream_t stream, double copy_us) {
    struct timed {
        xn_cuda_sliding cut;
        double us;
    };
    std::vector<timed> all;
    const xn_cuda_epilogue_args epilogue = epilogue_of(m);
    const xn_cuda_few_io io = io_of(m);
    for (int depth = 0; depth <= 4; depth += 2)
        for (int rows = 1; rows <= 4; rows *= 4)
            for (int chunks = 1; chunks <= 16; chunks *= 2)
                for (int across = 1; across <= 4; across *= 2)
                    for (int threads = 64; threads <= 256; threads *= 2) {
                        const xn_cuda_sliding cut = {rows,   chunks, depth,   32,
                                                     across, 1,      threads, 1};
                        const int64_t strips = p.side * p.side / (128 * rows * chunks);
                        if (!xn_cuda_sliding_fits(&m.conv, p.images, &cut) || strips < 128)
                            continue;
                        auto launch = [&] {
                            CHECK(xn_cuda_sliding_launch(&m.conv, p.images, &cut, &io, &epilogue,
                                                         true, stream));
                        };
                        if (p.side <= 2048 && across == 1 && threads == 128 &&
                            count_wrong(m, p.datatype, want, stream, launch))
                            printf("  WRONG: rows %d chunks %d depth %d\n", rows, chunks, depth);
                        all.push_back(
                            {cut, replay(stream, launch, p.side > 2048 ? 10 : 50, 7).median});
                    }
    std::sort(all.begin(), all.end(), [](const timed &a, const timed &b) { return a.us < b.us; });
    printf("  sweep of %zu at %lld:", all.size(), (long long)p.side);
    for (size_t i = 0; i < all.size() && (i < 10 || i + 1 == all.size()); i++)
        printf(" [r%d c%d d%d a%d t%d %.2f %.2fx]", all[i].cut.rows, all[i].cut.chunks,
               all[i].cut.depth, all[i].cut.across, all[i].cut.threads, all[i].us,
               all[i].us / copy_us);
    puts("");
}

struct options {
    bool sweep, once;
    int check;
    FILE *json;
};

static bool run(xn_device *device, cudaStream_t stream, const problem &p, const options &o,
                bool first) {
    xn_weights *weights = make_weights(p);
    made m = make(device, p, weights);
    const std::vector<float> want = reference(p, m, weights);
    const xn_cuda_epilogue_args epilogue = epilogue_of(m);
    const xn_cuda_few_chip chip = xn_cuda_few_chip_of(device);
    const xn_cuda_few_io io = io_of(m);
    const xn_cuda_few_kind kind = xn_cuda_few_choose(&m.conv, p.images, &chip);
    xn_cuda_few_cut cut;
    if (!xn_cuda_few_cut_of(kind, &m.conv, p.images, &chip, &cut))
        return false;
    auto ours = [&] {
        CHECK(xn_cuda_few_launch(&m.conv, p.images, &chip, &cut, &io, &epilogue, stream));
    };
    auto tile = [&] {
        CHECK(xn_cuda_few_tile_launch(&m.conv, p.images, device->multiprocessors, &io, &epilogue,
                                      stream));
    };
    size_t wrong = count_wrong(m, p.datatype, want, stream, tile);
    wrong += count_wrong(m, p.datatype, want, stream, ours);
    const int replays = o.once ? 1 : REPLAYS, launches = o.once ? 1 : LAUNCHES;
    const stats t = replay(stream, ours, launches, replays),
                before = replay(stream, tile, launches, replays), c = time_copy(stream, m);
    const double ratio = t.median / c.median;
    const char *verdict = wrong          ? "WRONG"
                          : !p.target    ? ""
                          : p.target > 0 ? (ratio <= p.target ? "reached" : "missed")
                                         : (t.median <= -p.target ? "reached" : "missed");
    char name[96];
    snprintf(name, sizeof name, "%lldx%lldx%lld %lldx%lld s%lld o%lld g%lld %s",
             (long long)p.images, (long long)p.channels, (long long)p.side, (long long)p.kernel,
             (long long)p.kernel, (long long)p.stride, (long long)p.filters, (long long)p.groups,
             xn_datatype_name(p.datatype));
    printf("%-34s | %8.2f %8.2f %8.2f | %8.2f | %8.2f %6.2f %s\n", name, t.median, t.p10, t.p90,
           before.median, c.median, ratio, verdict);
    fflush(stdout);
    if (o.json)
        fprintf(o.json,
                "%s\n{\"problem\": \"%s\", \"median_us\": %.3f, \"p10_us\": %.3f,"
                " \"p90_us\": %.3f, \"tile_us\": %.3f, \"copy_us\": %.3f, \"ratio\": %.3f,"
                " \"wrong\": %zu}",
                first ? "" : ",", name, t.median, t.p10, t.p90, before.median, c.median, ratio,
                wrong);
    if (o.sweep && p.channels == 1 && p.filters == 1 && p.kernel == 3)
        sweep(p, m, want, stream, c.median);
    CHECK(cudaFree(m.input));
    CHECK(cudaFree(m.output));
    xn_backend_cuda.weights_free(m.prepared);
    xn_weights_free(weights);
    return !wrong;
}

int main(int argc, char **argv) {
    xn_error error;
    xn_device *device;
    cudaStream_t stream;
    options o = {};
    bool right = true;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--sweep"))
            o.sweep = true;
        else if (!strcmp(argv[i], "--once"))
            o.once = true;
        else if (!strcmp(argv[i], "--check") && i + 1 < argc)
            o.check = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--json") && i + 1 < argc)
            o.json = fopen(argv[++i], "w");
        else
            return fprintf(stderr,
                           "usage: bench-gpu-few [--json FILE] [--sweep] [--once] [--check N]\n"),
                   2;
    }
    REQUIRE(xn_backend_cuda.device_open(0, &device, &error));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (o.check) {
        int wrong = 0;
        for (int i = 0; i < o.check; i++)
            wrong += !check_one(device, stream, (uint64_t)i * 7919 + 1);
        printf("%d random geometries and cuts, %d wrong\n", o.check, wrong);
        return wrong != 0;
    }
    printf("%s, %d multiprocessors; us a launch by graph replay, %d launches, %d replays\n",
           device->name, device->multiprocessors, LAUNCHES, REPLAYS);
    printf("%-34s | %8s %8s %8s | %8s | %8s %6s\n", "images x channels x side", "median", "p10",
           "p90", "tile", "copy", "ratio");
    if (o.json)
        fputc('[', o.json);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        right &= run(device, stream, problems[i], o, i == 0);
    if (o.json) {
        fputs("\n]\n", o.json);
        fclose(o.json);
    }
    CHECK(cudaStreamDestroy(stream));
    xn_backend_cuda.device_close(device);
    return right ? 0 : 1;
}
