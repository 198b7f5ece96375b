/* cuda.cu: device.h on a GPU: its memory, graphs of launches, a copy kernel, the peak rates. Of the
 * backend only what the public interface has not got: kernels enqueued on a stream of ours, so that
 * they can be captured, and plans for packed tensors. */
#include "cuda_peak.cuh"
#include "cuda_timing.cuh"
#include "xn_cuda.h"

#include <cmath>
#include <cstring>

#define SAMPLE_US 1000.0
enum { MOST_LAUNCHES = 50, LEAST_LAUNCHES = 2 };

cudaStream_t xn_bench_cuda_stream() {
    static cudaStream_t stream = nullptr;
    if (!stream)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/* ---- graphs of launches ---- */

void replayed::capture(const std::function<void()> &launch, int launches) {
    const cudaStream_t stream = xn_bench_cuda_stream();
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++)
        launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec_, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    launches_ = launches;
}

void replayed::release() {
    CHECK(cudaGraphExecDestroy(exec_));
    exec_ = nullptr;
}

replayed::replayed(const std::function<void()> &launch, double wanted_us) {
    CHECK(cudaEventCreate(&start_));
    CHECK(cudaEventCreate(&stop_));
    capture(launch, LEAST_LAUNCHES);
    const double launches = wanted_us / median_us(3);
    if (launches <= LEAST_LAUNCHES)
        return;
    release();
    capture(launch, (int)std::min(launches, (double)MOST_LAUNCHES));
}

replayed::~replayed() {
    release();
    CHECK(cudaEventDestroy(start_));
    CHECK(cudaEventDestroy(stop_));
}

double replayed::sample_us() {
    const cudaStream_t stream = xn_bench_cuda_stream();
    float ms;
    CHECK(cudaEventRecord(start_, stream));
    CHECK(cudaGraphLaunch(exec_, stream));
    CHECK(cudaEventRecord(stop_, stream));
    CHECK(cudaEventSynchronize(stop_));
    CHECK(cudaEventElapsedTime(&ms, start_, stop_));
    return 1e3 * ms / launches_;
}

double replayed::median_us(int replays) {
    std::vector<double> us;
    for (int i = 0; i < replays; i++)
        us.push_back(sample_us());
    return xn_stats_of(us.data(), replays).median;
}

static void *timer_make(void (*run)(void *context), void *context) {
    return new replayed([=] { run(context); }, SAMPLE_US);
}

static double timer_sample(void *timer) {
    return ((replayed *)timer)->sample_us();
}

static void timer_free(void *timer) {
    delete (replayed *)timer;
}

/* ---- memory ---- */

static void *take(size_t bytes) {
    void *memory;
    CHECK(cudaMalloc(&memory, bytes + 16));
    return memory;
}

static void give(void *memory) {
    CHECK(cudaFree(memory));
}

static void upload(void *to, const void *from, size_t bytes) {
    CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize()); /* a small copy may return before it has arrived */
}

