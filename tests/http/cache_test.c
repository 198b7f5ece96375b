/* The cache of answers on a real daemon: a hit is told, equals what was computed, and never comes
 * from weights, a network, parameters, a memory or a client that it was not computed for. */
#include "client/oip.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static xt_daemon *daemon_;
static char repository[256];
static xt_net nets[XT_NETS];

static void start(void) {
    xt_nets_make(nets, repository, sizeof repository);
    daemon_ = xt_daemon_start_shared(XT_FLAGS("--response-cache-bytes", "64M", "--allow-client-shm",
                                              "--model-repository", repository));
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
    xt_nets_free(nets, repository);
}

static double cache_metric(const char *name) {
    char sample[64];
    snprintf(sample, sizeof sample, "xnord_response_cache_%s", name);
    double value = xt_metric(daemon_, sample);
    ck_assert_msg(value >= 0, "no %s", sample);
    return value;
}

static bool is_hit(const xt_response *response) {
    const char *told = XT_HEADER(response, "Cache-Status");
    return told && !strcmp(told, "xnord; hit");
}

/* ---- convolutions ---- */

/* Whether it was a hit; the answer must be right. */
static bool convolve(const xt_problem *problem, xt_form form, xt_form answer_form,
                     const xt_options *given) {
    xt_options options = *given;
    xt_response response;
    xt_answer answer;
    char error[512] = "";
    options.accept = answer_form == XT_RAW ? NULL : xt_form_type(answer_form);
    xt_conv(daemon_, problem, form, &options, &response);
    ck_assert_msg(xt_response_matches(&response, answer_form, problem, NULL, error, sizeof error),
                  "%s: %s", problem->what.name, error);
    ck_assert(xt_answer_read(&response, answer_form, &answer, error, sizeof error));
    const bool hit = is_hit(&response);
    if (answer_form != XT_RAW)
        ck_assert(answer.cached == hit);
    if (hit && answer_form != XT_RAW)
        ck_assert(answer.batch_requests == 0 && answer.batch_images == 0 &&
                  answer.timing_us[XT_QUEUE] == 0 && answer.timing_us[XT_COMPUTE] == 0);
    xt_answer_free(&answer);
    xt_response_free(&response);
    return hit;
}

/* clang-format off */
static const xt_case cases[] = {
    {"plain", 1, 3, 6, 7, 4, 3, 3, .padding_name = "same"},
    {"affine", 2, 5, 6, 7, 4, 3, 3, .padding_name = "same", .scale = true, .bias = true},
    {"bits", 1, 40, 6, 7, 9, 3, 3, .datatype = "BITS", .scaling = "alpha"},
    {"halves", 1, 3, 6, 7, 4, 3, 3, .datatype = "FP16", .output_datatype = "FP16"},
    {"bwn", 1, 3, 6, 7, 4, 3, 3, .datatype = "UINT8", .mode = "bwn"},
};
/* clang-format on */
enum { CASES = sizeof cases / sizeof *cases };

/* Whatever form it came and goes in: the values are what counts. */
START_TEST(forms_share_answers) {
    const bool bits = cases[_i].datatype && !strcmp(cases[_i].datatype, "BITS");
    xt_problem problem;
    xt_options options = {.weights_name = "shared"};
    bool first = true;
    xt_problem_make(&problem, &cases[_i], xn_test_seed() + (uint64_t)_i);
    xt_put_weights(daemon_, "shared", &problem, XT_OIP);
    for (int form = bits ? XT_OIP : XT_JSON; form <= XT_RAW; form++)
        for (int answer = XT_JSON; answer < XT_FORMS; answer++) {
            const bool raw = form == XT_RAW;
            const bool hit =
                convolve(&problem, (xt_form)form, (xt_form)(raw ? form : answer), &options);
            ck_assert_int_eq(hit, !first);
            first = false;
        }
    for (int i = 0; i < 2; i++) /* inline weights are another asset, recognised by their bytes */
        ck_assert_int_eq(convolve(&problem, XT_OIP, XT_OIP, &(xt_options){0}), i);
    xt_problem_free(&problem);
}
END_TEST

