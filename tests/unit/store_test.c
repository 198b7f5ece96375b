/* The weights store: names, limits, recognising inline weights, losing devices, networks. */
#include "engine/engine_bench.h"
#include "nw_net.h"
#include "store_internal.h"

#include <stdio.h>
#include <string.h>

static xn_metrics *metrics;
static xn_device *gpu, *cpu;
static int64_t empty_cache; /* what the cache of inline weights takes without any */

static xn_store_limits wide(void) {
    return (xn_store_limits){100, 1 << 20, 1 << 20};
}

/* The store of a test, and what the last call of a thread said. */
static xn_store *store;
static _Thread_local xn_error error;
static _Thread_local bool created;

static void open_store(const xn_store_limits *limits) {
    const char *ids[2] = {"cuda:0", "cpu"};
    fake_reset();
    ck_assert_int_eq(xn_metrics_create(ids, 2, "test", "cuda", &metrics, NULL), XN_OK);
    ck_assert_int_eq(fake_gpu.device_open(0, &gpu, NULL), XN_OK);
    ck_assert_int_eq(fake_cpu.device_open(0, &cpu, NULL), XN_OK);
    const xn_store_device devices[2] = {{&fake_gpu, gpu}, {&fake_cpu, cpu}};
    ck_assert_int_eq(xn_store_create(devices, 2, limits, metrics, &store, NULL), XN_OK);
    empty_cache = xn_metrics_gauge(metrics, XN_GAUGE_WEIGHTS_CACHE_BYTES);
}

static void close_store(void) {
    xn_store_free(store);
    fake_gpu.device_close(gpu);
    fake_cpu.device_close(cpu);
    xn_metrics_free(metrics);
    fake_expect_all_freed();
}

static void begin(void) {
    const xn_store_limits limits = wide();
    open_store(&limits);
}

/* With other limits, and empty again. */
static void reopen(const xn_store_limits *limits) {
    close_store();
    open_store(limits);
}

static int64_t cached_bytes(void) {
    return xn_metrics_gauge(metrics, XN_GAUGE_WEIGHTS_CACHE_BYTES) - empty_cache;
}

/* [count, 1, 1, 1] and [count] of fp32. */
static xn_tensor weights_of(const float *values, int64_t count) {
    return (xn_tensor){
        XN_FP32, {4, {count, 1, 1, 1}}, count, (size_t)count * sizeof *values, values};
}

static xn_tensor vector_of(const float *values, int64_t count) {
    return (xn_tensor){XN_FP32, {1, {count}}, count, (size_t)count * sizeof *values, values};
}

static xn_status put(const char *name, float value) {
    xn_tensor tensor = weights_of(&value, 1);
    return xn_store_put(store, name, &tensor, NULL, NULL, &created, NULL, &error);
}

static xn_asset *intern(const xn_tensor *weights, const xn_tensor *scale, const xn_tensor *bias) {
    xn_asset *asset = NULL;
    xn_error why = {0};
    xn_status status = xn_store_intern(store, NULL, weights, scale, bias, &asset, &why);
    ck_assert_msg(status == XN_OK, "%s", why.message);
    return asset;
}

