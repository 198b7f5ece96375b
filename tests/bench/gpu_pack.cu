/* gpu_pack.cu: `make bench-gpu-pack`: binarise-and-pack of real input alone and with the
 * convolution that follows, beside the floors of the same bytes: a kernel that only reads them, and
 * a copy.
 *
 *   bench-gpu-pack [--check-only | --no-check]
 *
 * First every datatype on a table of shapes and random ones, with NaN, infinities, both zeros,
 * denormals and the largest numbers among ordinary ones, against the definition on the host: bits
 * and counts exactly, means to 1e-5.
 *
 * Times are by graph replay. `one by one`: each kernel starts when the one before has ended;
 * otherwise by programmatic launches, where the library makes them. `layer` is both kernels, 3 x 3
 * with as many filters as channels, scaling xnor; `conv` is the second alone. */
#include "bench.h"
#include "filter_stationary.h"
#include "gpu_timing.cuh"
#include "xn_cuda.h"
#include "xn_rng.h"

#include <cfloat>
#include <cmath>
#include <cstring>

static xn_error error;

/* ---- problems ---- */

struct shape {
    int64_t images, channels, height, width, groups;
};

static xn_conv conv_of(const shape &s, xn_datatype in, xn_datatype out) {
    const xn_conv_limits limits = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 60};
    const int64_t filters = s.channels, dims[4] = {s.images, s.channels, s.height, s.width};
    const xn_weights_shape weights = {
        {filters, s.channels / s.groups, 3, 3}, XN_FP32, false, false};
    xn_shape input = {};
    xn_conv_params params;
    xn_conv conv;
    int64_t images;
    input.rank = 4;
    memcpy(input.dims, dims, sizeof dims);
    xn_conv_params_default(&params);
    params.groups = s.groups;
    for (int64_t &p : params.padding)
        p = 1;
    params.output_datatype = out;
    REQUIRE(xn_conv_resolve(&params, in, &input, &weights, &limits, &conv, &images, &error));
    return conv;
}

/* Random elements; of `strange` in 64 one of the numbers that need care. */
static std::vector<unsigned char> random_input(int64_t count, xn_datatype type, uint64_t strange,
                                               xn_rng *rng) {
    static const float odd_ones[] = {NAN,     -NAN,     INFINITY, -INFINITY, 0.0f, -0.0f,
                                     FLT_MAX, -FLT_MAX, 1e-40f,   -1e-40f,   1e38f};
    const size_t bytes = xn_datatype_bytes(type);
    std::vector<unsigned char> data((size_t)count * bytes);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t draw = xn_rng_next(rng);
        const float v =
            draw % 64 < strange ? odd_ones[(draw >> 8) % 11] : (float)(int64_t)draw * 0x1p-63f;
        uint16_t half = type == XN_FP16 ? xn_fp32_to_fp16(v) : xn_fp32_to_bf16(v);
        const uint8_t byte = (uint8_t)(type == XN_BOOL ? draw >> 20 & 3 : draw >> 20);
        memcpy(&data[(size_t)i * bytes],
               bytes == 4   ? (const void *)&v
               : bytes == 2 ? (const void *)&half
                            : (const void *)&byte,
               bytes);
    }
    return data;
}

