/* cuda_program_test.cu: networks on a GPU. Steps of all kinds against ref, in guarded memory;
 * programs that are played from graphs against the same without, for other numbers of images, other
 * weights and other memory. Skipped where there is no GPU. */
#include "backends/bk_step.h"
#include "cu_memory.h"
#include "xn_cuda.h"
#include "xn_program.h"

extern "C" {
#include "networks/nw_random.h"
}

#include <pthread.h>
#include <string.h>
#include <vector>

enum { STEPS = 1500, NETWORKS = 40, MOST_IMAGES = 5, GUARD = 256 };

/* ---- steps ---- */

/* Memory between guards. */
struct guarded {
    char *memory;
    size_t bytes;

    explicit guarded(size_t count) : memory(NULL), bytes(count) {
        CUDA(cudaMalloc((void **)&memory, GUARD + bytes + GUARD));
        CUDA(cudaMemset(memory, BK_POISON, GUARD + bytes + GUARD));
    }
    ~guarded() {
        cudaFree(memory);
    }
    guarded(const guarded &) = delete;
    guarded &operator=(const guarded &) = delete;
    char *data() const {
        return memory + GUARD;
    }
    void put(const void *from) const {
        CUDA(cudaMemcpy(data(), from, bytes, cudaMemcpyHostToDevice));
    }
    unsigned char *get() const {
        std::vector<char> all(GUARD + bytes + GUARD);
        CUDA(cudaMemcpy(all.data(), memory, all.size(), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < GUARD; i++)
            ck_assert_msg(all[i] == (char)BK_POISON && all[GUARD + bytes + i] == (char)BK_POISON,
                          "written outside the output");
        return (unsigned char *)memcpy(bk_take(bytes), all.data() + GUARD, bytes);
    }
};

static bk_written run_on_gpu(const bk_target *t, const bk_step *s) {
    const xn_step *step = &s->step;
    const size_t images = (size_t)s->images;
    const guarded input(images * xn_step_input_bytes(step));
    const guarded second(images * xn_step_second_bytes(step));
    const guarded residual(images * xn_step_residual_bytes(step));
    const guarded reals(images * xn_step_output_bytes(step));
    const guarded bits(images * xn_step_bits_bytes(step));
    xn_step_io io = {input.data(), residual.data(), reals.data(), bits.data(), NULL, second.data()};
    xn_prepared *prepared = NULL;
    xn_plan *plan = NULL;
    xn_error error = {};
    input.put(s->input);
    second.put(s->second);
    residual.put(s->residual);
    if (s->weights)
        ck_assert_int_eq(xn_cuda_weights_prepare(t->device, s->weights, &prepared, &error), XN_OK);
    CUDA(cudaDeviceSynchronize()); /* what was put there may still be on its way */
    /* room for more images than there are */
    ck_assert_msg(xn_cuda_plan_create(t->stream, step, s->images + 2, &plan, &error) == XN_OK, "%s",
                  error.message);
    CUDA(xn_cuda_enqueue(plan, prepared, s->images, &io, t->stream->stream));
    CUDA(cudaStreamSynchronize(t->stream->stream));
    xn_cuda_plan_free(plan);
    xn_cuda_weights_free(prepared);
    return bk_written{reals.get(), bits.get(), reals.bytes, bits.bytes};
}

START_TEST(steps_are_those_of_ref) {
    const bk_target *t = bk_target_named("cuda");
    for (uint64_t i = 0; t && i < STEPS; i++) {
        const int kind = XN_STEP_MAX_POOL + (int)(i % (XN_STEP_STEM - XN_STEP_MAX_POOL));
        bk_step s;
        bk_step_random((xn_step_kind)kind, xn_test_seed() + i * 977, false, &s);
        bk_written right, got = run_on_gpu(t, &s);
        ck_assert(bk_step_run(bk_target_ref(), &s, s.images, &right));
        bk_step_expect(t->name, &s, &got, &right);
        bk_written_free(&got);
        bk_written_free(&right);
        bk_step_free(&s);
    }
}
END_TEST

/* ---- programs ---- */

struct prepared_set {
    std::vector<xn_prepared *> all;

    prepared_set(const bk_target *t, const xn_network *network) {
        for (int i = 0; i < network->weights_count; i++) {
            xn_prepared *prepared = NULL;
            ck_assert_int_eq(
                xn_cuda_weights_prepare(t->device, network->weights[i], &prepared, NULL), XN_OK);
            all.push_back(prepared);
        }
    }
    ~prepared_set() {
        for (xn_prepared *prepared : all)
            xn_cuda_weights_free(prepared);
    }
    prepared_set(const prepared_set &) = delete;
    prepared_set &operator=(const prepared_set &) = delete;
};

static std::vector<float> run(xn_program *program, const prepared_set &weights,
                              const xn_network *network, const std::vector<char> &input,
                              int64_t images) {
    std::vector<float> output(network->output_bytes / 4 * (size_t)images);
    const size_t in = network->input_bytes, out = network->output_bytes;
    const xn_batch_item items[2] = {{input.data(), output.data(), 1},
                                    {input.data() + in, (char *)output.data() + out, images - 1}};
    xn_error error = {};
    ck_assert_msg(xn_program_ready(program, weights.all.data(), &error) == XN_OK, "%s",
                  error.message);
    ck_assert_msg(xn_program_run(program, weights.all.data(), items, images > 1 ? 2 : 1, NULL,
                                 &error) == XN_OK,
                  "%s", error.message);
    return output;
}

static xn_program *create(const xn_backend *b, xn_stream *stream, const xn_network *network,
                          int64_t images) {
    xn_program *program = NULL;
    xn_problem problem;
    xn_error error = {};
    xn_problem_of_network(network, &problem);
    ck_assert_msg(xn_program_create(b, stream, &problem, images, &program, &error) == XN_OK, "%s",
                  error.message);
    return program;
}

/* The table without graphs. */
static xn_backend step_by_step() {
    xn_backend b = xn_backend_cuda;
    b.run = NULL;
    b.recordings_create = NULL;
    b.recordings_free = NULL;
    return b;
}

/* Two networks of the same steps, with other weights: the same net, its parameters turned round. */
struct twins {
    nw_net *net;
    xn_network *network[2];
    bool same_steps;