START_TEST(names) {
    xn_asset *old = NULL, *fresh = NULL;
    ck_assert_int_eq(xn_store_get(store, "edge", &old, &error), XN_ERR_NOT_FOUND);
    ck_assert_str_eq(error.field, "weights");
    ck_assert_ptr_nonnull(strstr(error.message, "edge"));
    ck_assert_int_eq(put("edge", 2), XN_OK);
    ck_assert(created);
    ck_assert_int_eq(fake[FAKE_GPU].live_prepared, 1); /* before anybody asks */
    ck_assert_int_eq(fake[FAKE_CPU].live_prepared, 1);
    ck_assert_int_eq(xn_store_get(store, "edge", &old, &error), XN_OK);
    ck_assert_int_eq(put("edge", 3), XN_OK);
    ck_assert(!created);
    ck_assert_int_eq(xn_store_get(store, "edge", &fresh, &error), XN_OK);
    ck_assert(xn_asset_weights(old)->real[0] == 2.0f); /* still whole */
    ck_assert(xn_asset_weights(fresh)->real[0] == 3.0f);
    ck_assert_int_eq(fake[FAKE_GPU].live_prepared, 2);
    xn_asset_release(old);
    ck_assert_int_eq(fake[FAKE_GPU].live_prepared, 1);
    ck_assert_int_eq(xn_store_delete(store, "edge", &error), XN_OK);
    ck_assert_int_eq(xn_store_delete(store, "edge", &error), XN_ERR_NOT_FOUND);
    const xn_prepared *const *prepared = NULL;
    ck_assert_int_eq(xn_asset_prepared(fresh, 1, &prepared, &error), XN_OK);
    ck_assert_ptr_nonnull(prepared);
    xn_asset_release(fresh);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_WEIGHTS), 0);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_WEIGHTS_BYTES), 0);
    char longest[140];
    memset(longest, 'n', sizeof longest);
    longest[129] = '\0';
    ck_assert_int_eq(put(longest, 1), XN_ERR_MALFORMED);
    longest[128] = '\0';
    ck_assert_int_eq(put(longest, 1), XN_OK);
    ck_assert_int_eq(put("", 1), XN_ERR_MALFORMED);
}
END_TEST

START_TEST(listing) {
    xn_store_item *items = NULL, item;
    size_t count = 99;
    ck_assert_int_eq(xn_store_list(store, &items, &count, &error), XN_OK);
    ck_assert_uint_eq(count, 0);
    xn_mem_free(items);
    uint64_t seed = xn_test_seed();
    xn_rng rng = {seed};
    bool in[100] = {false};
    for (int step = 0; step < 600; step++) {
        int i = (int)xn_rng_below(&rng, 100);
        char name[16];
        snprintf(name, sizeof name, "w%02d", i);
        if (xn_rng_below(&rng, 3) == 0) {
            ck_assert_int_eq(xn_store_delete(store, name, NULL), in[i] ? XN_OK : XN_ERR_NOT_FOUND);
            in[i] = false;
        } else {
            ck_assert_int_eq(put(name, (float)i), XN_OK);
            ck_assert_int_eq(created, !in[i]);
            in[i] = true;
        }
    }
    ck_assert_int_eq(xn_store_list(store, &items, &count, &error), XN_OK);
    size_t at = 0;
    int64_t bytes = 0;
    for (int i = 0; i < 100; i++)
        if (in[i]) {
            char name[16];
            snprintf(name, sizeof name, "w%02d", i);
            ck_assert_uint_lt(at, count);
            ck_assert_msg(!strcmp(items[at].name, name), "seed %llu", (unsigned long long)seed);
            bytes += (int64_t)items[at++].host_bytes;
        }
    ck_assert_uint_eq(at, count);
    xn_mem_free(items);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_WEIGHTS), (int64_t)count);
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_WEIGHTS_BYTES), bytes);

    const float values[2] = {1, -1}, scale[2] = {3, 4};
    xn_tensor tensor = weights_of(values, 2), factor = vector_of(scale, 2);
    ck_assert_int_eq(xn_store_put(store, "z", &tensor, &factor, NULL, &created, NULL, &error),
                     XN_OK);
    xn_asset *asset = NULL;
    ck_assert_int_eq(xn_store_get(store, "z", &asset, &error), XN_OK);
    xn_asset_count_requests(asset, 5);
    xn_asset_release(asset);
    ck_assert_int_eq(xn_store_item_get(store, "z", &item, &error), XN_OK);
    ck_assert(item.dims[0] == 2 && item.dims[3] == 1 && item.has_scale && !item.has_bias);
    ck_assert_int_eq(item.datatype, XN_FP32);
    ck_assert_int_eq(item.requests, 5);
    ck_assert_int_eq(xn_store_item_get(store, "none", &item, &error), XN_ERR_NOT_FOUND);
}
END_TEST

