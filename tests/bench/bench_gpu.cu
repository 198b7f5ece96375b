/* bench_gpu.cu: `make bench` on a GPU: the kernels beside their ceilings, in one run. A row is a
 * workload with its target: its time by graph replay on device memory (LAUNCH_US of launches a
 * graph, back to back on the same buffers, median and percentiles of REPLAYS replays), a copy
 * kernel of the same bytes timed in the same way, the rate of 1-bit operations against the matrix
 * instructions alone, and cuDNN's fp16 time where a command that prints it is given. Before a row
 * is timed, all its outputs, from poisoned memory, are compared with what is right (bench_layer.h).
 *   bench-gpu [--json FILE] [--peer COMMAND] [--only TEXT] [--path NAME] [--check-only]
 *     --only: rows with that in their name; --path: by that kernel path, where it can */
#include "bench_layer.h"
#include "gpu_peak.cuh"
#include "gpu_timing.cuh"
#include "rails.h"
#include "xn_cuda.h"

#include <cmath>
#include <cstring>
#include <string>

enum { REPLAYS = 21, MOST_LAUNCHES = 50, LEAST_LAUNCHES = 4, PEER_LINE = 512 };
#define LAUNCH_US 1500.0
#define POISON 0xa5

/* What the issue asks of a row; 0: nothing. */
struct target {
    double us, copies;  /* at most; copies: times the copy kernel */
    double tops, peers; /* at least; peers: times faster than cuDNN */
};

struct row {
    xn_bench_shape shape;
    xn_bench_kind kind;
    target goal;
};

#define FEW(SIDE, ...)                                                                             \
    { {1, 1, SIDE, 1, 3, 1, 1, 1, 1}, XN_BENCH_FP32, __VA_ARGS__ }
