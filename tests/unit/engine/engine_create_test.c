/* Making an engine: from configurations, when memory runs out at every point, and the pure
 * functions beneath: the list of devices, the share of threads, the rate, the plan classes. */
#include "engine_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- devices ---- */

static const struct {
    const char *list;
    int found;
    const char *expected; /* "0,2" or what the message must say after '!' */
} lists[] = {
    {"all", 3, "0,1,2"},
    {"all", 0, ""},
    {"0", 1, "0"},
    {"2,0", 3, "2,0"},
    {"0,1,2,3", 4, "0,1,2,3"},
    {"3", 3, "!no such device"},
    {"0,7", 2, "!this host has 0, 1"},
    {"0,0,0", 2, "!no such device"},
    {"-1", 2, "!no such device"},
};

START_TEST(device_list) {
    int ordinals[8], count = -1;
    char text[64] = "";
    xn_error error = {0};
    const char *expected = lists[_i].expected;
    xn_status status = xn_devices_parse(lists[_i].list, lists[_i].found, ordinals, &count, &error);
    if (*expected == '!') {
        ck_assert_int_eq(status, XN_ERR_NO_DEVICE);
        ck_assert_str_eq(error.field, "devices");
        ck_assert_msg(strstr(error.message, expected + 1), "%s", error.message);
        return;
    }
    ck_assert_msg(status == XN_OK, "%s", error.message);
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), i ? ",%d" : "%d", ordinals[i]);
    ck_assert_str_eq(text, expected);
}
END_TEST

/* ---- pure functions ---- */

static int threads_for(const xn_conv *conv, int64_t images, int limit) {
    xn_problem problem;
    xn_problem_of_conv(conv, &problem);
    return xn_worker_threads(&problem, images, limit);
}

START_TEST(threads_by_work) {
    xn_conv conv = {.channels = 64,
                    .out_channels = 64,
                    .kernel_h = 1,
                    .kernel_w = 1,
                    .group_channels = 64,
                    .group_out_channels = 64,
                    .groups = 1,
                    .height = 10,
                    .width = 10,
                    .out_height = 10,
                    .out_width = 10};
    conv.mode = XN_MODE_XNOR; /* 409,600 multiply-adds and 12,800 elements an image: 2.7 us */
    ck_assert_int_eq(xn_conv_operations(&conv), 409600);
    ck_assert_int_eq(threads_for(&conv, 1, 64), 1);
    ck_assert_int_eq(threads_for(&conv, 36, 64), 1); /* 99 us: not split */
    ck_assert_int_eq(threads_for(&conv, 64, 64), 4);
    ck_assert_int_eq(threads_for(&conv, 64, 2), 2);
    ck_assert_int_eq(threads_for(&conv, 256, 8), 8);
    ck_assert_int_eq(threads_for(&conv, 256, 64), 17);
    ck_assert_int_eq(threads_for(&conv, 1024, 64), 64);
    ck_assert_int_eq(threads_for(&conv, INT64_C(1) << 40, 16), 16);
    conv.mode = XN_MODE_FLOAT; /* 18.3 us: a float is dearer than a bit */
    ck_assert_int_eq(threads_for(&conv, 8, 16), 3);
}
END_TEST