static void *to_device(const void *data, size_t bytes) {
    void *memory;
    CHECK(cudaMalloc(&memory, bytes + 256));
    CHECK(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* Device memory that a kernel is to fill, and a margin behind it that must stay as it is. */
template <typename T>
struct guarded {
    enum { MARGIN = 256 };
    size_t count;
    T *data;

    explicit guarded(size_t elements) : count(elements) {
        CHECK(cudaMalloc(&data, count * sizeof(T) + MARGIN));
        CHECK(cudaMemset(data, 0xa5, count * sizeof(T) + MARGIN));
    }
    ~guarded() {
        CHECK(cudaFree(data));
    }
    guarded(const guarded &) = delete;
    std::vector<T> read(bool *intact) const {
        std::vector<T> host(count);
        unsigned char margin[MARGIN];
        CHECK(cudaMemcpy(host.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(margin, data + count, MARGIN, cudaMemcpyDeviceToHost));
        for (unsigned char byte : margin)
            *intact = *intact && byte == 0xa5;
        return host;
    }
};

/* ---- checking ---- */

static bool mean_is(double want, float got) {
    if (std::isnan(want) || std::isnan(got))
        return std::isnan(want) && std::isnan(got);
    if (std::isinf((float)want) || std::isinf(got))
        return (float)want == got;
    return std::fabs(got - want) <= 1e-5 * want + 0x1p-149;
}

/* One pixel of one group, by the definition. */
static bool pixel_is(const xn_conv &c, const float *from, const uint32_t *bits,
                     const int32_t *count, const float *mean) {
    const int64_t plane = (int64_t)c.height * c.width, words = xn_packed_words(c.group_channels);
    double sum = 0;
    int32_t set = 0;
    bool right = true;
    for (int64_t w = 0; w < words; w++) {
        uint32_t want = 0;
        for (int64_t ch = w * 32; ch < std::min<int64_t>(w * 32 + 32, c.group_channels); ch++) {
            const float v = from[ch * plane];
            want |= (uint32_t)(v >= 0) << ch % 32;
            set += v >= 0;
            sum += std::fabs((double)v);
        }
        right = right && bits[w] == want;
    }
    return right && (!count || *count == set) && (!mean || mean_is(sum / c.group_channels, *mean));
}

/* As if on a chip of that many multiprocessors: on a small one the shares of a large problem. */
static bool check(const shape &s, xn_datatype type, int multiprocessors, bool with_count,
                  bool with_mean, uint64_t strange, xn_rng *rng) {
    const xn_conv c = conv_of(s, type, XN_FP32);
    const int64_t plane = s.height * s.width, pixels = s.images * s.groups * plane;
    const int64_t elements = s.images * s.channels * plane,
                  words = xn_packed_words(c.group_channels);
    const std::vector<unsigned char> raw = random_input(elements, type, strange, rng);
    std::vector<float> real((size_t)elements);
    xn_tensor_to_signed_fp32(type, raw.data(), real.data(), elements);
    void *input = to_device(raw.data(), raw.size());
    guarded<uint32_t> bits((size_t)(pixels * words));
    guarded<int32_t> counts((size_t)pixels);
    guarded<float> means((size_t)pixels);
    CHECK(xn_cuda_pack_launch(&c, s.images, multiprocessors, input, bits.data,
                              with_count ? counts.data : NULL, with_mean ? means.data : NULL,
                              XN_CUDA_PLAIN, false, 0));
    CHECK(cudaDeviceSynchronize());
    bool right = true;
    const std::vector<uint32_t> got = bits.read(&right);
    const std::vector<int32_t> got_counts = counts.read(&right);
    const std::vector<float> got_means = means.read(&right);
    int64_t p = 0;
    for (; p < pixels && right; p++)
        right = pixel_is(c, &real[(size_t)(p / plane * c.group_channels * plane + p % plane)],
                         &got[(size_t)(p * words)], with_count ? &got_counts[(size_t)p] : NULL,
                         with_mean ? &got_means[(size_t)p] : NULL);
    if (!right)
        fprintf(stderr, "WRONG: %lld x %lld x %lld x %lld, %lld groups, %s, pixel %lld\n",
                (long long)s.images, (long long)s.channels, (long long)s.height, (long long)s.width,
                (long long)s.groups, xn_datatype_name(type), (long long)p - 1);
    CHECK(cudaFree(input));
    return right;
}

static int check_all() {
    static const shape table[] = {
        {1, 1, 1, 1, 1},      {2, 8, 3, 5, 1},     {3, 9, 4, 4, 1},      {1, 31, 8, 8, 1},
        {2, 32, 8, 12, 1},    {5, 33, 7, 7, 1},    {2, 64, 56, 56, 1},   {3, 65, 6, 6, 1},
        {2, 96, 10, 10, 3},   {2, 128, 28, 28, 1}, {3, 256, 14, 14, 1},  {3, 384, 5, 6, 1},
        {9, 512, 7, 7, 1},    {2, 520, 7, 8, 1},   {1, 1024, 14, 14, 1}, {2, 1025, 3, 3, 1},
        {1, 2048, 7, 7, 1},   {1, 5000, 4, 4, 1},  {2, 12, 16, 16, 12},  {70, 40, 7, 7, 2},
        {64, 128, 14, 14, 1}, {3, 1100, 6, 7, 1}};
    xn_rng rng = {20};
    int wrong = 0, runs = 0;
    for (int type = XN_FP32; type <= XN_BOOL; type++) {
        if (type == XN_UINT8) /* mode xnor has none */
            continue;
        for (const shape &s : table)
            for (int n = 0; n < 8; n++, runs++)
                wrong += !check(s, (xn_datatype)type, n & 4 ? 1 : 132, n & 1, n & 2,
                                n % 4 == 3 ? 1 : 0, &rng);
        for (int n = 0; n < 40; n++, runs++) {
            const int64_t groups = 1 + (int64_t)xn_rng_below(&rng, 3);
            const shape s = {1 + (int64_t)xn_rng_below(&rng, 20),
                             groups * (1 + (int64_t)xn_rng_below(&rng, 300)),
                             1 + (int64_t)xn_rng_below(&rng, 20),
                             1 + (int64_t)xn_rng_below(&rng, 20), groups};
            wrong +=
                !check(s, (xn_datatype)type, n % 3 ? 1 : 132, n % 2, true, n % 4 ? 0 : 32, &rng);
        }
    }
    printf("check: %d runs, %d wrong\n", runs, wrong);
    return wrong;
}

/* ---- timing ---- */

/* Microseconds a launch; launch() gives its error. */
template <class Launch>
static double time_launches(cudaStream_t stream, Launch launch) {
    enum { LAUNCHES = 20, REPLAYS = 21 };
    return replay(
               stream, [&] { CHECK(launch()); }, LAUNCHES, REPLAYS)
        .median;
}

/* The floor: reads as many bytes, 16 a load and several loads in flight, and writes nothing. */
static __global__ void __launch_bounds__(256)
    read_kernel(const uint4 *in, int64_t count, uint32_t *never) {
    enum { IN_FLIGHT = 8 };
    const int64_t first = (int64_t)blockIdx.x * (256 * IN_FLIGHT) + threadIdx.x;
    uint4 v[IN_FLIGHT];
    uint32_t mixed = 0;
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
        v[u] = first + u * 256 < count ? in[first + u * 256] : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
        mixed += v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
    if (mixed == 0x12345678u && v[0].x == 0x9abcdef0u)
        *never = mixed;
}

static double time_read(const void *input, size_t bytes, cudaStream_t stream) {
    const int64_t count = (int64_t)(bytes / 16);
    uint32_t *never;
    CHECK(cudaMalloc(&never, 4));
    const double us = time_launches(stream, [&] {
        read_kernel<<<(unsigned)((count + 2047) / 2048), 256, 0, stream>>>((const uint4 *)input,
                                                                           count, never);
        return cudaGetLastError();
    });
    CHECK(cudaFree(never));
    return us;
}

/* A layer's input and weights on the device, and what its two kernels take. */
struct layer {
    xn_conv conv;
    int64_t images;
    int multiprocessors;
    size_t in_bytes;
    xn_prepared *prepared;
    void *input, *output;
    uint32_t *bits;
    float *mean;
    xn_cuda_stationary_cut cut;

    cudaError_t pack(bool overlapped, cudaStream_t stream) const {
        return xn_cuda_pack_launch(&conv, images, multiprocessors, input, bits, NULL, mean,
                                   XN_CUDA_PLAIN, overlapped, stream);
    }
    cudaError_t convolve(bool overlapped, cudaStream_t stream) {
        xn_cuda_stationary_io io = {};
        io.bits = bits;
        io.filters = prepared->wide;
        io.filter_rows = prepared->wide_rows;
        io.prefix = prepared->wide_prefix;
        io.mean = mean;
        io.overlapped = overlapped;
        const xn_cuda_epilogue_args epilogue = {prepared->alpha, NULL, output};
        return xn_cuda_stationary_launch(&conv, images, multiprocessors, &cut, &io, &epilogue,
                                         stream);
    }
};

static xn_prepared *make_weights(xn_device *device, int64_t channels) {
    xn_rng rng = {7};
    std::vector<float> real((size_t)(channels * channels * 9));
    xn_tensor tensor = {};
    xn_weights *weights;
    xn_prepared *prepared;
    for (float &v : real)
        v = xn_rng_float(&rng);
    tensor.datatype = XN_FP32;
    tensor.shape = {4, {channels, channels, 3, 3}};
    tensor.elements = (int64_t)real.size();
    tensor.bytes = real.size() * sizeof(float);
    tensor.data = real.data();
    REQUIRE(xn_weights_create(&tensor, NULL, NULL, &weights, &error));
    REQUIRE(xn_cuda_weights_prepare(device, weights, &prepared, &error));
    xn_weights_free(weights);
    return prepared;
}

static layer make_layer(xn_device *device, const shape &s, xn_datatype type) {
    layer l = {};
    xn_rng rng = {11};
    const int64_t elements = s.images * s.channels * s.height * s.width;
    const int64_t pixels = s.images * s.height * s.width;
    const std::vector<unsigned char> raw = random_input(elements, type, 0, &rng);
    l.conv = conv_of(s, type, type == XN_FP32 ? XN_FP32 : XN_FP16);
    l.images = s.images;
    l.multiprocessors = device->multiprocessors;
    l.in_bytes = raw.size();
    l.prepared = make_weights(device, s.channels);
    l.input = to_device(raw.data(), raw.size());
    CHECK(cudaMalloc(&l.output, (size_t)elements * 4));
    CHECK(cudaMalloc(&l.bits, (size_t)(pixels * xn_packed_words(l.conv.group_channels)) * 4));
    CHECK(cudaMalloc(&l.mean, (size_t)pixels * 4));
    return l;
}

static void free_layer(layer *l) {
    xn_cuda_weights_free(l->prepared);
    for (void *memory : {l->input, l->output, (void *)l->bits, (void *)l->mean})
        CHECK(cudaFree(memory));
}

static void time_layer(xn_device *device, const shape &s, xn_datatype type, cudaStream_t stream) {
    layer l = make_layer(device, s, type);
    double pack[2], conv[2], both[2], copy;
    for (int overlapped = 0; overlapped < 2; overlapped++) {
        pack[overlapped] = time_launches(stream, [&] { return l.pack(overlapped, stream); });
        conv[overlapped] = time_launches(stream, [&] { return l.convolve(overlapped, stream); });
        both[overlapped] = time_launches(stream, [&] {
            const cudaError_t e = l.pack(overlapped, stream);
            return e ? e : l.convolve(overlapped, stream);
        });
    }
    const size_t out_bytes = (size_t)(s.images * s.height * s.width) *
                             (size_t)(xn_packed_words(l.conv.group_channels) * 4 + 4);
    const double read = time_read(l.input, l.in_bytes, stream);
    if (!xn_bench_gpu_copy(l.in_bytes, out_bytes, &copy))
        exit(1);
    char name[32];
    snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)s.images, (long long)s.channels,
             (long long)s.height);
    printf("%-11s %-5s %7.2f %7.2f | %7.2f %7.2f %6.2f | %7.2f %7.2f | %7.2f %7.2f\n", name,
           xn_datatype_name(type), read, copy, pack[0], pack[1], l.in_bytes / pack[1] / 1e6,
           conv[0], conv[1], both[0], both[1]);
    fflush(stdout);
    free_layer(&l);
}

static void time_all(xn_device *device, cudaStream_t stream) {
    static const shape layers[] = {
        {1, 64, 56, 56, 1},   {1, 128, 28, 28, 1}, {1, 256, 14, 14, 1},
        {1, 512, 7, 7, 1},    {64, 64, 56, 56, 1}, {64, 128, 28, 28, 1},
        {64, 256, 14, 14, 1}, {64, 512, 7, 7, 1},  {64, 1024, 14, 14, 1}};
    printf("microseconds a launch   floors       pack                     conv            layer\n"
           "%-11s %-5s %7s %7s | %7s %7s %6s | %7s %7s | %7s %7s\n",
           "layer", "type", "read", "copy", "1 by 1", "overlap", "TB/s", "1 by 1", "overlap",
           "1 by 1", "overlap");
    for (xn_datatype type : {XN_FP32, XN_FP16, XN_INT8})
        for (const shape &s : layers)
            time_layer(device, s, type, stream);
}

int main(int argc, char **argv) {
    const bool check_only = argc > 1 && !strcmp(argv[1], "--check-only");
    const bool no_check = argc > 1 && !strcmp(argv[1], "--no-check");
    xn_device *device;
    cudaStream_t stream;
    REQUIRE(xn_cuda_device_open(0, &device, &error));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const int wrong = no_check ? 0 : check_all();
    if (!check_only && device->wide)
        time_all(device, stream);
    CHECK(cudaStreamDestroy(stream));
    xn_cuda_device_close(device);
    return wrong != 0;
}