#define LAYER(N, C, SIDE, KIND, ...)                                                               \
    { {N, C, SIDE, C, 3, 1, 1, 1, 1}, XN_BENCH_##KIND, __VA_ARGS__ }
#define NONE                                                                                       \
    { 0, 0, 0, 0 }

/* Rows of one shape are neighbours: they share their data. */
static const row rows[] = {
    FEW(256, {3.0, 0, 0, 0}),
    FEW(512, {3.0, 0, 0, 0}),
    FEW(1024, {3.5, 0, 0, 0}),
    FEW(2048, {0, 1.15, 0, 0}),
    FEW(4096, {0, 1.15, 0, 0}),
    FEW(8192, {0, 1.15, 0, 0}),
    LAYER(64, 1024, 14, PACKED_INT32, {0, 0, 9000, 13}),
    LAYER(64, 1024, 14, PACKED_FP16, {0, 0, 9000, 13}),
    LAYER(64, 1024, 14, PACKED_PACKED, NONE),
    LAYER(64, 64, 56, PACKED_PACKED, {0, 0, 0, 8}),
    LAYER(64, 64, 56, FP16, {0, 1.5, 0, 2}),
    LAYER(64, 64, 56, FP32, {0, 1.3, 0, 0}),
    LAYER(64, 128, 28, PACKED_PACKED, {0, 0, 0, 8}),
    LAYER(64, 128, 28, FP16, {0, 1.5, 0, 2}),
    LAYER(64, 128, 28, FP32, {0, 1.3, 0, 0}),
    LAYER(64, 256, 14, PACKED_PACKED, {0, 0, 0, 8}),
    LAYER(64, 256, 14, FP16, {4.0, 0, 0, 2}),
    LAYER(64, 256, 14, FP32, {0, 2.0, 0, 0}),
    LAYER(64, 512, 7, PACKED_PACKED, {0, 0, 0, 8}),
    LAYER(64, 512, 7, FP16, {4.0, 0, 0, 2}),
    LAYER(64, 512, 7, FP32, {0, 2.0, 0, 0}),
    LAYER(1, 64, 56, PACKED_PACKED, {5.0, 0, 0, 0}),
    LAYER(1, 64, 56, FP16, NONE),
    LAYER(1, 64, 56, FP32, NONE),
    LAYER(1, 128, 28, PACKED_PACKED, NONE),
    LAYER(1, 128, 28, FP16, NONE),
    LAYER(1, 128, 28, FP32, NONE),
    LAYER(1, 256, 14, PACKED_PACKED, NONE),
    LAYER(1, 256, 14, FP16, NONE),
    LAYER(1, 256, 14, FP32, NONE),
    LAYER(1, 512, 7, PACKED_PACKED, NONE),
    LAYER(1, 512, 7, FP16, NONE),
    LAYER(1, 512, 7, FP32, NONE),
};

static const char *const kind_names[XN_BENCH_KINDS] = {
    "fp32 -> fp32", "fp16 -> fp16", "packed -> int32", "packed -> fp16", "packed -> packed"};

static std::string name_of(const row &r) {
    char text[96];
    snprintf(text, sizeof text, "%lld x %lld x %lld, %s", (long long)r.shape.images,
             (long long)r.shape.channels, (long long)r.shape.side, kind_names[r.kind]);
    return text;
}

/* ---- cuDNN ---- */

struct peer_figure {
    long long images, channels, side;
    double us;
};

/* The lines "NxCxS cudnn fp16 MEDIAN ..." of a command's output; others are passed on. */
static std::vector<peer_figure> ask_peer(const char *command) {
    std::vector<peer_figure> all;
    char line[PEER_LINE];
    FILE *pipe = command ? popen(command, "r") : NULL;
    while (pipe && fgets(line, sizeof line, pipe)) {
        peer_figure f;
        if (sscanf(line, "%lldx%lldx%lld cudnn fp16 %lf", &f.images, &f.channels, &f.side, &f.us) ==
            4)
            all.push_back(f);
        else
            fputs(line, stdout);
    }
    if (pipe && (pclose(pipe) || all.empty()))
        puts("no figures of cuDNN: the peer's command failed");
    return all;
}

static double peer_us(const std::vector<peer_figure> &all, const xn_bench_shape &s) {
    for (const peer_figure &f : all)
        if (f.images == s.images && f.channels == s.channels && f.side == s.side)
            return f.us;
    return 0;
}

/* ---- a row on the device ---- */

struct session {
    xn_device *device;
    xn_stream *stream;
    peak::rates rates;
    std::vector<peer_figure> peer;
    const char *only, *path;
    bool check_only;
    FILE *json;
    int wrong, missed, reached;
};

struct device_row {
    xn_prepared *prepared;
    xn_plan *plan;
    xn_cuda_run_io io;
    void *input, *output, *threshold, *flip;
    size_t in_bytes, out_bytes; /* of rails when packed tensors lie so */
    xn_bench_words words;
    int64_t images;
    bool rails;
};

static void *to_device(const void *data, size_t bytes) {
    void *memory;
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* False where the path that is asked for cannot run it. */
static bool make_plan(const session &s, const xn_conv &conv, xn_bench_kind kind, device_row *d) {
    xn_cuda_plan_options options = {};
    options.rails = d->rails;
    xn_error error;
    options.packed_input = kind >= XN_BENCH_PACKED_INT32;
    options.packed_output = kind == XN_BENCH_PACKED_PACKED;
    if (s.path) {
        options.forced = true;
        if (!xn_cuda_path_find(s.device, s.path, &options.path)) {
            fprintf(stderr, "bench-gpu: this device has no path %s\n", s.path);
            exit(2);
        }
    }
    const xn_status status =
        xn_cuda_plan_create_with(s.stream, &conv, d->images, &options, &d->plan, &error);
    if (s.path && status == XN_ERR_UNSUPPORTED)
        return false;
    REQUIRE(status);
    return true;
}

static bool make(const session &s, const xn_bench_layer &l, xn_bench_kind kind, device_row *d) {
    const xn_conv conv = xn_bench_layer_conv(&l, kind);
    xn_error error;
    *d = {};
    d->images = l.shape.images;
    d->words = {xn_packed_words(conv.group_channels), xn_packed_words(conv.out_channels)};
    /* layers that chain: in the layout that is faster to read */
    d->rails = kind == XN_BENCH_PACKED_PACKED &&
               (s.path ? !strcmp(s.path, "dual_rail")
                       : xn_cuda_dual_rail_pays(&conv, d->images, s.device->multiprocessors));
    if (!make_plan(s, conv, kind, d))
        return false;
    REQUIRE(xn_cuda_weights_prepare(s.device, l.weights, &d->prepared, &error));
    d->in_bytes = xn_bench_input_bytes(&l, kind, d->words);
    d->out_bytes = xn_bench_output_bytes(&l, kind, d->words);
    std::vector<unsigned char> input(d->in_bytes);
    xn_bench_fill_input(&l, kind, d->words, input.data());
    if (d->rails) {
        const size_t pixels = (size_t)conv.height * (size_t)conv.width;
        const std::vector<uint32_t> rails =
            xn_rails_of((const uint32_t *)input.data(), conv.channels, (size_t)d->images, pixels);
        input.assign((const unsigned char *)rails.data(),
                     (const unsigned char *)(rails.data() + rails.size()));
        d->in_bytes = input.size();
        d->out_bytes = (size_t)d->images * (size_t)conv.out_height * (size_t)conv.out_width * 16 *
                       (size_t)xn_cuda_dual_rail_of(conv.out_channels).units;
    }
    d->input = to_device(input.data(), d->in_bytes);
    d->threshold = to_device(l.threshold, (size_t)l.shape.filters * 4);
    d->flip = to_device(l.flip, ((size_t)l.shape.filters / 32 + 1) * 4);
    CHECK(cudaMalloc(&d->output, d->out_bytes));
    d->io.input = kind < XN_BENCH_PACKED_INT32 ? d->input : NULL;
    d->io.bits = (const uint32_t *)(kind < XN_BENCH_PACKED_INT32 ? NULL : d->input);
    d->io.output = kind == XN_BENCH_PACKED_PACKED ? NULL : d->output;
    d->io.packed = (uint32_t *)(kind == XN_BENCH_PACKED_PACKED ? d->output : NULL);
    d->io.threshold = (const int32_t *)d->threshold;
    d->io.flip = (const uint32_t *)d->flip;
    return true;
}

static void free_row(device_row *d) {
    xn_cuda_plan_free(d->plan);
    xn_cuda_weights_free(d->prepared);
    for (void *memory : {d->input, d->output, d->threshold, d->flip})
        CHECK(cudaFree(memory));
}

static void launch(const session &s, const device_row &d) {
    CHECK(xn_cuda_enqueue(d.plan, d.prepared, d.images, &d.io, s.stream->stream));
}

static int64_t count_wrong(const session &s, const device_row &d, xn_bench_layer *l,
                           xn_bench_kind kind) {
    std::vector<unsigned char> got(d.out_bytes);
    if (s.stream->workspace)
        CHECK(cudaMemset(s.stream->workspace, 0xff, s.stream->workspace_bytes));
    CHECK(cudaMemset(d.output, POISON, d.out_bytes));
    CHECK(cudaDeviceSynchronize());
    launch(s, d);
    CHECK(cudaStreamSynchronize(s.stream->stream));
    CHECK(cudaMemcpy(got.data(), d.output, d.out_bytes, cudaMemcpyDeviceToHost));
    if (d.rails) {
        const xn_conv conv = xn_bench_layer_conv(l, kind);
        std::vector<unsigned char> plain(xn_bench_output_bytes(l, kind, d.words));
        if (!xn_rails_to_plain((const uint32_t *)got.data(), conv.out_channels, (size_t)d.images,
                               (size_t)conv.out_height * (size_t)conv.out_width,
                               (uint32_t *)plain.data()))
            return -1;
        got = plain;
    }
    return xn_bench_count_wrong(l, kind, d.words, got.data());
}

/* As many launches a graph as make its time long beside the events that measure it. */
static int launches_for(double us) {
    const double wanted = LAUNCH_US / us;
    return wanted > MOST_LAUNCHES    ? MOST_LAUNCHES
           : wanted < LEAST_LAUNCHES ? LEAST_LAUNCHES
                                     : (int)wanted;
}

/* ---- the table ---- */

struct figures {
    stats us;
    double copy_us, tops, peak_share, peer_us;
    int64_t wrong;
};

/* "at most 3.0 us, ..." and whether all that can be judged holds: 1, 0, or -1 for no judgement. */
static int judge(const target &t, const figures &f, std::string *text) {
    char part[64];
    int verdict = -1;
    auto ask = [&](const char *format, double goal, bool known, bool holds) {
        if (goal == 0)
            return;
        snprintf(part, sizeof part, format, goal);
        *text += (text->empty() ? "" : ", ") + std::string(part) + (known ? "" : " (?)");
        if (known)
            verdict = verdict == 0 || !holds ? 0 : 1;
    };
    const double median = f.us.median;
    ask("<= %.1f us", t.us, true, median <= t.us);
    ask("<= %.2f copies", t.copies, true, median <= t.copies * f.copy_us);
    ask(">= %.0f Tops", t.tops, true, f.tops >= t.tops);
    ask(">= %.0f x cuDNN", t.peers, f.peer_us > 0, f.peer_us >= t.peers * median);
    return verdict;
}

static void print_head(const session &s) {
    printf("%s, %d multiprocessors; us a launch by graph replay, %d replays\n", s.device->name,
           s.device->multiprocessors, REPLAYS);
    printf("ceilings: wgmma b1 and.popc %.0f Tops, mma.sync b1 and.popc %.0f Tops; copy: a kernel "
           "of the same bytes\n",
           s.rates.wgmma, s.rates.mma);
    printf("%-31s %-7s | %8s %8s %8s | %7s %6s | %6s %5s | %7s %6s | %s\n",
           "images x channels x side", "path", "median", "p10", "p90", "copy", "x copy", "Tops",
           "peak", "cuDNN", "faster", "target");
}

static void report(session *s, const row &r, const char *path, const figures &f) {
    std::string goal;
    const int verdict = judge(r.goal, f, &goal);
    const char *said = f.wrong ? "WRONG" : verdict == 1 ? "reached" : verdict == 0 ? "MISSED" : "";
    s->reached += verdict == 1;
    s->missed += verdict == 0;
    s->wrong += f.wrong != 0;
    printf("%-31s %-7s | %8.2f %8.2f %8.2f | %7.2f %6.2f | %6.0f %4.1f%% | ", name_of(r).c_str(),
           path, f.us.median, f.us.p10, f.us.p90, f.copy_us, f.us.median / f.copy_us, f.tops,
           100 * f.peak_share);
    if (f.peer_us > 0)
        printf("%7.2f %6.2f | ", f.peer_us, f.peer_us / f.us.median);
    else
        printf("%7s %6s | ", "-", "-");
    printf("%s %s\n", goal.c_str(), said);
    fflush(stdout);
    xn_bench_json_row(
        s->json,
        "{\"workload\": \"%s\", \"path\": \"%s\", \"median_us\": %.3f, \"p10_us\": %.3f, "
        "\"p90_us\": %.3f, \"copy_us\": %.3f, \"tops\": %.1f, \"of_peak\": %.4f, "
        "\"cudnn_fp16_us\": %.3f, \"target\": \"%s\", \"verdict\": \"%s\", \"wrong\": %lld}",
        name_of(r).c_str(), path, f.us.median, f.us.p10, f.us.p90, f.copy_us, f.tops, f.peak_share,
        f.peer_us, goal.c_str(), said, (long long)f.wrong);
}

static void run_row(session *s, const row &r, xn_bench_layer *l) {
    device_row d;
    figures f = {};
    if (!make(*s, *l, r.kind, &d))
        return;
    cudaStream_t stream = s->stream->stream;
    f.wrong = count_wrong(*s, d, l, r.kind);
    if (s->check_only) {
        printf("%-31s %-7s %lld wrong\n", name_of(r).c_str(), xn_cuda_plan_path(d.plan),
               (long long)f.wrong);
        s->wrong += f.wrong != 0;
    } else {
        auto once = [&] { launch(*s, d); };
        const int launches = launches_for(replay(stream, once, LEAST_LAUNCHES, 3).median);
        f.us = replay(stream, once, launches, REPLAYS);
        f.copy_us =
            time_copy(stream, d.input, d.in_bytes, d.output, d.out_bytes, launches, REPLAYS).median;
        f.tops = 2e-6 * (double)xn_conv_operations(&l->conv) * (double)d.images / f.us.median;
        const double top = std::max(s->rates.wgmma, s->rates.mma);
        f.peak_share = top > 0 ? f.tops / top : 0;
        f.peer_us = peer_us(s->peer, r.shape);
        report(s, r, xn_cuda_plan_path(d.plan), f);
    }
    free_row(&d);
}

static void run_all(session *s) {
    xn_bench_layer layer = {};
    const row *made = NULL; /* whose data layer holds */
    for (const row &r : rows) {
        if (s->only && name_of(r).find(s->only) == std::string::npos)
            continue;
        if (!made || memcmp(&made->shape, &r.shape, sizeof r.shape)) {
            xn_bench_layer_free(&layer);
            xn_bench_layer_make(&r.shape, &layer);
            made = &r;
        }
        run_row(s, r, &layer);
    }
    xn_bench_layer_free(&layer);
}

int main(int argc, char **argv) {
    const xn_stream_options stream_options = {};
    const char *peer = NULL;
    session s = {};
    xn_error error;
    int count = 0;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--check-only"))
            s.check_only = true;
        else if (next && !strcmp(argv[i], "--peer"))
            peer = next, i++;
        else if (next && !strcmp(argv[i], "--only"))
            s.only = next, i++;
        else if (next && !strcmp(argv[i], "--path"))
            s.path = next, i++;
        else if (next && !strcmp(argv[i], "--json"))
            i++; /* xn_bench_json_open reads it */
        else
            return fputs("usage: bench-gpu [--json FILE] [--peer COMMAND] [--only TEXT] "
                         "[--path NAME] [--check-only]\n",
                         stderr),
                   2;
    }
    if (xn_cuda_device_count(&count, &error) || !count)
        return puts("GPU: no device on this machine"), 0;
    s.peer = ask_peer(peer);
    s.json = xn_bench_json_open(argc, argv, "bench_gpu.json");
    REQUIRE(xn_cuda_device_open(0, &s.device, &error));
    REQUIRE(xn_cuda_stream_create(s.device, &stream_options, &s.stream, &error));
    s.rates = peak::measure(s.stream->stream, s.device->multiprocessors, s.device->wide,
                            s.device->major >= 8);
    print_head(s);
    xn_bench_json_row(s.json,
                      "{\"device\": \"%s\", \"wgmma_b1_tops\": %.1f, \"mma_b1_tops\": %.1f}",
                      s.device->name, s.rates.wgmma, s.rates.mma);
    run_all(&s);
    printf("%d targets reached, %d missed; %d rows wrong\n", s.reached, s.missed, s.wrong);
    xn_bench_json_close(s.json);
    xn_cuda_stream_free(s.stream);
    xn_cuda_device_close(s.device);
    return s.wrong != 0;
}
