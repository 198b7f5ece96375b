/* gpu_real.cu: modes float and bwn on the matrix units: times of layers on a GPU, kernels only,
 * each figure a CUDA graph of many launches on device memory, replayed; random data, beside a copy
 * kernel of the same bytes in the same run. First every row is checked on a smaller batch against
 * backend cpu (which the tests hold against ref): operands are exact in fp16, so that only the
 * sums' own rounding may differ; printed as a part of the sum of the magnitudes of the terms.
 *
 *   bench-gpu-real [--check-only | --no-check] [--exact] [--mma] [--layer L]
 *
 * --exact: the fp32 kernel too. --mma: times of mma.sync where there is wgmma. */
#include "bench.h"
#include "gpu_timing.cuh"
#include "xn_cuda.h"
#include "xn_rng.h"

#include <cmath>
#include <cstring>

static xn_error error;

/* ---- problems ---- */

struct shape {
    const char *name;
    int64_t images, checked; /* images to time; images of the check */
    int64_t channels, side, filters, kernel, stride, padding;
};

static const shape shapes[] = {
    {"1x64x56", 1, 1, 64, 56, 64, 3, 1, 1},         {"1x128x28", 1, 1, 128, 28, 128, 3, 1, 1},
    {"1x256x14", 1, 1, 256, 14, 256, 3, 1, 1},      {"1x512x7", 1, 1, 512, 7, 512, 3, 1, 1},
    {"1x3x224 stem", 1, 1, 3, 224, 64, 7, 2, 3},    {"64x64x56", 64, 6, 64, 56, 64, 3, 1, 1},
    {"64x128x28", 64, 20, 128, 28, 128, 3, 1, 1},   {"64x256x14", 64, 40, 256, 14, 256, 3, 1, 1},
    {"64x512x7", 64, 64, 512, 7, 512, 3, 1, 1},     {"64x3x224 stem", 64, 3, 3, 224, 64, 7, 2, 3},
    {"64x1024x14", 64, 4, 1024, 14, 1024, 3, 1, 1},
};

struct variant {
    xn_mode mode;
    xn_datatype type; /* in and out */
    xn_precision precision;
};

static const variant variants[] = {
    {XN_MODE_FLOAT, XN_FP16, XN_PRECISION_FP16}, {XN_MODE_FLOAT, XN_FP32, XN_PRECISION_FP16},
    {XN_MODE_BWN, XN_FP16, XN_PRECISION_FP16},   {XN_MODE_FLOAT, XN_FP32, XN_PRECISION_TF32},
    {XN_MODE_FLOAT, XN_FP32, XN_PRECISION_FP32},
};

/* Values that fp16 has. */
static std::vector<float> draw(int64_t count, uint64_t seed) {
    xn_rng rng = {seed};
    std::vector<float> values((size_t)count);
    for (float &v : values)
        v = xn_fp16_to_fp32(xn_fp32_to_fp16(xn_rng_float(&rng)));
    return values;
}

static xn_weights *weights_of(const shape &s, const std::vector<float> &values) {
    xn_tensor tensor = {};
    xn_weights *weights;
    tensor.datatype = XN_FP32;
    tensor.shape = {4, {s.filters, s.channels, s.kernel, s.kernel}};
    tensor.elements = (int64_t)values.size();
    tensor.bytes = values.size() * sizeof(float);
    tensor.data = values.data();
    REQUIRE(xn_weights_create(&tensor, NULL, NULL, &weights, &error));
    return weights;
}

static xn_conv conv_of(const shape &s, const variant &v) {
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    const xn_shape input = {4, {1, s.channels, s.side, s.side}};
    const xn_weights_shape weights = {
        {s.filters, s.channels, s.kernel, s.kernel}, XN_FP32, false, false};
    xn_conv_params p;
    xn_conv conv;
    int64_t images;
    xn_conv_params_default(&p);
    p.stride[0] = p.stride[1] = s.stride;
    for (int64_t &pad : p.padding)
        pad = s.padding;
    p.mode = v.mode;
    p.precision = v.precision;
    p.output_datatype = v.type;
    REQUIRE(xn_conv_resolve(&p, v.type, &input, &weights, &limits, &conv, &images, &error));
    return conv;
}