START_TEST(every_parameter_counts) {
    xt_case variants[9];
    xt_problem problems[9];
    const xt_case base = {"base", 1, 4, 8, 8, 4, 3, 3, .padding = {1, 1, 1, 1}};
    for (int i = 0; i < 9; i++)
        variants[i] = base;
    variants[1].scaling = "alpha";
    variants[2].scaling = "none";
    variants[3].pad_value = 1;
    variants[4].padding[3] = 2;
    variants[5].stride[0] = variants[5].stride[1] = 2;
    variants[6].mode = "bwn";
    variants[7].output_datatype = "FP16";
    variants[8].c = 2; /* the same number of bytes in another shape, for weights of groups */
    variants[8].h = 16;
    for (int i = 0; i < 9; i++)
        xt_problem_make(&problems[i], &variants[i], xn_test_seed() + 7);
    xt_put_weights(daemon_, "parameters", &problems[0], XT_OIP);
    xt_put_weights(daemon_, "others", &problems[8], XT_OIP);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 9; i++) {
            xt_options options = {.weights_name = i < 8 ? "parameters" : "others"};
            ck_assert_msg(convolve(&problems[i], XT_OIP, XT_OIP, &options) == round, "%d", i);
        }
    for (int i = 0; i < 9; i++)
        xt_problem_free(&problems[i]);
}
END_TEST

/* A random life of one name, whose weights are replaced and deleted between requests. */
START_TEST(replaced_weights_are_never_stale) {
    enum { VERSIONS = 3, INPUTS = 3 };
    const xt_case what = {"replaced", 1, 3, 6, 7, 4, 3, 3, .padding_name = "same"};
    const double before = cache_metric("entries");
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    xt_problem all[VERSIONS][INPUTS];
    bool known[INPUTS] = {false};
    int version = -1;
    for (int v = 0; v < VERSIONS; v++)
        for (int i = 0; i < INPUTS; i++)
            xt_problem_make(&all[v][i], &what, xn_test_seed() + (uint64_t)v);
    for (int v = 0; v < VERSIONS; v++)
        for (int i = 0; i < INPUTS; i++) { /* the same inputs for all */
            for (int64_t k = 0; k < all[v][i].input.count; k++) {
                all[v][i].input.values[k] = k == 1 ? i : all[0][0].input.values[k];
                const float value = (float)all[v][i].input.values[k];
                memcpy(all[v][i].input.raw + 4 * k, &value, 4);
            }
            xt_problem_solve(&all[v][i]);
        }
    for (int step = 0; step < 60; step++) {
        const uint64_t act = xn_rng_below(&rng, 6);
        if (version < 0 || act == 0) {
            version = (int)xn_rng_below(&rng, VERSIONS);
            xt_put_weights(daemon_, "replaced", &all[version][0], XT_OIP);
            memset(known, 0, sizeof known);
            ck_assert(cache_metric("entries") == before); /* at once */
        } else if (act == 1) {
            xt_expect(daemon_, "DELETE", "/weights/replaced", "", NULL, 204);
            version = -1;
            memset(known, 0, sizeof known);
            ck_assert(cache_metric("entries") == before);
        } else {
            const int input = (int)xn_rng_below(&rng, INPUTS);
            xt_options options = {.weights_name = "replaced"};
            ck_assert_int_eq(convolve(&all[version][input], XT_OIP, XT_OIP, &options),
                             known[input]);
            known[input] = true;
        }
    }
    xt_put_weights(daemon_, "replaced", &all[0][0], XT_OIP); /* the next test counts from here */
    for (int v = 0; v < VERSIONS; v++)
        for (int i = 0; i < INPUTS; i++)
            xt_problem_free(&all[v][i]);
}
END_TEST

/* ---- networks ---- */

static double stat_of(const char *model, const char *path) {
    char target[100], at[100];
    snprintf(target, sizeof target, "/v2/models/%s/stats", model);
    snprintf(at, sizeof at, "model_stats.0.%s", path);
    char *json = xt_get(daemon_, target);
    const double value = xt_json_number(json, at);
    free(json);
    return value;
}

/* Whether it was a hit. */
static bool infer(xt_infer *how, int kind, const void *images, const float *expected,
                  int64_t count) {
    xt_response response;
    xt_ask(daemon_, xt_net_names[kind], how, &nets[kind], images, count, &response);
    ck_assert_msg(response.status == 200, "%s", response.body);
    const bool hit = is_hit(&response);
    if (!how->headers) /* else the body is coded */
        ck_assert_int_eq(hit, xt_json_at(response.body, "parameters.cached") != NULL);
    if (hit && !how->headers) {
        ck_assert_double_eq(xt_json_number(response.body, "parameters.compute_ns"), 0);
        ck_assert_double_eq(xt_json_number(response.body, "parameters.batch_requests"), 0);
    }
    if (kind == XT_NET_PLAIN && !how->rest)
        xt_check_output(&response, 0, "logits", expected, count, 10, 0, 10);
    if (kind == XT_NET_BYTES && !how->rest) {
        xt_check_output(&response, 0, "out0", expected, count, 250, 0, 240);
        xt_check_output(&response, 1, "out1", expected, count, 250, 240, 250);
    }
    xt_response_free(&response);
    return hit;
}