static void download(void *to, const void *from, size_t bytes) {
    CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

static void poison(void *memory, size_t bytes) {
    CHECK(cudaMemsetAsync(memory, 0xff, bytes, xn_bench_cuda_stream()));
}

static void wait_all() {
    CHECK(cudaStreamSynchronize(xn_bench_cuda_stream()));
}

static unsigned blocks_of(size_t count) {
    return (unsigned)((count + 255) / 256);
}

/* ---- runs ---- */

static void enqueue(xn_plan *plan, const xn_prepared *prepared, int64_t images,
                    const xn_bench_kind *kind, const xn_bench_io *io) {
    xn_step_io run = {};
    run.input = io->input;
    run.output = kind->packed_output ? nullptr : io->output;
    run.bits = kind->packed_output ? io->output : nullptr;
    CHECK(xn_cuda_enqueue(plan, prepared, images, &run, xn_bench_cuda_stream()));
}

static const char *path_name(const xn_device *device, int index) {
    const xn_cuda_path *path;
    for (int i = 0; (path = xn_cuda_path_at(i)) != NULL; i++)
        if (xn_cuda_path_exists(path, &device->chip) && index-- == 0)
            return path->name;
    return NULL;
}

static void plan_terms(const xn_plan *plan, char *text, size_t size) {
    double terms[XN_CUDA_TERMS];
    size_t at = 0;
    const xn_cuda_cost *costs = xn_cuda_plan_terms(plan, terms);
    for (int i = 0; i < XN_CUDA_TERMS && costs[i].term && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s=%.9g*%g", i ? " " : "", costs[i].term,
                               terms[i], costs[i].ns);
}

/* ---- a whole run, step by step ---- */

static std::vector<cudaEvent_t> marks; /* where each step begins, and the end */
static std::vector<int> fused;         /* of each step; 0: it ran with one before it */

static void mark(size_t step, cudaStream_t stream) {
    while (marks.size() <= step) {
        marks.emplace_back();
        CHECK(cudaEventCreate(&marks.back()));
    }
    CHECK(cudaEventRecord(marks[step], stream));
}

static xn_status run_steps(xn_stream *stream, const xn_run *run, xn_recordings *,
                           xn_run_times *times, xn_error *error) {
    xn_status status = xn_cuda_begin(stream, run->batch, run->input, error);
    fused.assign((size_t)run->count, 0);
    for (int i = 0; i < run->count && status == XN_OK; i += fused[i]) {
        xn_run part = *run;
        part.steps = &run->steps[i];
        part.count = fused[i] = part.steps->fused;
        mark((size_t)i, stream->stream);
        status = xn_cuda_enqueue_run(stream, &part, false, NULL, error);
    }
    mark((size_t)run->count, stream->stream);
    return status == XN_OK ? xn_cuda_end(stream, run->batch, run->output, times, error) : status;
}

static void steps_us(double *us) {
    for (size_t i = 0; i < fused.size(); i++) {
        float ms = NAN;
        if (fused[i])
            CHECK(cudaEventElapsedTime(&ms, marks[i], marks[i + (size_t)fused[i]]));
        us[i] = 1e3 * ms;
    }
}

/* A thread a vector, as the kernels under test do. */
static __global__ void copy_kernel(const float4 *in, float4 *out, size_t in_count,
                                   size_t out_count) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = make_float4(1, 2, 3, 4);
    if (i < in_count)
        v = in[i];
    if (i < out_count)
        out[i] = v;
    else if (v.x + v.y + v.z + v.w == 12345.678f)
        out[0] = v;
}

static void copy(void *context) {
    const xn_bench_copy *c = (const xn_bench_copy *)context;
    const size_t in = (c->in_bytes + 15) / 16, out = (c->out_bytes + 15) / 16;
    copy_kernel<<<blocks_of(std::max(in, out)), 256, 0, xn_bench_cuda_stream()>>>(
        (const float4 *)c->from, (float4 *)c->to, in, out);
    CHECK(cudaGetLastError());
}

/* ---- peaks ---- */

static double peak_binary(void) {
    static double tops = -1;
    if (tops < 0) {
        const peak::rates r = peak::measure();
        tops = std::max(r.wgmma, r.mma);
        printf("wgmma b1 and.popc %.0f Tops, mma.sync b1 and.popc %.0f Tops\n", r.wgmma, r.mma);
    }
    return tops > 0 ? tops : NAN;
}

static double peak_real(void) {
    return NAN;
}

const xn_bench_place *xn_bench_cuda(void) {
    static xn_bench_place place;
    place.take = take;
    place.give = give;
    place.upload = upload;
    place.download = download;
    place.poison = poison;
    place.path_name = path_name;
    place.plan_terms = plan_terms;
    place.enqueue = enqueue;
    place.wait = wait_all;
    place.copy = copy;
    place.run_steps = run_steps;
    place.steps_us = steps_us;
    place.timer_make = timer_make;
    place.timer_sample = timer_sample;
    place.timer_free = timer_free;
    place.peak_binary = peak_binary;
    place.peak_real = peak_real;
    return &place;
}
