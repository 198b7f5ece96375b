/* gpu_shapes.cu: `make bench-gpu-shapes`: shapes beside the square dense layers, each against its
 * own floor, so that a cliff shows: depth-wise, grouped, strided, dilated, 1x1, large kernels,
 * stems. fp32 in and out, K and alpha. The floor is the largest of a copy of the same bytes in the
 * same run, a launch, and the operations at the rate that the matrix units reach in the same run;
 * which of them it is stands beside it. Every kernel path that can run a shape is timed beside the
 * one the plan chose; first all its outputs are compared with the direct path's (INT32 exactly,
 * fp32 to the sum of both tolerances), and the direct path's first image with backend ref where
 * that takes less than a moment.
 *   bench-gpu-shapes [--only SUBSTRING]... [--chosen] [--json FILE]
 *     --only: shapes whose name, as printed, has one of these in it
 *     --chosen: no other paths
 */
#include "bench_runner.h"
#include "gpu_peak.cuh"
#include "gpu_timing.cuh"
#include "xn_cuda.h"

#include <cmath>
#include <cstring>
#include <string>

enum { REPLAYS = 9, REF_OPERATIONS = 30000000 };
#define LAUNCH_US 1.2 /* an empty kernel's share of a graph of launches */

struct shape {
    const char *family;
    int64_t images, channels, side, filters, kernel, stride, dilation, groups;
};

/* channels * side ^ 2, depth-wise; all with padding that keeps the size at stride 1. */
#define DEPTH(FAMILY, C, SIDE, K, S, D)                                                            \
    {FAMILY, 1, C, SIDE, C, K, S, D, C}, {FAMILY, 16, C, SIDE, C, K, S, D, C}, {                   \
        FAMILY, 64, C, SIDE, C, K, S, D, C                                                         \
    }
#define BATCHES(FAMILY, C, SIDE, O, K, S, D, G)                                                    \
    {FAMILY, 1, C, SIDE, O, K, S, D, G}, {                                                         \
        FAMILY, 64, C, SIDE, O, K, S, D, G                                                         \
    }