START_TEST(plan_classes) {
    const int64_t cases[][3] = {{1, 64, 1},   {2, 64, 2},   {3, 64, 4},       {33, 64, 64},
                                {64, 64, 64}, {65, 64, 65}, {1000, 64, 1000}, {33, 48, 48},
                                {5, 6, 6},    {1, 1, 1},    {2, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_int_eq(xn_programs_capacity(cases[i][0], cases[i][1]), cases[i][2]);
}
END_TEST

START_TEST(rate) {
    xn_rate r = {0};
    const int64_t s = XN_NS_PER_S;
    ck_assert(xn_rate_per_second(&r, 5 * s) == 0.0);
    for (int i = 1; i <= 1000; i++) /* 100 a second for 10 s */
        xn_rate_add(&r, 1, 100 * s + i * s / 100);
    double now = xn_rate_per_second(&r, 110 * s);
    ck_assert_msg(fabs(now - 100.0) < 2.0, "%f", now);
    ck_assert(xn_rate_per_second(&r, 115 * s) < 0.5 * now); /* it forgets */
    xn_rate early = {0};
    xn_rate_add(&early, 50, 100 * s);
    xn_rate_add(&early, 50, 101 * s); /* little is known, but not that it is slow */
    ck_assert(xn_rate_per_second(&early, 101 * s) > 50.0);
    ck_assert_int_eq(xn_rate_retry_after(100.0, 0), 1);
    ck_assert_int_eq(xn_rate_retry_after(100.0, 10), 1);
    ck_assert_int_eq(xn_rate_retry_after(100.0, 1001), 11);
    ck_assert_int_eq(xn_rate_retry_after(0.0, 1), 60);
    ck_assert_int_eq(xn_rate_retry_after(1e-9, 1000), 60);
}
END_TEST

/* ---- engines from configurations ---- */

static xn_status create(const char *backend, xn_engine **engine, xn_error *error) {
    xn_config config = fake_config();
    snprintf(config.backend, sizeof config.backend, "%s", backend);
    snprintf(config.devices, sizeof config.devices, "all");
    config.threads = 2;
    return xn_engine_create(&config, engine, error);
}

/* The rest depends on the machine: a build without cuda, or a host without a GPU. */
START_TEST(backend_cuda_or_auto) {
    const xn_backend *cuda = xn_backend_find("cuda");
    int found = 0;
    bool gpu = cuda && cuda->device_count(&found, NULL) == XN_OK && found > 0;
    xn_engine *engine = NULL;
    xn_error error = {0};
    xn_status status = create("cuda", &engine, &error);
    ck_assert_int_eq(status, gpu ? XN_OK : XN_ERR_NO_DEVICE);
    if (!gpu)
        ck_assert_int_ne(error.message[0], '\0');
    else
        xn_engine_free(engine);
    status = create("auto", &engine, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    ck_assert_str_eq(xn_engine_primary(engine), gpu ? "cuda" : "cpu");
    ck_assert_int_eq(xn_engine_fallback_reason(engine)[0] == '\0', gpu);
    xn_engine_free(engine);
    ck_assert_int_eq(create("nope", &engine, &error), XN_ERR_NO_DEVICE);
    ck_assert_ptr_nonnull(strstr(error.message, "nope"));
}
END_TEST

/* ---- memory ---- */

static atomic_int countdown;

START_TEST(creation_allocations_fail) {
    const int ordinals[2] = {0, 1};
    xn_config config = fake_config();
    config.canary_interval_ms = 3600 * 1000;
    xn_pool_spec pools[2] = {{&fake_gpu, ordinals, 2, 2, 0, 0}, {&fake_cpu, ordinals, 1, 2, 2, 2}};
    fake_reset();
    for (int i = 0;; i++) {
        xn_engine *engine = NULL;
        xn_error error = {0};
        atomic_store(&countdown, i);
        xn_mem_set_hook(xn_test_count_down, &countdown);
        xn_status status = xn_engine_create_with(&config, pools, 2, "", &engine, &error);
        xn_mem_set_hook(NULL, NULL);
        if (status == XN_OK) {
            ck_assert_int_gt(i, 20);
            xn_engine_free(engine);
            fake_expect_all_freed();
            return;
        }
        ck_assert_int_eq(status, XN_ERR_NO_MEMORY);
        ck_assert_int_eq(error.status, XN_ERR_NO_MEMORY);
        ck_assert_ptr_null(engine);
        fake_expect_all_freed();
    }
}
END_TEST

XN_SUITE(engine_create) {
    Suite *s = suite_create("engine_create");
    TCase *t = tcase_create("create");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, device_list, 0, sizeof lists / sizeof *lists);
    tcase_add_test(t, threads_by_work);
    tcase_add_test(t, plan_classes);
    tcase_add_test(t, rate);
    tcase_add_test(t, backend_cuda_or_auto);
    tcase_add_test(t, creation_allocations_fail);
    suite_add_tcase(s, t);
    return s;
}
