/* gpu_layers.cu: times of many-channel layers on a GPU, kernels only: each row is a CUDA graph of
 * many launches on device memory, replayed; random data. First every variant is checked against
 * backend ref on a smaller batch (INT32 and packed bits exactly, floats to 1e-5). Beside each
 * figure the copy kernel of the same bytes, in the same run.
 *
 *   bench-gpu_layers [--check-only | --no-check] [--path P] [--variant V] [--layer L]
 *   bench-gpu_layers --random N [--seed S]
 *
 * --random N: instead, N random geometries on every kernel path that can run them, INT32 and packed
 * bits compared with ref. */
#include "xn_cuda.h"
#include "xn_rng.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" bool xn_bench_gpu_copy(size_t in_bytes, size_t out_bytes, double *us);

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define XN(call)                                                                                   \
    do {                                                                                           \
        if (call) {                                                                                \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, g_error.message);        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static xn_error g_error;

/* ---- problems ---- */

struct layer {
    xn_conv conv;
    int64_t images;
    xn_weights *weights;
    xn_prepared *prepared;
    std::vector<float> input;
    std::vector<int32_t> threshold;
    std::vector<uint32_t> flip;
};

struct variant {
    const char *name;
    xn_datatype in, out;
    xn_scaling scaling;
    bool packed_in, packed_out;
};

static const variant variants[] = {
    {"fp32->fp32", XN_FP32, XN_FP32, XN_SCALING_XNOR, false, false},
    {"fp16->fp16", XN_FP16, XN_FP16, XN_SCALING_XNOR, false, false},
    {"packed->int32", XN_FP32, XN_INT32, XN_SCALING_NONE, true, false},
    {"packed->fp16", XN_FP32, XN_FP16, XN_SCALING_ALPHA, true, false},
    {"packed->packed", XN_FP32, XN_FP32, XN_SCALING_NONE, true, true},
};

static void resolve(layer *l, xn_conv_params params, int64_t images, int64_t channels,
                    int64_t height, int64_t width, uint64_t seed) {
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    xn_shape shape = {};
    shape.rank = 4;
    const int64_t dims[4] = {images, channels, height, width};
    memcpy(shape.dims, dims, sizeof dims);
    xn_weights_shape weights;
    xn_weights_shape_of(l->weights, &weights);
    XN(xn_conv_resolve(&params, XN_FP32, &shape, &weights, &limits, &l->conv, &l->images,
                       &g_error));
    xn_rng rng = {seed};
    l->input.resize((size_t)(images * channels * height * width));
    for (float &v : l->input) /* exact in fp16, so that all variants see one input */
        v = xn_fp16_to_fp32(xn_fp32_to_fp16(xn_rng_float(&rng)));
    const int32_t bits = l->conv.group_channels * l->conv.kernel_h * l->conv.kernel_w;
    const int32_t spread = (int32_t)std::sqrt((double)bits) + 1;
    l->threshold.resize((size_t)l->conv.out_channels);
    l->flip.assign((size_t)(l->conv.out_channels + 31) / 32, 0);
    for (int32_t o = 0; o < l->conv.out_channels; o++) {
        l->threshold[o] = (int32_t)(xn_rng_next(&rng) % (2u * spread + 1)) - spread;
        l->flip[o / 32] |= (uint32_t)(xn_rng_next(&rng) & 1) << o % 32;
    }
}

static void make_weights(layer *l, const int64_t dims[4], uint64_t seed) {
    xn_rng rng = {seed};
    std::vector<float> real((size_t)(dims[0] * dims[1] * dims[2] * dims[3]));
    for (float &v : real)
        v = xn_rng_float(&rng);
    xn_tensor tensor = {};
    tensor.datatype = XN_FP32;
    tensor.shape.rank = 4;
    memcpy(tensor.shape.dims, dims, 4 * sizeof *dims);
    tensor.elements = (int64_t)real.size();
    tensor.bytes = real.size() * sizeof(float);
    tensor.data = real.data();
    XN(xn_weights_create(&tensor, NULL, NULL, &l->weights, &g_error));
}

/* 3x3, stride 1, padding 1, as many filters as channels. */
static layer make_layer(int64_t images, int64_t channels, int64_t side) {
    layer l = {};
    const int64_t filter[4] = {channels, channels, 3, 3};
    make_weights(&l, filter, 7);
    xn_conv_params params;
    xn_conv_params_default(&params);
    for (int64_t &p : params.padding)
        p = 1;
    params.scaling = XN_SCALING_NONE;
    resolve(&l, params, images, channels, side, side, 11);
    return l;
}

static xn_conv conv_of(const layer &l, const variant &v) {
    xn_conv c = l.conv;
    c.input_datatype = v.in;
    c.output_datatype = v.out;
    c.scaling = v.scaling;
    return c;
}

/* ---- device memory of a variant ---- */

struct device_run {
    xn_plan *plan;
    xn_cuda_run_io io;
    size_t in_bytes, out_bytes;
};

/* The layout of layout.h from the real input. */
static std::vector<uint32_t> pack(const layer &l) {
    const xn_conv &c = l.conv;
    const int64_t words = xn_cuda_tap_words(c.group_channels), plane = (int64_t)c.height * c.width;
    std::vector<uint32_t> bits((size_t)(l.images * c.groups * plane * words));
    for (int64_t n = 0; n < l.images; n++)
        for (int64_t ch = 0; ch < c.channels; ch++)
            for (int64_t p = 0; p < plane; p++) {
                const int64_t g = ch / c.group_channels, at = ch % c.group_channels;
                bits[((n * c.groups + g) * plane + p) * words + at / 32] |=
                    xn_sign_bit(l.input[(n * c.channels + ch) * plane + p]) << at % 32;
            }
    return bits;
}

static void *to_device(const void *data, size_t bytes) {
    void *memory;
    CUDA(cudaMalloc(&memory, bytes + 256));
    CUDA(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* False when that path cannot. */
static bool make_run(xn_stream *stream, const layer &l, const variant &v, int path, device_run *r) {
    const xn_conv c = conv_of(l, v);
    xn_cuda_plan_options options = {v.packed_in, v.packed_out, path >= 0, (xn_cuda_path)path};
    if (xn_cuda_plan_create_with(stream, &c, l.images, &options, &r->plan, &g_error))
        return false;
    r->io = {};
    if (v.packed_in) {
        std::vector<uint32_t> bits = pack(l);
        r->in_bytes = bits.size() * 4;
        r->io.bits = (const uint32_t *)to_device(bits.data(), r->in_bytes);
    } else if (v.in == XN_FP16) {
        std::vector<uint16_t> half(l.input.size());
        for (size_t i = 0; i < half.size(); i++)
            half[i] = xn_fp32_to_fp16(l.input[i]);
        r->in_bytes = half.size() * 2;
        r->io.input = to_device(half.data(), r->in_bytes);
    } else {
        r->in_bytes = l.input.size() * 4;
        r->io.input = to_device(l.input.data(), r->in_bytes);
    }
    if (v.packed_out)
        r->out_bytes =
            (size_t)l.images * c.out_height * c.out_width * xn_cuda_tap_words(c.out_channels) * 4;
    else
        r->out_bytes = (size_t)l.images * xn_conv_output_bytes(&c);
    void *out;
    CUDA(cudaMalloc(&out, r->out_bytes + 256));
    CUDA(cudaMemset(out, 0xa5, r->out_bytes + 256));
    (v.packed_out ? *(void **)&r->io.packed : r->io.output) = out;
    r->io.threshold = (const int32_t *)to_device(l.threshold.data(), l.threshold.size() * 4);
    r->io.flip = (const uint32_t *)to_device(l.flip.data(), l.flip.size() * 4);
    return true;
}

static void free_run(device_run *r) {
    xn_cuda_plan_free(r->plan);
    for (const void *p :
         {(const void *)r->io.bits, r->io.input, (const void *)r->io.output,
          (const void *)r->io.packed, (const void *)r->io.threshold, (const void *)r->io.flip})
        CUDA(cudaFree(const_cast<void *>(p)));
}

/* ---- checking ---- */

/* ref's output of the variant's problem, dots for packed output. */
static std::vector<float> reference(const layer &l, const variant &v) {
    const xn_backend *ref = xn_backend_find("ref");
    xn_device *device;
    xn_stream *stream;
    xn_prepared *prepared;
    xn_plan *plan;
    xn_conv c = conv_of(l, v);
    c.input_datatype = c.output_datatype = XN_FP32;
    const xn_stream_options options = {0};
    std::vector<float> out((size_t)(l.images * xn_conv_output_elements(&c)));
    XN(ref->device_open(0, &device, &g_error));
    XN(ref->stream_create(device, &options, &stream, &g_error));
    XN(ref->weights_prepare(device, l.weights, &prepared, &g_error));
    XN(ref->plan_create(stream, &c, l.images, &plan, &g_error));
    xn_batch_item item = {l.input.data(), out.data(), l.images};
    xn_run_times times;
    XN(ref->run(plan, prepared, &item, 1, &times, &g_error));
    ref->plan_free(plan);
    ref->weights_free(prepared);
    ref->stream_free(stream);
    ref->device_close(device);
    return out;
}

static bool packed_equals(const layer &l, const std::vector<float> &dots,
                          const std::vector<uint32_t> &got, size_t *at) {
    const xn_conv &c = l.conv;
    const int64_t plane = (int64_t)c.out_height * c.out_width;
    const int64_t words = xn_cuda_tap_words(c.out_channels);
    for (int64_t p = 0; p < l.images * plane; p++)
        for (int64_t w = 0; w < words; w++) {
            uint32_t want = 0;
            for (int64_t o = w * 32; o < std::min<int64_t>(w * 32 + 32, c.out_channels); o++) {
                const float dot = dots[(p / plane * c.out_channels + o) * plane + p % plane];
                want |= ((uint32_t)(dot >= l.threshold[o]) ^ (l.flip[o / 32] >> o % 32 & 1))
                        << o % 32;
            }
            *at = p * words + w;
            if (got[*at] != want)
                return false;
        }
    return true;
}

static bool real_equals(xn_datatype type, const std::vector<float> &want, const char *got,
                        size_t *at) {
    double largest = 0;
    for (float w : want)
        largest = std::max(largest, std::fabs((double)w));
    for (*at = 0; *at < want.size(); (*at)++) {
        const double w = want[*at];
        if (type == XN_INT32 && ((const int32_t *)got)[*at] != (int32_t)w)
            return false;
        const double tolerance =
            1e-5 * std::fabs(w) + (type == XN_FP16 ? std::fabs(w) / 2048 + 1e-7 : 1e-7 * largest);
        const double g = type == XN_FP32   ? ((const float *)got)[*at]
                         : type == XN_FP16 ? xn_fp16_to_fp32(((const uint16_t *)got)[*at])
                                           : w;
        if (!(std::fabs(g - w) <= tolerance))
            return false;
    }
    return true;
}

static const char *path_name(int path) {
    static const char *const names[] = {"few",        "wide",     "gemm", "direct",
                                        "real wgmma", "real mma", "real"};
    return names[path];
}

/* Runs the variant once and compares. -1: this path cannot, 0: wrong, 1: right. */
static int check(xn_stream *stream, const layer &l, const variant &v, int path,
                 const std::vector<float> &want, const char *what) {
    device_run r;
    size_t at = 0;
    if (!make_run(stream, l, v, path, &r))
        return -1;
    if (stream->workspace)
        CUDA(cudaMemset(stream->workspace, 0xff, stream->workspace_bytes));
    CUDA(cudaDeviceSynchronize());
    CUDA(xn_cuda_enqueue(r.plan, l.prepared, l.images, &r.io, stream->stream));
    CUDA(cudaStreamSynchronize(stream->stream));
    std::vector<char> out(r.out_bytes + 256);
    CUDA(cudaMemcpy(out.data(), v.packed_out ? (void *)r.io.packed : r.io.output, out.size(),
                    cudaMemcpyDeviceToHost));
    bool right = true;
    for (size_t i = r.out_bytes; i < out.size(); i++)
        right = right && out[i] == (char)0xa5;
    if (v.packed_out) {
        std::vector<uint32_t> words(r.out_bytes / 4);
        memcpy(words.data(), out.data(), r.out_bytes);
        right = right && packed_equals(l, want, words, &at);
    } else {
        right = right && real_equals(v.out, want, out.data(), &at);
    }
    if (!right)
        fprintf(stderr, "WRONG: %s, %s, path %s, at %zu\n", what, v.name, path_name(r.plan->path),
                at);
    free_run(&r);
    return right;
}

/* ---- random geometries ---- */

static int64_t draw(xn_rng *rng, int64_t low, int64_t high) {
    return low + (int64_t)(xn_rng_next(rng) % (uint64_t)(high - low + 1));
}

static layer random_layer(uint64_t seed) {
    static const int channel_counts[] = {1,  3,  8,  9,  16,  31,  32,  33,  40,  63,
                                         64, 65, 96, 97, 127, 128, 129, 160, 192, 256};
    static const int filter_counts[] = {1,  2,  7,  16,  17,  31,  32, 33,
                                        64, 65, 96, 127, 128, 130, 256};
    xn_rng rng = {seed};
    layer l = {};
    xn_conv_params p;
    xn_conv_params_default(&p);
    const bool plain = draw(&rng, 0, 2) == 0;
    p.groups = draw(&rng, 0, 4) ? 1 : draw(&rng, 2, 4);
    const int64_t channels = channel_counts[draw(&rng, 0, 19)];
    const int64_t filters = filter_counts[draw(&rng, 0, 14)];
    const int64_t kh = plain ? 3 : draw(&rng, 1, 7), kw = plain ? 3 : draw(&rng, 1, 7);
    for (int i = 0; i < 2; i++) {
        p.stride[i] = plain ? 1 : draw(&rng, 1, 3);
        p.dilation[i] = plain || draw(&rng, 0, 1) ? 1 : draw(&rng, 2, 3);
    }
    for (int64_t &pad : p.padding)
        pad = plain ? 1 : draw(&rng, 0, 4);
    p.pad_value = (int)draw(&rng, -1, 1);
    p.scaling = XN_SCALING_NONE;
    const int64_t extent_h = p.dilation[0] * (kh - 1) + 1, extent_w = p.dilation[1] * (kw - 1) + 1;
    const int64_t height =
        std::max<int64_t>(draw(&rng, 1, 20), extent_h - p.padding[0] - p.padding[2]);
    const int64_t width =
        std::max<int64_t>(draw(&rng, 1, 40), extent_w - p.padding[1] - p.padding[3]);
    const int64_t dims[4] = {p.groups * filters, channels, kh, kw};
    make_weights(&l, dims, seed + 1);
    resolve(&l, p, draw(&rng, 1, 5), p.groups * channels, height, width, seed + 2);
    return l;
}

static int check_random(xn_device *device, xn_stream *stream, int64_t count, uint64_t seed) {
    int64_t runs[XN_CUDA_PATHS] = {}, wrong = 0;
    static const variant random_variants[] = {
        {"fp32->int32", XN_FP32, XN_INT32, XN_SCALING_NONE, false, false},
        {"packed->int32", XN_FP32, XN_INT32, XN_SCALING_NONE, true, false},
        {"packed->packed", XN_FP32, XN_FP32, XN_SCALING_NONE, true, true},
        {"fp16->fp16", XN_FP16, XN_FP16, XN_SCALING_XNOR, false, false},
    };
    for (int64_t n = 0; n < count; n++) {
        layer l = random_layer(seed + (uint64_t)n * 16);
        if (xn_conv_operations(&l.conv) * l.images > 60000000) {
            xn_weights_free(l.weights);
            continue;
        }
        char what[64];
        snprintf(what, sizeof what, "random seed %llu", (unsigned long long)(seed + n * 16));
        XN(xn_cuda_weights_prepare(device, l.weights, &l.prepared, &g_error));
        const std::vector<float> dots = reference(l, random_variants[0]);
        for (int v = 0; v < 4; v++) {
            if (v == 3 && n % 8)
                continue;
            const std::vector<float> scaled =
                v == 3 ? reference(l, random_variants[3]) : std::vector<float>();
            for (int path = 0; path <= XN_CUDA_DIRECT; path++) {
                int result =
                    check(stream, l, random_variants[v], path, v == 3 ? scaled : dots, what);
                runs[path] += result >= 0;
                wrong += result == 0;
            }
        }
        xn_cuda_weights_free(l.prepared);
        xn_weights_free(l.weights);
    }
    printf("random: %lld geometries, %lld wrong; runs few %lld wide %lld gemm %lld direct %lld\n",
           (long long)count, (long long)wrong, (long long)runs[0], (long long)runs[1],
           (long long)runs[2], (long long)runs[3]);
    return wrong != 0;
}

/* ---- timing ---- */

struct times {
    double median, p10, p90;
};

static times time_run(const device_run &r, const layer &l, cudaStream_t stream) {
    const int launches = 20, replays = 31;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, stop;
    std::vector<double> us;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++)
        CUDA(xn_cuda_enqueue(r.plan, l.prepared, l.images, &r.io, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreate(&stop));
    for (int i = 0; i < replays + 3; i++) {
        float ms;
        CUDA(cudaEventRecord(start, stream));
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaEventRecord(stop, stream));
        CUDA(cudaEventSynchronize(stop));
        CUDA(cudaEventElapsedTime(&ms, start, stop));
        if (i >= 3)
            us.push_back(ms * 1e3 / launches);
    }
    std::sort(us.begin(), us.end());
    CUDA(cudaEventDestroy(start));
    CUDA(cudaEventDestroy(stop));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    return {us[us.size() / 2], us[us.size() / 10], us[us.size() - 1 - us.size() / 10]};
}

static const int64_t layers[][3] = {
    {1, 64, 56},   {1, 128, 28},  {1, 256, 14}, {1, 512, 7},    {64, 64, 56},
    {64, 128, 28}, {64, 256, 14}, {64, 512, 7}, {64, 1024, 14},
};

static int check_layers(xn_device *device, xn_stream *stream, int path) {
    int wrong = 0;
    for (const auto &d : layers) {
        if (d[0] == 1 && d[1] < 1024)
            continue;
        layer l = make_layer(2, d[1], d[1] == 1024 ? 5 : d[2]);
        char what[64];
        snprintf(what, sizeof what, "2 x %lld x %lld", (long long)d[1], (long long)d[2]);
        XN(xn_cuda_weights_prepare(device, l.weights, &l.prepared, &g_error));
        for (const variant &v : variants)
            wrong += check(stream, l, v, path, reference(l, v), what) == 0;
        xn_cuda_weights_free(l.prepared);
        xn_weights_free(l.weights);
    }
    printf("check: %d wrong\n", wrong);
    fflush(stdout);
    return wrong;
}

static void time_layers(xn_device *device, xn_stream *stream, int path, int only, int only_layer) {
    printf("%-12s %-15s %-6s %9s %9s %9s %9s %7s %9s\n", "layer", "variant", "path", "median us",
           "p10", "p90", "copy us", "x copy", "Tops");
    for (const auto &d : layers) {
        if (only_layer >= 0 && &d != &layers[only_layer])
            continue;
        layer l = make_layer(d[0], d[1], d[2]);
        XN(xn_cuda_weights_prepare(device, l.weights, &l.prepared, &g_error));
        for (const variant &v : variants) {
            device_run r;
            double copy = 0;
            if (only >= 0 && &v != &variants[only])
                continue;
            if (!make_run(stream, l, v, path, &r))
                continue;
            const times t = time_run(r, l, stream->stream);
            if (!xn_bench_gpu_copy(r.in_bytes, r.out_bytes, &copy))
                exit(1);
            char name[32];
            snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)d[0], (long long)d[1],
                     (long long)d[2]);
            printf("%-12s %-15s %-6s %9.2f %9.2f %9.2f %9.2f %7.2f %9.1f\n", name, v.name,
                   path_name(r.plan->path), t.median, t.p10, t.p90, copy, t.median / copy,
                   2.0 * (double)xn_conv_operations(&l.conv) * (double)l.images / t.median / 1e6);
            fflush(stdout);
            free_run(&r);
        }
        xn_cuda_weights_free(l.prepared);
        xn_weights_free(l.weights);
    }
}