static const shape shapes[] = {
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

/* The ways to compute a shape: the paths of mode xnor. */
enum { WAYS = XN_CUDA_DIRECT + 1 };
static const char *const way_names[WAYS] = {
    "sliding_window", "depthwise",        "patch_gemm",        "tiles",         "fused_gemm",
    "dual_rail",      "warp_specialised", "filter_stationary", "implicit_gemm", "direct"};

struct session {
    xn_device *device;
    xn_stream *stream;
    double matrix_ops_us;           /* 1-bit operations, 2 a tap, that the matrix units do; or 0 */
    std::vector<const char *> only; /* parts of names; none: all */
    bool chosen_only;
    FILE *json;
    int wrong;
};

struct problem {
    xn_conv conv; /* fp32 out, K and alpha */
    int64_t images;
    xn_weights *weights;
    xn_prepared *prepared;
    void *input, *output, *want; /* device */
    size_t in_bytes, out_bytes;
};

/* What no kernel passes, and what it is. */
struct bound {
    double us;
    const char *by;
};

struct result {
    std::string name, way;
    double us, ratio;
    bound floor;
};

/* ---- problems ---- */

static uint32_t hash(uint64_t z) {
    z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

static __global__ void fill(float *v, size_t count) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t z = (i + 77) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    if (i < count)
        v[i] = (float)(int32_t)((z ^ z >> 27) * 0x94d049bb133111ebu >> 32) * 0x1p-31f;
}

static void make_weights(problem *p, const shape &s) {
    const int64_t dims[4] = {s.filters, s.channels / s.groups, s.kernel, s.kernel};
    std::vector<float> real((size_t)(dims[0] * dims[1] * dims[2] * dims[3]));
    for (size_t i = 0; i < real.size(); i++)
        real[i] = (float)(int32_t)hash(i) * 0x1p-31f;
    xn_tensor tensor = {};
    tensor.datatype = XN_FP32;
    tensor.shape.rank = 4;
    memcpy(tensor.shape.dims, dims, sizeof dims);
    tensor.elements = (int64_t)real.size();
    tensor.bytes = real.size() * sizeof(float);
    tensor.data = real.data();
    xn_error error;
    REQUIRE(xn_weights_create(&tensor, NULL, NULL, &p->weights, &error));
}

static problem make(const session &s, const shape &sh) {
    const xn_conv_limits limits = {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 60};
    const xn_shape input = {4, {sh.images, sh.channels, sh.side, sh.side}};
    problem p = {};
    xn_weights_shape weights;
    xn_conv_params params;
    xn_error error;
    make_weights(&p, sh);
    xn_weights_shape_of(p.weights, &weights);
    xn_conv_params_default(&params);
    for (int64_t &padding : params.padding)
        padding = sh.kernel == sh.stride ? 0 : sh.dilation * (sh.kernel / 2);
    params.stride[0] = params.stride[1] = sh.stride;
    params.dilation[0] = params.dilation[1] = sh.dilation;
    params.groups = sh.groups;
    REQUIRE(
        xn_conv_resolve(&params, XN_FP32, &input, &weights, &limits, &p.conv, &p.images, &error));
    REQUIRE(xn_backend_cuda.weights_prepare(s.device, p.weights, &p.prepared, &error));
    p.in_bytes = (size_t)p.images * xn_conv_input_bytes(&p.conv);
    p.out_bytes = (size_t)p.images * xn_conv_output_bytes(&p.conv);
    CHECK(cudaMalloc(&p.input, p.in_bytes));
    CHECK(cudaMalloc(&p.output, p.out_bytes));
    CHECK(cudaMalloc(&p.want, p.out_bytes));
    const size_t count = p.in_bytes / 4;
    fill<<<(unsigned)((count + 255) / 256), 256, 0, s.stream->stream>>>((float *)p.input, count);
    CHECK(cudaGetLastError());
    return p;
}

static void free_problem(problem *p) {
    CHECK(cudaFree(p->input));
    CHECK(cudaFree(p->output));
    CHECK(cudaFree(p->want));
    xn_backend_cuda.weights_free(p->prepared);
    xn_weights_free(p->weights);
}

/* ---- launching ---- */

/* The launch of a way, false where it cannot; *plan is to be freed after the last one. */
static bool prepare_way(const session &s, const problem &p, const xn_conv &conv, xn_cuda_path w,
                        xn_plan **plan, void *output, std::function<void()> *launch) {
    const xn_conv c = conv;
    const int64_t images = p.images;
    const cudaStream_t stream = s.stream->stream;
    const xn_prepared *prepared = p.prepared;
    const void *input = p.input;
    *plan = NULL;
    const xn_cuda_plan_options options = {false, false, false, true, w};
    xn_error error;
    if (xn_cuda_plan_create_with(s.stream, &c, images, &options, plan, &error))
        return false;
    const xn_plan *made = *plan;
    *launch = [=] {
        xn_cuda_run_io io = {};
        io.input = input;
        io.output = output;
        CHECK(xn_cuda_enqueue(made, prepared, images, &io, stream));
    };
    return true;
}

static xn_cuda_path chosen_way(const session &s, const problem &p) {
    xn_plan *plan;
    xn_error error;
    xn_step step;
    xn_step_of_conv(&p.conv, &step);
    REQUIRE(xn_cuda_plan_create(s.stream, &step, p.images, &plan, &error));
    const xn_cuda_path path = plan->path;
    xn_cuda_plan_free(plan);
    return path;
}

/* ---- checking ---- */

static __global__ void compare(const void *got, const void *want, size_t count, bool floats,
                               unsigned long long *wrong) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const float g = ((const float *)got)[i], w = ((const float *)want)[i];
    const bool same = floats ? fabsf(g - w) <= 2e-5f * fabsf(w)
                             : ((const int32_t *)got)[i] == ((const int32_t *)want)[i];
    if (!same)
        atomicAdd(wrong, 1ull);
}

static unsigned long long count_wrong(const session &s, const problem &p, bool floats) {
    unsigned long long *wrong, host;
    const size_t count = p.out_bytes / 4;
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemsetAsync(wrong, 0, sizeof *wrong, s.stream->stream));
    compare<<<(unsigned)((count + 255) / 256), 256, 0, s.stream->stream>>>(p.output, p.want, count,
                                                                           floats, wrong);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(s.stream->stream));
    CHECK(cudaMemcpy(&host, wrong, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(wrong));
    return host;
}