/* What a put tells of the name is what it did, not what another made of it since. */
START_TEST(put_describes_what_it_registered) {
    const float values[2] = {1, -1}, other[3] = {3, 4, 5};
    xn_tensor tensor = weights_of(values, 2), replacement = weights_of(other, 3);
    xn_store_item first, second;
    ck_assert_int_eq(xn_store_put(store, "w", &tensor, NULL, &tensor, &created, &first, NULL),
                     XN_ERR_GEOMETRY);
    xn_tensor bias = vector_of(values, 2);
    ck_assert_int_eq(xn_store_put(store, "w", &tensor, NULL, &bias, &created, &first, NULL), XN_OK);
    ck_assert_int_eq(xn_store_put(store, "w", &replacement, NULL, NULL, &created, &second, NULL),
                     XN_OK);
    ck_assert_int_eq(xn_store_delete(store, "w", NULL), XN_OK);
    ck_assert_str_eq(first.name, "w");
    ck_assert(first.dims[0] == 2 && first.has_bias && !first.has_scale && !first.requests);
    ck_assert(second.dims[0] == 3 && !second.has_bias && second.hash != first.hash);
}
END_TEST

START_TEST(limits_of_names) {
    xn_store_limits limits = wide();
    ck_assert_int_eq(put("a", 1), XN_OK);
    int64_t one = xn_metrics_gauge(metrics, XN_GAUGE_WEIGHTS_BYTES);

    limits = (xn_store_limits){2, 100 * one, 0};
    reopen(&limits);
    ck_assert_int_eq(put("a", 1), XN_OK);
    ck_assert_int_eq(put("b", 1), XN_OK);
    int prepares = fake[FAKE_GPU].prepares;
    ck_assert_int_eq(put("c", 1), XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-weights");
    ck_assert_int_eq(fake[FAKE_GPU].prepares, prepares); /* refused before the devices */
    ck_assert_int_eq(put("b", 2), XN_OK);                /* replacing is no new name */

    /* The heap may give equal entries blocks of unequal size: room for two and a half. */
    limits = (xn_store_limits){100, 2 * one + one / 2, 0};
    reopen(&limits);
    ck_assert_int_eq(put("a", 1), XN_OK);
    ck_assert_int_eq(put("b", 1), XN_OK);
    ck_assert_int_eq(put("c", 1), XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-weights-bytes");
    ck_assert_int_eq(put("b", 2), XN_OK);
    ck_assert_int_eq(xn_store_delete(store, "a", &error), XN_OK);
    ck_assert_int_eq(put("c", 1), XN_OK);
}
END_TEST

/* ---- inline weights ---- */

/* Weights that somebody registers are worth more than those that were only recognised. */
START_TEST(recognised_weights_make_room) {
    const float value = 3;
    xn_tensor tensor = weights_of(&value, 1);
    xn_asset_release(intern(&tensor, NULL, NULL));
    ck_assert_int_gt(cached_bytes(), 0);
    fake[FAKE_GPU].prepare_short = 1;
    ck_assert_int_eq(put("w", 2), XN_OK);
    ck_assert_int_eq(cached_bytes(), 0);
    fake[FAKE_GPU].prepare_short = 2;
    ck_assert_int_eq(put("x", 2), XN_ERR_DEVICE_MEMORY);
}
END_TEST

START_TEST(equal_contents_are_one_asset) {
    const float values[3] = {1, -2, 3}, copy[3] = {1, -2, 3}, other[3] = {1, -2, -3};
    const float extra[3] = {1, 1, 1};
    xn_tensor tensor = weights_of(values, 3), same = weights_of(copy, 3);
    xn_tensor differs = weights_of(other, 3), vector = vector_of(extra, 3);
    xn_tensor row = same, bytes = same;
    row.shape = (xn_shape){4, {1, 3, 1, 1}};
    bytes.datatype = XN_INT8; /* the same bytes mean other values */
    bytes.shape = (xn_shape){4, {12, 1, 1, 1}};
    bytes.elements = 12;
    xn_asset *assets[7] = {
        intern(&tensor, NULL, NULL),  intern(&same, NULL, NULL),  intern(&differs, NULL, NULL),
        intern(&row, NULL, NULL),     intern(&bytes, NULL, NULL), intern(&same, &vector, NULL),
        intern(&same, NULL, &vector),
    };
    ck_assert_ptr_eq(assets[0], assets[1]);
    for (int i = 1; i < 7; i++)
        for (int k = i + 1; k < 7; k++)
            ck_assert_ptr_ne(assets[i], assets[k]);
    ck_assert(xn_asset_weights(assets[5])->scale && !xn_asset_weights(assets[5])->bias);
    ck_assert(!xn_asset_weights(assets[6])->scale && xn_asset_weights(assets[6])->bias);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 0); /* lazily */
    const xn_prepared *const *first = NULL, *const *second = NULL;
    ck_assert_int_eq(xn_asset_prepared(assets[0], 0, &first, NULL), XN_OK);
    ck_assert_int_eq(xn_asset_prepared(assets[1], 0, &second, NULL), XN_OK);
    ck_assert_ptr_eq(first, second);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 1);
    ck_assert_int_eq(fake[FAKE_CPU].prepares, 0);
    for (int i = 0; i < 7; i++)
        xn_asset_release(assets[i]);
    ck_assert_int_gt(cached_bytes(), 0);
    xn_store_trim(store);
    ck_assert_int_eq(cached_bytes(), 0);
    ck_assert_int_eq(fake[FAKE_GPU].live_prepared, 0);
}
END_TEST