START_TEST(networks) {
    const char *model = xt_net_names[_i];
    xn_rng rng = {xn_test_seed() + 3};
    void *images = xt_net_images(&nets[_i], &rng, 4);
    float *expected = xt_net_expect(&nets[_i], images, 4);
    xt_infer hows[] = {{.in = XT_IN_JSON},
                       {.in = XT_IN_BINARY},
                       {.in = XT_IN_NESTED},
                       {.in = XT_IN_BINARY,
                        .headers = "Accept-Encoding: gzip\r\n",
                        .rest = ", \"parameters\": {\"timeout\": 30000000}"},
                       {.in = XT_IN_BINARY,
                        .rest = _i == XT_NET_PLAIN
                                    ? ", \"outputs\": [{\"name\": \"logits\", \"parameters\": "
                                      "{\"classification\": 3}}]"
                                    : ", \"outputs\": [{\"name\": \"out1\"}]"}};
    const int count = sizeof hows / sizeof *hows;
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(infer(&hows[i], _i, images, expected, 4), i > 0);
    ck_assert(!infer(&hows[0], _i, images, expected, 3)); /* another batch */
    ck_assert(infer(&hows[1], _i, images, expected, 3));
    xt_infer raw = {.in = XT_IN_RAW, .rest = ""};
    ck_assert(!infer(&raw, _i, images, expected, 1));
    ck_assert(infer(&raw, _i, images, expected, 1));
    ck_assert_double_eq(stat_of(model, "inference_count"), 8);
    ck_assert_double_eq(stat_of(model, "execution_count"), 3);
    ck_assert_double_eq(stat_of(model, "inference_stats.success.count"), count + 4);
    ck_assert_double_eq(stat_of(model, "inference_stats.queue.count"), count + 4);
    ck_assert_double_eq(stat_of(model, "inference_stats.compute_infer.count"), 3);
    ck_assert_double_eq(stat_of(model, "inference_stats.cache_hit.count"), count + 1);
    ck_assert_double_eq(stat_of(model, "inference_stats.cache_miss.count"), 3);
    ck_assert_double_gt(stat_of(model, "inference_stats.cache_hit.ns"), 0);
    free(images);
    free(expected);
}
END_TEST

static void post(const char *target, const char *body, int status) {
    xt_response response;
    xt_fetch(daemon_, "POST", target, "", body, strlen(body), &response);
    ck_assert_msg(response.status == status, "%s: %s", target, response.body);
    xt_response_free(&response);
}

START_TEST(a_reloaded_network_is_never_stale) {
    xt_net versions[2];
    xn_rng rng = {xn_test_seed() + 4};
    const double before = cache_metric("entries");
    for (int v = 0; v < 2; v++)
        xt_net_make(&versions[v], XT_NET_PLAIN, xn_test_seed() + 100 + (uint64_t)v);
    void *images = xt_net_images(&versions[0], &rng, 2);
    for (int round = 0; round < 6; round++) {
        const xt_net *net = &versions[round % 2];
        float *expected = xt_net_expect(net, images, 2);
        char folder[300];
        snprintf(folder, sizeof folder, "%s/changing", repository);
        if (round)
            xt_folder_remove(folder);
        xt_net_write(net, repository, "changing");
        post("/v2/repository/models/changing/load", "", 200);
        ck_assert(cache_metric("entries") == before); /* at once */
        for (int i = 0; i < 3; i++) {
            xt_infer how = {.in = XT_IN_BINARY};
            xt_response response;
            xt_ask(daemon_, "changing", &how, net, images, 2, &response);
            xt_check_output(&response, 0, "logits", expected, 2, 10, 0, 10);
            ck_assert_int_eq(is_hit(&response), i > 0);
            xt_response_free(&response);
        }
        ck_assert(cache_metric("entries") == before + 1);
        free(expected);
    }
    post("/v2/repository/models/changing/unload", "", 200);
    ck_assert(cache_metric("entries") == before);
    free(images);
    for (int v = 0; v < 2; v++)
        xt_net_free(&versions[v]);
}
END_TEST