/* The first image by backend ref against the device's `want`. */
static unsigned long long check_first(const problem &p, const xn_conv &conv) {
    std::vector<float> input(xn_conv_input_bytes(&conv) / 4);
    std::vector<uint32_t> out(xn_conv_output_bytes(&conv) / 4), got(out.size());
    CHECK(cudaMemcpy(input.data(), p.input, input.size() * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(got.data(), p.want, got.size() * 4, cudaMemcpyDeviceToHost));
    xn_bench_run_on("ref", &conv, p.weights, 1, input.data(), out.data());
    unsigned long long wrong = 0;
    for (size_t i = 0; i < out.size(); i++) {
        float g, w;
        memcpy(&g, &got[i], 4);
        memcpy(&w, &out[i], 4);
        wrong += conv.epilogue.datatype == XN_INT32 ? got[i] != out[i]
                                                    : !(std::fabs(g - w) <= 1e-5f * std::fabs(w));
    }
    return wrong;
}

/* Outputs of a way that are wrong: dots, and fp32 with K and alpha. */
static unsigned long long check_way(const session &s, const problem &p, xn_cuda_path w) {
    unsigned long long wrong = 0;
    for (int floats = 0; floats < 2; floats++) {
        xn_conv conv = p.conv;
        xn_plan *direct, *plan;
        std::function<void()> launch;
        if (!floats)
            conv.epilogue = xn_conv_epilogue(XN_MODE_XNOR, XN_SCALING_NONE, false, false, XN_INT32);
        if (!prepare_way(s, p, conv, XN_CUDA_DIRECT, &direct, p.want, &launch))
            exit(1); /* it takes any geometry */
        CHECK(cudaMemsetAsync(p.want, 0xff, p.out_bytes, s.stream->stream));
        launch();
        CHECK(cudaStreamSynchronize(s.stream->stream));
        xn_cuda_plan_free(direct);
        if (w == XN_CUDA_DIRECT) {
            if (xn_conv_operations(&conv) <= REF_OPERATIONS)
                wrong += check_first(p, conv);
            continue;
        }
        if (!prepare_way(s, p, conv, w, &plan, p.output, &launch))
            continue;
        CHECK(cudaMemsetAsync(p.output, 0xff, p.out_bytes, s.stream->stream));
        launch();
        wrong += count_wrong(s, p, floats);
        xn_cuda_plan_free(plan);
    }
    return wrong;
}

/* ---- the runs ---- */

/* About a millisecond a replay. */
static double time_launch(const session &s, const std::function<void()> &launch) {
    const double once = replay(s.stream->stream, launch, 1, 3).median;
    const int launches = (int)std::min(50.0, std::max(2.0, 1000.0 / once));
    return replay(s.stream->stream, launch, launches, REPLAYS).median;
}

static double time_way(const session &s, const problem &p, xn_cuda_path w) {
    xn_plan *plan;
    std::function<void()> launch;
    if (!prepare_way(s, p, p.conv, w, &plan, p.output, &launch))
        return 0;
    const double us = time_launch(s, launch);
    xn_cuda_plan_free(plan);
    return us;
}

static bound floor_of(const session &s, const problem &p) {
    const double copy =
        time_copy(s.stream->stream, p.input, p.in_bytes, p.output, p.out_bytes, 20, REPLAYS).median;
    const double operations = 2.0 * (double)p.images * (double)xn_conv_operations(&p.conv);
    const double matrix = s.matrix_ops_us > 0 ? operations / s.matrix_ops_us : 0;
    if (matrix > copy && matrix > LAUNCH_US)
        return {matrix, "matrix"};
    return copy > LAUNCH_US ? bound{copy, "copy"} : bound{LAUNCH_US, "launch"};
}

static double matrix_rate(const session &s) {
    const peak::rates r = peak::measure(s.stream->stream, s.device->multiprocessors, s.device->wide,
                                        s.device->matrix);
    return std::max(r.wgmma, r.mma) * 1e6;
}

static std::string name_of(const shape &sh) {
    char name[120];
    snprintf(name, sizeof name, "%-17s %2lldx%lldx%lld o%lld k%lld s%lld d%lld g%lld", sh.family,
             (long long)sh.images, (long long)sh.channels, (long long)sh.side,
             (long long)sh.filters, (long long)sh.kernel, (long long)sh.stride,
             (long long)sh.dilation, (long long)sh.groups);
    return name;
}

static bool is_wanted(const session &s, const shape &sh) {
    const std::string name = name_of(sh);
    return s.only.empty() || std::any_of(s.only.begin(), s.only.end(), [&](const char *part) {
               return name.find(part) != std::string::npos;
           });
}

static result run(session *s, const shape &sh) {
    const std::string shown = name_of(sh);
    const char *name = shown.c_str();
    problem p = make(*s, sh);
    const xn_cuda_path chosen = chosen_way(*s, p);
    const bound floor = floor_of(*s, p);
    double us[WAYS] = {};
    printf("%-52s |", name);
    for (int w = WAYS - 1; w >= 0; w--) {
        if (s->chosen_only && w != chosen && w != XN_CUDA_DIRECT)
            continue;
        const unsigned long long wrong = check_way(*s, p, (xn_cuda_path)w);
        s->wrong += wrong != 0;
        if (wrong)
            printf(" %s: %llu WRONG", way_names[w], wrong);
        us[w] = time_way(*s, p, (xn_cuda_path)w);
    }
    for (double t : us) {
        if (t > 0)
            printf(" %8.2f", t);
        else
            printf(" %8s", "-");
    }
    result r = {name, way_names[chosen], us[chosen], us[chosen] / floor.us, floor};
    printf(" | %-6s %8.2f / %8.2f %-6s = %6.2f\n", r.way.c_str(), r.us, floor.us, floor.by,
           r.ratio);
    fflush(stdout);
    if (s->json)
        fprintf(s->json,
                "{\"shape\": \"%s\", \"path\": \"%s\", \"us\": %.3f, \"floor_us\": %.3f, "
                "\"floor\": \"%s\", \"ratio\": %.3f}\n",
                name, r.way.c_str(), r.us, floor.us, floor.by, r.ratio);
    free_problem(&p);
    return r;
}

static bool read_options(session *s, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--chosen"))
            s->chosen_only = true;
        else if (!strcmp(argv[i], "--only") && i + 1 < argc)
            s->only.push_back(argv[++i]);
        else if (!strcmp(argv[i], "--json") && i + 1 < argc)
            s->json = fopen(argv[++i], "w");
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    session s = {};
    const xn_stream_options options = {};
    std::vector<result> results;
    xn_error error;
    if (!read_options(&s, argc, argv))
        return fprintf(stderr, "usage: bench-gpu-shapes [--only S]... [--chosen] [--json FILE]\n"),
               2;
    REQUIRE(xn_backend_cuda.device_open(0, &s.device, &error));
    REQUIRE(xn_backend_cuda.stream_create(s.device, &options, &s.stream, &error));
    s.matrix_ops_us = matrix_rate(s);
    printf("matrix units: %.0f Tops\n", s.matrix_ops_us / 1e6);
    printf("%-52s |", "us a launch by graph replay");
    for (const char *name : way_names)
        printf(" %8.8s", name);
    puts(" | chosen / floor");
    for (const shape &sh : shapes)
        if (is_wanted(s, sh))
            results.push_back(run(&s, sh));
    std::sort(results.begin(), results.end(),
              [](const result &a, const result &b) { return a.ratio > b.ratio; });
    puts("\nfarthest from the floor:");
    for (size_t i = 0; i < results.size() && (i < 20 || results[i].ratio > 4); i++)
        printf("%-52s %-6s %8.2f / %8.2f %-6s = %6.2f\n", results[i].name.c_str(),
               results[i].way.c_str(), results[i].us, results[i].floor.us, results[i].floor.by,
               results[i].ratio);
    printf("%zu shapes, %d wrong\n", results.size(), s.wrong);
    if (s.json)
        fclose(s.json);
    xn_backend_cuda.stream_free(s.stream);
    xn_backend_cuda.device_close(s.device);
    return s.wrong != 0;
}