START_TEST(other_scale_for_named_weights) {
    const float values[2] = {1, -2}, scale[2] = {3, 4}, bias[2] = {5, 6};
    xn_tensor tensor = weights_of(values, 2), factor = vector_of(scale, 2),
              offset = vector_of(bias, 2), wrong = vector_of(bias, 1);
    ck_assert_int_eq(xn_store_put(store, "w", &tensor, NULL, &offset, &created, NULL, NULL), XN_OK);
    xn_asset *base = NULL, *first = NULL, *second = NULL, *plain = NULL;
    ck_assert_int_eq(xn_store_get(store, "w", &base, NULL), XN_OK);
    ck_assert_int_eq(xn_store_intern(store, base, NULL, &factor, NULL, &first, &error), XN_OK);
    ck_assert_int_eq(xn_store_intern(store, base, NULL, &factor, NULL, &second, &error), XN_OK);
    ck_assert_ptr_eq(first, second);
    const xn_weights *made = xn_asset_weights(first);
    ck_assert(!memcmp(made->real, values, sizeof values) && made->scale[1] == 4.0f);
    ck_assert(made->bias && !memcmp(made->bias, bias, sizeof bias)); /* the base's own */
    plain = intern(&tensor, &factor, NULL); /* the same by value, but not by request */
    ck_assert_ptr_ne(plain, first);
    ck_assert_int_eq(xn_store_intern(store, base, NULL, &wrong, NULL, &second, &error),
                     XN_ERR_GEOMETRY);
    ck_assert_str_eq(error.field, "scale.shape");
    xn_asset_release(plain);
    xn_asset_release(first);
    xn_asset_release(first);
    xn_asset_release(base);
}
END_TEST

/* What a request does not give comes from the registered weights: all 16 combinations. */
START_TEST(scale_and_bias_from_either_side) {
    const float value[1] = {2}, first[2] = {3, 4}, second[2] = {5, 6};
    const xn_tensor tensor = weights_of(value, 1);
    for (int i = 0; i < 16; i++) {
        const bool has[2] = {i & 1, i & 2}, gives[2] = {i & 4, i & 8};
        xn_tensor own[2], asked[2];
        xn_asset *base, *made;
        for (int k = 0; k < 2; k++) {
            own[k] = vector_of(&first[k], 1);
            asked[k] = vector_of(&second[k], 1);
        }
        ck_assert_int_eq(xn_store_put(store, "w", &tensor, has[0] ? &own[0] : NULL,
                                      has[1] ? &own[1] : NULL, &created, NULL, NULL),
                         XN_OK);
        ck_assert_int_eq(xn_store_get(store, "w", &base, NULL), XN_OK);
        ck_assert_int_eq(xn_store_intern(store, base, NULL, gives[0] ? &asked[0] : NULL,
                                         gives[1] ? &asked[1] : NULL, &made, NULL),
                         XN_OK);
        const float *got[2] = {xn_asset_weights(made)->scale, xn_asset_weights(made)->bias};
        for (int k = 0; k < 2; k++) {
            ck_assert_int_eq(got[k] != NULL, has[k] || gives[k]);
            ck_assert(!got[k] || *got[k] == (gives[k] ? second[k] : first[k]));
        }
        xn_asset_release(made);
        xn_asset_release(base);
    }
}
END_TEST