/* ---- device memory of a row ---- */

struct device_run {
    xn_plan *plan;
    xn_prepared *prepared;
    xn_weights *weights;
    int64_t images;
    xn_cuda_run_io io;
    size_t in_bytes, out_bytes;
};

static device_run make_run(xn_stream *stream, const shape &s, const variant &v, int64_t images,
                           bool mma, const std::vector<float> &input,
                           const std::vector<float> &real) {
    device_run r = {};
    const xn_conv c = conv_of(s, v);
    void *memory;
    const bool forced = mma && v.precision != XN_PRECISION_FP32;
    const xn_cuda_plan_options options = {false, false, false, forced, XN_CUDA_REAL_MMA};
    REQUIRE(xn_cuda_plan_create_with(stream, &c, images, &options, &r.plan, &error));
    r.weights = weights_of(s, real);
    REQUIRE(xn_cuda_weights_prepare(stream->device, r.weights, &r.prepared, &error));
    REQUIRE(xn_cuda_weights_ready(r.prepared, r.plan, &error));
    r.images = images;
    r.in_bytes = (size_t)images * xn_conv_input_bytes(&c);
    r.out_bytes = (size_t)images * xn_conv_output_bytes(&c);
    CHECK(cudaMalloc(&memory, r.in_bytes));
    std::vector<uint16_t> half(v.type == XN_FP16 ? input.size() : 0);
    for (size_t i = 0; i < half.size(); i++)
        half[i] = xn_fp32_to_fp16(input[i]);
    CHECK(cudaMemcpy(memory, half.empty() ? (const void *)input.data() : half.data(), r.in_bytes,
                     cudaMemcpyHostToDevice));
    r.io.input = memory;
    CHECK(cudaMalloc(&r.io.output, r.out_bytes));
    CHECK(cudaMemset(r.io.output, 0xff, r.out_bytes)); /* NaN, in both datatypes */
    return r;
}

static void free_run(device_run *r) {
    CHECK(cudaFree(const_cast<void *>(r->io.input)));
    CHECK(cudaFree(r->io.output));
    xn_cuda_plan_free(r->plan);
    xn_cuda_weights_free(r->prepared);
    xn_weights_free(r->weights);
}

/* ---- checking ---- */

static std::vector<float> on_cpu(const shape &s, xn_mode mode, const std::vector<float> &input,
                                 const std::vector<float> &real) {
    const xn_conv c = conv_of(s, {mode, XN_FP32, XN_PRECISION_FP32});
    xn_weights *weights = weights_of(s, real);
    std::vector<float> out((size_t)(s.checked * xn_conv_output_elements(&c)));
    xn_bench_run_on("cpu", &c, weights, s.checked, input.data(), out.data());
    xn_weights_free(weights);
    return out;
}