    explicit twins(uint64_t seed) {
        xn_rng rng = {seed};
        net = nw_random_net(&rng, true);
        network[0] = nw_lower(net);
        for (int i = 0; i < net->params.layer_count; i++)
            if (net->layers[i].weight) {
                float *values = (float *)const_cast<void *>(net->layers[i].weight->data);
                for (int64_t k = 0; k < net->layers[i].weight->elements; k++)
                    values[k] = -values[k];
            }
        network[1] = nw_lower(net);
        same_steps = network[0]->step_count == network[1]->step_count &&
                     !memcmp(network[0]->steps, network[1]->steps,
                             (size_t)network[0]->step_count * sizeof(xn_step));
    }
    ~twins() {
        xn_network_free(network[0]);
        xn_network_free(network[1]);
        nw_free(net);
    }
    twins(const twins &) = delete;
    twins &operator=(const twins &) = delete;
};

static void expect_equal(const std::vector<float> &got, const std::vector<float> &want,
                         uint64_t seed, const char *when) {
    ck_assert_msg(!memcmp(got.data(), want.data(), want.size() * sizeof(float)), "seed %llu: %s",
                  (unsigned long long)seed, when);
}

/* Runs in a random order of image counts and weights, each several times; now and then weights go
 * and come back where others were, and the stream's memory moves. */
static void check_twins(uint64_t seed, xn_stream *stream, const bk_target *t) {
    const twins two(seed);
    const xn_backend plain = step_by_step();
    xn_rng rng = {seed + 1};
    xn_program *with = create(&xn_backend_cuda, stream, two.network[0], MOST_IMAGES);
    xn_program *without = create(&plain, stream, two.network[0], MOST_IMAGES);
    std::vector<char> input(two.network[0]->input_bytes * (size_t)MOST_IMAGES);
    bk_fill_quarters(&rng, false, two.net->params.input_datatype, input.size(), input.data());
    prepared_set *set[2] = {new prepared_set(t, two.network[0]),
                            two.same_steps ? new prepared_set(t, two.network[1]) : NULL};
    for (int i = 0; i < 40; i++) {
        const int which = two.same_steps ? (int)xn_rng_below(&rng, 2) : 0;
        const int64_t images = 1 + (int64_t)xn_rng_below(&rng, MOST_IMAGES);
        expect_equal(run(with, *set[which], two.network[0], input, images),
                     run(without, *set[which], two.network[0], input, images), seed, "a graph");
        if (xn_rng_below(&rng, 8) == 0) {
            delete set[which];
            set[which] = new prepared_set(t, two.network[which]);
        }
        if (xn_rng_below(&rng, 10) == 0) {
            ck_assert_int_eq(
                xn_cuda_workspace_reserve(stream, stream->workspace_bytes + 4096, NULL), XN_OK);
            ck_assert_int_eq(xn_cuda_arena_reserve(stream, stream->arena_bytes + 4096, NULL),
                             XN_OK);
        }
    }
    delete set[0];
    delete set[1];
    xn_program_free(with);
    xn_program_free(without);
}

START_TEST(graphs_give_what_steps_give) {
    const bk_target *t = bk_target_named("cuda");
    const xn_stream_options options = {};
    for (uint64_t i = 0; t && i < NETWORKS; i++) {
        xn_stream *stream = NULL; /* of its own: its memory grows */
        ck_assert_int_eq(xn_cuda_stream_create(t->device, &options, &stream, NULL), XN_OK);
        check_twins(xn_test_seed() + i * 1019, stream, t);
        xn_cuda_stream_free(stream);
    }
}
END_TEST

/* ---- threads ---- */

struct worker {
    const bk_target *target;
    uint64_t seed;
    pthread_t thread;
};

static void *work(void *context) {
    const worker *w = (const worker *)context;
    const xn_stream_options options = {};
    xn_stream *stream = NULL;
    ck_assert_int_eq(xn_cuda_stream_create(w->target->device, &options, &stream, NULL), XN_OK);
    for (uint64_t i = 0; i < 6; i++)
        check_twins(w->seed + i, stream, w->target);
    xn_cuda_stream_free(stream);
    return NULL;
}

/* While one captures, others allocate, copy, wait and capture. */
START_TEST(threads_capture_side_by_side) {
    const bk_target *t = bk_target_named("cuda");
    worker workers[4];
    for (int i = 0; t && i < 4; i++) {
        workers[i].target = t;
        workers[i].seed = xn_test_seed() + (uint64_t)i * 100003;
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; t && i < 4; i++)
        pthread_join(workers[i].thread, NULL);
}
END_TEST

XN_SUITE(cuda_program) {
    Suite *s = suite_create("cuda_program");
    TCase *t = xn_test_case(s, "cuda_program", 300);
    tcase_add_test(t, steps_are_those_of_ref);
    tcase_add_test(t, graphs_give_what_steps_give);
    tcase_add_test(t, threads_capture_side_by_side);
    return s;
}
