/* pack_cuda.cu: `bench-conv time --of pack`: binarise-and-pack of real input alone, and beside it
 * the layers that begin with it and those that read packed bits, with the floors of the same bytes:
 * a kernel that only reads them, and a copy.
 *
 * First every datatype on a table of shapes and random ones, with NaN, infinities, both zeros,
 * denormals and the largest numbers among ordinary ones, against the definition on the host: bits
 * and counts exactly, means to 1e-5. `overlap`: by programmatic launches, where the library makes
 * them; otherwise each kernel starts when the one before has ended. */
#include "bench/conv/pack.h"
#include "cuda_timing.cuh"
#include "xn_cuda.h"
#include "xn_rng.h"

#include <cfloat>
#include <cmath>
#include <cstring>

/* ---- problems ---- */

struct shape {
    int64_t images, channels, height, width, groups;
};

static xn_conv conv_of(const shape &s, xn_datatype in) {
    const xn_bench_shape square = {s.images, s.channels, s.width, s.channels, 3, 1, 1, 1, s.groups};
    xn_bench_kind kind = xn_bench_kinds[XN_BENCH_FP32];
    kind.input = in;
    return xn_bench_resolve_rows(&square, s.height, 1, &kind);
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
    const xn_conv c = conv_of(s, type);
    const int64_t plane = s.height * s.width, pixels = s.images * s.groups * plane;
    const int64_t elements = s.images * s.channels * plane,
                  words = xn_packed_words(c.group_channels);
    const std::vector<unsigned char> raw = random_input(elements, type, strange, rng);
    std::vector<float> real((size_t)elements);
    xn_tensor_to_signed_fp32(type, raw.data(), real.data(), elements);
    void *input = xn_bench_cuda()->take(raw.size());
    xn_bench_cuda()->upload(input, raw.data(), raw.size());
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
    xn_bench_cuda()->give(input);
    return right;
}

int xn_bench_pack_check(void) {
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

enum { REPLAYS = 21 };

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

double xn_bench_pack_read_us(const void *input, size_t bytes) {
    const int64_t count = (int64_t)(bytes / 16);
    uint32_t *never;
    CHECK(cudaMalloc(&never, 4));
    double us;
    {
        replayed timed(
            [=] {
                read_kernel<<<(unsigned)((count + 2047) / 2048), 256, 0, xn_bench_cuda_stream()>>>(
                    (const uint4 *)input, count, never);
                CHECK(cudaGetLastError());
            },
            500);
        us = timed.median_us(REPLAYS);
    }
    CHECK(cudaFree(never));
    return us;
}

double xn_bench_pack_us(const xn_conv *conv, int64_t images, const void *input, bool overlapped) {
    const size_t pixels = (size_t)images * (size_t)conv->height * (size_t)conv->width;
    cudaDeviceProp chip;
    uint32_t *bits;
    float *mean;
    CHECK(cudaGetDeviceProperties(&chip, 0));
    CHECK(cudaMalloc(&bits, pixels * (size_t)xn_packed_words(conv->group_channels) * 4));
    CHECK(cudaMalloc(&mean, pixels * 4));
    double us;
    {
        replayed timed(
            [=] {
                CHECK(xn_cuda_pack_launch(conv, images, chip.multiProcessorCount, input, bits, NULL,
                                          mean, XN_CUDA_PLAIN, overlapped, xn_bench_cuda_stream()));
            },
            500);
        us = timed.median_us(REPLAYS);
    }
    CHECK(cudaFree(bits));
    CHECK(cudaFree(mean));
    return us;
}