/* The largest difference as a part of the sum of magnitudes; the rounding of FP16 outputs aside. */
static double error_of(const device_run &r, xn_datatype type, const std::vector<float> &want,
                       const std::vector<float> &magnitude) {
    std::vector<char> out(r.out_bytes);
    double worst = 0;
    CHECK(cudaMemcpy(out.data(), r.io.output, out.size(), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < want.size(); i++) {
        const double got = type == XN_FP16
                               ? (double)xn_fp16_to_fp32(((const uint16_t *)out.data())[i])
                               : (double)((const float *)out.data())[i];
        const double rounding = type == XN_FP16 ? std::fabs((double)want[i]) / 2048 + 1e-7 : 0;
        const double off = std::fabs(got - want[i]) - rounding;
        if (!(off <= 0))
            worst = std::fmax(worst, std::isnan(off) ? INFINITY : off / magnitude[i]);
    }
    return worst;
}

static int check(xn_stream *stream, const shape &s, bool mma) {
    const int64_t count = s.channels * s.kernel * s.kernel;
    const std::vector<float> input = draw(s.checked * s.channels * s.side * s.side, 11);
    const std::vector<float> real = draw(s.filters * count, 7);
    std::vector<float> abs_input = input, abs_real = real;
    int wrong = 0;
    for (float &v : abs_input)
        v = std::fabs(v);
    for (float &v : abs_real)
        v = std::fabs(v);
    for (int mode = XN_MODE_BWN; mode <= XN_MODE_FLOAT; mode++) {
        const std::vector<float> want = on_cpu(s, (xn_mode)mode, input, real);
        const std::vector<float> magnitude = on_cpu(s, (xn_mode)mode, abs_input, abs_real);
        for (const variant &v : variants) {
            if (v.mode != mode)
                continue;
            device_run r = make_run(stream, s, v, s.checked, mma, input, real);
            CHECK(cudaMemset(stream->workspace, 0xff, stream->workspace_bytes));
            CHECK(cudaDeviceSynchronize());
            CHECK(xn_cuda_enqueue(r.plan, r.prepared, r.images, &r.io, stream->stream));
            CHECK(cudaStreamSynchronize(stream->stream));
            const double off = error_of(r, v.type, want, magnitude);
            const double limit = 1e-6 + (double)count / 8 * 0x1p-23;
            printf("check %-14s %-5s %s to %s%s: off by %.1e (limit %.1e)%s\n", s.name,
                   xn_mode_name(v.mode), xn_datatype_name(v.type),
                   xn_precision_name(xn_cuda_precision(r.plan, r.prepared)),
                   mma ? " by mma.sync" : "", off, limit, off <= limit ? "" : " WRONG");
            wrong += !(off <= limit);
            free_run(&r);
        }
    }
    fflush(stdout);
    return wrong;
}

/* ---- timing ---- */

static void time_shape(xn_stream *stream, const shape &s, bool exact, bool mma) {
    const std::vector<float> input = draw(s.images * s.channels * s.side * s.side, 11);
    const std::vector<float> real = draw(s.filters * s.channels * s.kernel * s.kernel, 7);
    for (const variant &v : variants) {
        const bool slow = v.precision == XN_PRECISION_FP32;
        double copy;
        if (slow && !exact)
            continue;
        device_run r = make_run(stream, s, v, s.images, mma, input, real);
        const stats t = replay(
            stream->stream,
            [&] { CHECK(xn_cuda_enqueue(r.plan, r.prepared, r.images, &r.io, stream->stream)); },
            slow ? 2 : 20, slow ? 5 : 21);
        if (!xn_bench_gpu_copy(r.in_bytes, r.out_bytes, &copy))
            exit(1);
        const double operations =
            2.0 * (double)xn_conv_operations(&r.plan->conv) * (double)s.images;
        printf("%-14s %-5s %s -> %s %-4s %9.2f %9.2f %9.2f %9.2f %7.2f %9.1f\n", s.name,
               xn_mode_name(v.mode), xn_datatype_name(v.type), xn_datatype_name(v.type),
               xn_precision_name(xn_cuda_precision(r.plan, r.prepared)), t.median, t.p10, t.p90,
               copy, t.median / copy, operations / t.median / 1e6);
        fflush(stdout);
        free_run(&r);
    }
}

int main(int argc, char **argv) {
    bool timed = true, checked = true, exact = false, mma = false;
    int only = -1, wrong = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--check-only"))
            timed = false;
        else if (!strcmp(argv[i], "--no-check"))
            checked = false;
        else if (!strcmp(argv[i], "--exact"))
            exact = true;
        else if (!strcmp(argv[i], "--mma"))
            mma = true;
        else if (!strcmp(argv[i], "--layer") && i + 1 < argc)
            only = atoi(argv[++i]);
    }
    xn_device *device;
    xn_stream *stream;
    const xn_stream_options options = {};
    REQUIRE(xn_cuda_device_open(0, &device, &error));
    REQUIRE(xn_cuda_stream_create(device, &options, &stream, &error));
    printf("%s\n", device->name);
    for (const shape &s : shapes)
        if (checked && (only < 0 || &s == &shapes[only]))
            wrong += check(stream, s, false) + check(stream, s, true);
    if (timed)
        printf("%-14s %-5s %-12s %-4s %9s %9s %9s %9s %7s %9s\n", "layer", "mode", "in, out", "by",
               "median us", "p10", "p90", "copy us", "x copy", "Tflop/s");
    for (const shape &s : shapes)
        if (timed && (only < 0 || &s == &shapes[only]))
            time_shape(stream, s, exact, mma);
    xn_cuda_stream_free(stream);
    xn_cuda_device_close(device);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