/* The same scale for other registered weights, or for others that took the name: each keeps its own
 * weights. */
START_TEST(one_scale_for_many_named_weights) {
    enum { NAMES = 3 };
    const char *const takers[NAMES] = {"a", "b", "a"};
    const float scale[1] = {3};
    xn_tensor factor = vector_of(scale, 1);
    xn_asset *made[NAMES];
    for (int i = 0; i < NAMES; i++) {
        xn_asset *base;
        ck_assert_int_eq(put(takers[i], (float)(i + 1)), XN_OK);
        ck_assert_int_eq(xn_store_get(store, takers[i], &base, NULL), XN_OK);
        ck_assert_int_eq(xn_store_intern(store, base, NULL, &factor, NULL, &made[i], &error),
                         XN_OK);
        xn_asset_release(base);
    }
    for (int i = 0; i < NAMES; i++) {
        ck_assert_float_eq(xn_asset_weights(made[i])->real[0], (float)(i + 1));
        xn_asset_release(made[i]);
    }
}
END_TEST

/* Which of them leave: cache_test.c. */
START_TEST(cache_is_bounded) {
    static float many[4096];
    const xn_tensor giant = weights_of(many, 4096);
    xn_store_limits limits = wide();
    for (limits.cache_bytes = 8192; limits.cache_bytes >= 0; limits.cache_bytes -= 8192) {
        reopen(&limits);
        for (int i = 0; i < 100; i++) {
            const float value = (float)i;
            const xn_tensor tensor = weights_of(&value, 1);
            xn_asset_release(intern(&tensor, NULL, NULL));
        }
        const int64_t before = cached_bytes();
        ck_assert_int_eq(before > 0, limits.cache_bytes > 0);
        ck_assert_int_le(before + empty_cache, limits.cache_bytes);
        /* What is larger than the whole cache is served without it, and evicts nothing. */
        xn_asset *asset = intern(&giant, NULL, NULL);
        ck_assert_int_eq(xn_asset_weights(asset)->out_channels, 4096);
        ck_assert_int_eq(cached_bytes(), before);
        xn_asset_release(asset);
    }
}
END_TEST

START_TEST(wrong_inline_weights) {
    float value = 1;
    xn_tensor wrong = vector_of(&value, 1);
    for (int i = 0; i < 2; i++) { /* a failure is not remembered as an asset */
        xn_asset *asset = NULL;
        ck_assert_int_eq(xn_store_intern(store, NULL, &wrong, NULL, NULL, &asset, &error),
                         XN_ERR_GEOMETRY);
        ck_assert_ptr_null(asset);
        ck_assert_str_eq(error.field, "weights.shape");
    }
    ck_assert_int_eq(cached_bytes(), 0);
}
END_TEST