int main(int argc, char **argv) {
    int64_t random = 0;
    uint64_t seed = 1;
    int path = -1, only = -1, only_layer = -1;
    bool timed = true, checked = true;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--random"))
            random = atoll(next), i++;
        else if (!strcmp(argv[i], "--seed"))
            seed = strtoull(next, NULL, 0), i++;
        else if (!strcmp(argv[i], "--path"))
            path = atoi(next), i++;
        else if (!strcmp(argv[i], "--variant"))
            only = atoi(next), i++;
        else if (!strcmp(argv[i], "--layer"))
            only_layer = atoi(next), i++;
        else if (!strcmp(argv[i], "--check-only"))
            timed = false;
        else if (!strcmp(argv[i], "--no-check"))
            checked = false;
    }
    xn_device *device;
    xn_stream *stream;
    const xn_stream_options options = {0};
    int failed = 0;
    XN(xn_cuda_device_open(0, &device, &g_error));
    XN(xn_cuda_stream_create(device, &options, &stream, &g_error));
    printf("%s, wide %s\n", device->name, device->wide ? "yes" : "no");
    if (random)
        failed = check_random(device, stream, random, seed);
    else {
        if (checked)
            failed = check_layers(device, stream, path);
        if (timed)
            time_layers(device, stream, path, only, only_layer);
    }
    xn_cuda_stream_free(stream);
    xn_cuda_device_close(device);
    return failed != 0;
}