/* What lies in shared memory now is what counts, not what lay there. */
START_TEST(shared_memory_that_changes) {
    enum { BYTES = 4096, IMAGES = 2 };
    char key[64], body[600];
    xn_rng rng = {xn_test_seed() + 5};
    const xt_net *net = &nets[XT_NET_BYTES];
    snprintf(key, sizeof key, "/xnord-cache-%d", (int)getpid());
    shm_unlink(key);
    const int fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    ck_assert(fd >= 0 && !ftruncate(fd, BYTES));
    unsigned char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    snprintf(body, sizeof body, "{\"key\": \"%s\", \"offset\": 0, \"byte_size\": %d}", key, BYTES);
    post("/v2/systemsharedmemory/region/r/register", body, 200);
    snprintf(body, sizeof body,
             "{\"inputs\": [{\"name\": \"input\", \"datatype\": \"UINT8\", \"shape\": "
             "[%d, 6, 5, 3], \"parameters\": {\"shared_memory_region\": \"r\", "
             "\"shared_memory_byte_size\": %zu}}], \"outputs\": [{\"name\": \"out1\", "
             "\"parameters\": {\"shared_memory_region\": \"r\", \"shared_memory_offset\": 2048, "
             "\"shared_memory_byte_size\": %d}}]}",
             IMAGES, IMAGES * net->image_bytes, IMAGES * 40);
    for (int round = 0; round < 4; round++) {
        unsigned char *images = xt_net_images(net, &rng, IMAGES);
        float *expected = xt_net_expect(net, images, IMAGES);
        memcpy(memory, images, IMAGES * net->image_bytes);
        for (int i = 0; i < 2; i++) {
            xt_response response;
            memset(memory + 2048, 0, IMAGES * 40);
            xt_fetch(daemon_, "POST", "/v2/models/bytes/infer", "", body, strlen(body), &response);
            ck_assert_msg(response.status == 200, "%s", response.body);
            ck_assert_int_eq(is_hit(&response), i);
            for (int n = 0; n < IMAGES; n++)
                ck_assert_mem_eq(memory + 2048 + n * 40, expected + n * 250 + 240, 40);
            xt_response_free(&response);
        }
        free(images);
        free(expected);
    }
    post("/v2/systemsharedmemory/unregister", "", 200);
    munmap(memory, BYTES);
    close(fd);
    shm_unlink(key);
}
END_TEST

/* ---- daemons of their own ---- */

#define KEYS "a-key-of-one-client-0123456789\na-key-of-another-0123456789ab\n"

/* Nobody learns from a hit what another has sent. */
START_TEST(keys_share_nothing) {
    static const char *const keys[] = {"Authorization: Bearer a-key-of-one-client-0123456789\r\n",
                                       "Authorization: Bearer a-key-of-another-0123456789ab\r\n"};
    char path[64];
    xt_problem problem;
    xt_make_file(path, sizeof path, KEYS);
    daemon_ = xt_daemon_start(XT_FLAGS("--response-cache-bytes", "8M", "--api-keys-file", path));
    xt_problem_make(&problem, &cases[0], xn_test_seed());
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++) {
            xt_options options = {.extra_headers = keys[i]};
            ck_assert_int_eq(convolve(&problem, XT_OIP, XT_OIP, &options), round);
        }
    xt_problem_free(&problem);
    ck_assert_int_eq(xt_daemon_stop(daemon_), 0);
    unlink(path);
}
END_TEST

/* A layer of which an eighth of the limit is smaller: it is told, and neither hit nor miss. */
START_TEST(too_large_for_it) {
    xt_problem problem;
    daemon_ = xt_daemon_start(XT_FLAGS("--response-cache-bytes", "64K"));
    const xt_case what = {"large", 1, 8, 24, 24, 1, 3, 3, .groups = 1};
    xt_problem_make(&problem, &what, xn_test_seed());
    for (int i = 0; i < 2; i++)
        ck_assert(!convolve(&problem, XT_OIP, XT_OIP, &(xt_options){0}));
    ck_assert_double_eq(cache_metric("bypassed_total"), 2);
    ck_assert_double_eq(cache_metric("misses_total"), 0);
    xt_problem_free(&problem);
    ck_assert_int_eq(xt_daemon_stop(daemon_), 0);
}
END_TEST

XN_SUITE(http_cache) {
    Suite *s = suite_create("http_cache");
    TCase *t = tcase_create("cache");
    tcase_set_timeout(t, 240);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_loop_test(t, forms_share_answers, 0, CASES);
    tcase_add_test(t, every_parameter_counts);
    tcase_add_loop_test(t, replaced_weights_are_never_stale, 0, 3);
    tcase_add_loop_test(t, networks, 0, XT_NETS);
    tcase_add_test(t, a_reloaded_network_is_never_stale);
    tcase_add_test(t, shared_memory_that_changes);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    TCase *own = tcase_create("daemons of their own");
    tcase_set_timeout(own, 240);
    tcase_add_checked_fixture(own, NULL, xt_reap);
    tcase_add_test(own, keys_share_nothing);
    tcase_add_test(own, too_large_for_it);
    suite_add_tcase(s, own);
    return s;
}