/* What the store shows as the hash of weights that are put. */
static uint64_t shown_hash(const xn_tensor *weights, const xn_tensor *scale,
                           const xn_tensor *bias) {
    xn_store_item put = {0}, got = {0};
    xn_status status = xn_store_put(store, "shown", weights, scale, bias, &created, &put, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    ck_assert_int_eq(xn_store_item_get(store, "shown", &got, &error), XN_OK);
    ck_assert_uint_eq(put.hash, got.hash);
    return put.hash;
}

/* Equal values have equal hashes, whatever datatype they came in and in whichever store; other
 * values, another shape, a scale or a bias have another one. */
START_TEST(shown_hash_is_of_the_values) {
    enum { VARIANTS = 11 };
    static const float values[8] = {1, -2, 3, -4, 5, 0, -7, 8};
    static const float negative_zero[8] = {1, -2, 3, -4, 5, -0.0f, -7, 8};
    static const float last[8] = {1, -2, 3, -4, 5, 0, -7, 9};
    static const int8_t small[8] = {1, -2, 3, -4, 5, 0, -7, 8};
    static const float channels[2] = {1, 2}, others[2] = {1, 3};
    const xn_tensor tensor = {XN_FP32, {4, {2, 1, 2, 2}}, 8, sizeof values, values};
    const xn_tensor bytes = {XN_INT8, {4, {2, 1, 2, 2}}, 8, sizeof small, small};
    xn_tensor zero = tensor, nine = tensor, broad = tensor, tall = tensor;
    const xn_tensor channel = vector_of(channels, 2), other = vector_of(others, 2);
    zero.data = negative_zero;
    nine.data = last;
    broad.shape = (xn_shape){4, {2, 2, 1, 2}};
    tall.shape = (xn_shape){4, {2, 2, 2, 1}};
    const struct {
        const xn_tensor *weights, *scale, *bias;
    } variants[VARIANTS] = {
        {&tensor, NULL, NULL},       {&bytes, NULL, NULL},       {&zero, NULL, NULL},
        {&nine, NULL, NULL},         {&broad, NULL, NULL},       {&tall, NULL, NULL},
        {&tensor, &channel, NULL},   {&tensor, NULL, &channel},  {&tensor, &channel, &channel},
        {&tensor, &channel, &other}, {&tensor, &other, &channel}};
    uint64_t hashes[2][VARIANTS];
    for (int round = 0; round < 2; round++) {
        const xn_store_limits limits = wide();
        reopen(&limits);
        for (int i = 0; i < VARIANTS; i++)
            hashes[round][i] = shown_hash(variants[i].weights, variants[i].scale, variants[i].bias);
    }
    for (int i = 0; i < VARIANTS; i++)
        for (int j = 0; j < VARIANTS; j++) {
            bool same = i == j || i + j == 1;
            ck_assert_msg((hashes[0][i] == hashes[1][j]) == same, "variants %d and %d", i, j);
        }
}
END_TEST

/* Any single changed bit, wherever it lies, changes the hash. */
START_TEST(shown_hash_sees_every_bit) {
    enum { COUNT = 37 };
    float values[COUNT] = {0};
    const xn_tensor tensor = {XN_FP32, {4, {1, COUNT, 1, 1}}, COUNT, sizeof values, values};
    uint64_t base = shown_hash(&tensor, NULL, NULL);
    for (int i = 0; i < COUNT * 32; i++) {
        uint32_t flipped = 1u << i % 32;
        memcpy(&values[i / 32], &flipped, sizeof flipped);
        ck_assert_msg(shown_hash(&tensor, NULL, NULL) != base, "value %d bit %d", i / 32, i % 32);
        values[i / 32] = 0;
    }
}
END_TEST

/* ---- lost devices ---- */

static void count_lost(void *context, int device, const xn_error *why) {
    ck_assert_int_eq(device, 0);
    ck_assert_int_eq(why->status, XN_ERR_DEVICE_LOST);
    (*(int *)context)++;
}

START_TEST(lost_device) {
    int calls = 0;
    xn_store_on_device_lost(store, count_lost, &calls);
    fake[FAKE_GPU].lost[0] = true;
    ck_assert_int_eq(put("a", 1), XN_ERR_DEVICE_LOST);
    ck_assert_int_eq(calls, 1);
    int prepares = fake[FAKE_GPU].prepares;
    ck_assert_int_eq(put("a", 1), XN_OK);
    xn_asset *asset = NULL;
    const xn_prepared *const *prepared = NULL;
    ck_assert_int_eq(xn_store_get(store, "a", &asset, &error), XN_OK);
    ck_assert_int_eq(xn_asset_prepared(asset, 0, &prepared, &error), XN_ERR_DEVICE_LOST);
    ck_assert_int_eq(xn_asset_prepared(asset, 1, &prepared, &error), XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, prepares); /* left alone */
    xn_store_device_lost(store, 1);
    ck_assert_int_eq(put("b", 1), XN_ERR_DEVICE_LOST);
    ck_assert_int_eq(calls, 1);
    xn_asset_release(asset);
}
END_TEST

/* ---- networks ---- */

/* Two convolutions of a channel: weights 2, then 5; with a max-pool behind them if asked for. */
static xn_network *two_convolutions(bool pool) {
    nw_net *net = nw_create(1, 4, 4);
    nw_add(net, XN_OP_CONV, "a", NULL)->weight = nw_tensor(net, (float[]){2}, 1, 1, 1, 1);
    nw_add(net, XN_OP_CONV, "b", NULL)->weight = nw_tensor(net, (float[]){5}, 1, 1, 1, 1);
    if (pool)
        nw_add(net, XN_OP_MAX_POOL, "pool", NULL)->global = true;
    xn_network *network = nw_lower(net);
    nw_free(net);
    ck_assert_int_eq(network->weights_count, 2);
    return network;
}

START_TEST(network_is_prepared_everywhere) {
    xn_asset *asset = NULL;
    const xn_prepared *const *gpu_weights = NULL, *const *cpu_weights = NULL;
    xn_network *network = two_convolutions(false);
    ck_assert_int_eq(xn_store_make_network(store, network, &asset, &error), XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].live_prepared, 2); /* before anybody asks */
    ck_assert_int_eq(fake[FAKE_CPU].live_prepared, 2);
    ck_assert_ptr_null(xn_asset_weights(asset));
    ck_assert_int_eq(xn_asset_prepared(asset, 0, &gpu_weights, &error), XN_OK);
    ck_assert_int_eq(xn_asset_prepared(asset, 1, &cpu_weights, &error), XN_OK);
    const xn_prepared *all[4] = {gpu_weights[0], gpu_weights[1], cpu_weights[0], cpu_weights[1]};
    for (int i = 1; i < 4; i++)
        for (int k = 0; k < i; k++)
            ck_assert(all[i] && all[i] != all[k]);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 2);
    xn_asset_release(asset);
}
END_TEST

/* The second of its weights does not fit until recognised ones have gone: all are made anew. */
START_TEST(network_finds_room) {
    const float value = 3;
    xn_tensor tensor = weights_of(&value, 1);
    xn_asset *asset = NULL;
    xn_asset_release(intern(&tensor, NULL, NULL));
    fake[FAKE_GPU].prepare_short_after = 1;
    fake[FAKE_GPU].prepare_short = 1;
    ck_assert_int_eq(xn_store_make_network(store, two_convolutions(false), &asset, NULL), XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].live_prepared, 2);
    ck_assert_int_eq(fake[FAKE_GPU].prepares, 4);
    ck_assert_int_eq(cached_bytes(), 0);
    xn_asset_release(asset);
}
END_TEST

XN_SUITE(store) {
    Suite *s = suite_create("store");
    TCase *t = tcase_create("store");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, begin, close_store);
    tcase_add_test(t, names);
    tcase_add_test(t, listing);
    tcase_add_test(t, put_describes_what_it_registered);
    tcase_add_test(t, limits_of_names);
    tcase_add_test(t, recognised_weights_make_room);
    tcase_add_test(t, equal_contents_are_one_asset);
    tcase_add_test(t, other_scale_for_named_weights);
    tcase_add_test(t, scale_and_bias_from_either_side);
    tcase_add_test(t, one_scale_for_many_named_weights);
    tcase_add_test(t, cache_is_bounded);
    tcase_add_test(t, wrong_inline_weights);
    tcase_add_test(t, shown_hash_is_of_the_values);
    tcase_add_test(t, shown_hash_sees_every_bit);
    tcase_add_test(t, network_is_prepared_everywhere);
    tcase_add_test(t, network_finds_room);
    tcase_add_test(t, lost_device);
    suite_add_tcase(s, t);
    return s;
}
