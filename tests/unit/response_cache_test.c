/* response_cache_test.c: the cache of answers against a plain account of what was put into it, its
 * hash against an evaluation by the definition, and what it keeps when there is no room for all. */
#include "clock.h"
#include "popularity.h"
#include "response_cache.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

static const int64_t long_ns = INT64_C(10000000); /* a run that is worth keeping */

/* ---- the hash ---- */

__extension__ typedef unsigned __int128 u128;

/* By the definition: words filled up with zeros, remainders taken by division. */
static uint64_t hash_plainly(const xn_hash_key *key, const xn_hash_part *parts, size_t count) {
    const u128 prime = ((u128)1 << 61) - 1;
    u128 value = 1;
    for (size_t p = 0; p < count; p++) {
        value = (value * key->point + parts[p].bytes) % prime;
        for (size_t at = 0; at < parts[p].bytes; at += 1024) {
            uint64_t block[128] = {0};
            size_t now = parts[p].bytes - at < 1024 ? parts[p].bytes - at : 1024;
            memcpy(block, (const char *)parts[p].data + at, now);
            u128 sum = 0;
            for (size_t i = 0; i * 16 < now; i++)
                sum += (u128)(block[2 * i] + key->words[2 * i]) *
                       (uint64_t)(block[2 * i + 1] + key->words[2 * i + 1]);
            for (int i = 0; i < 3; i++, sum >>= 43)
                value = (value * key->point + (sum & ((UINT64_C(1) << 43) - 1))) % prime;
        }
    }
    uint64_t x = (uint64_t)value + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

START_TEST(hash_is_as_defined) {
    enum { MOST = 5000 };
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    xn_hash_key key;
    static unsigned char bytes[MOST + 1];
    xn_hash_key_make(&key);
    for (int i = 0; i < MOST; i++)
        bytes[i] = (unsigned char)xn_rng_next(&rng);
    for (int i = 0; i < 300; i++) {
        const size_t most = i < 200 ? 40 : MOST, first = xn_rng_below(&rng, most);
        const xn_hash_part parts[] = {{bytes, first}, {bytes + first, most - first}};
        const uint64_t hash = xn_keyed_hash(&key, parts, 2);
        ck_assert_uint_eq(hash, hash_plainly(&key, parts, 2));
        /* Any bit changes it, and so does a byte that moves to the other part. */
        if (most > first) {
            const xn_hash_part moved[] = {{bytes, first + 1},
                                          {bytes + first + 1, most - first - 1}};
            ck_assert_uint_ne(hash, xn_keyed_hash(&key, moved, 2));
        }
        unsigned char *changed = &bytes[xn_rng_below(&rng, most)];
        *changed ^= (unsigned char)(1 << xn_rng_below(&rng, 8));
        ck_assert_uint_ne(hash, xn_keyed_hash(&key, parts, 2));
    }
}
END_TEST

START_TEST(hash_has_another_key_each_time) {
    xn_hash_key a, b;
    const xn_hash_part part = {"the same", 8};
    xn_hash_key_make(&a);
    xn_hash_key_make(&b);
    ck_assert_uint_ne(xn_keyed_hash(&a, &part, 1), xn_keyed_hash(&b, &part, 1));
    ck_assert_uint_lt(a.point, (UINT64_C(1) << 61) - 1);
}
END_TEST

/* ---- popularity ---- */

START_TEST(popularity_counts_and_forgets) {
    enum { COUNTERS = 4096, KEYS = 100 };
    xn_popularity p;
    xn_error error;
    xn_rng rng = {xn_test_seed()};
    uint64_t keys[KEYS];
    unsigned true_count[KEYS] = {0}, wrong = 0;
    ck_assert(!xn_popularity_init(&p, COUNTERS, &error));
    for (int i = 0; i < KEYS; i++)
        keys[i] = xn_rng_next(&rng);
    for (int i = 0; i < 600; i++) {
        const int which = (int)(xn_rng_below(&rng, KEYS) * xn_rng_below(&rng, KEYS) / KEYS);
        xn_popularity_add(&p, keys[which]);
        true_count[which] += true_count[which] < XN_POPULARITY_MOST;
    }
    for (int i = 0; i < KEYS; i++) { /* never less, hardly ever more */
        ck_assert_uint_ge(xn_popularity_of(&p, keys[i]), true_count[i]);
        wrong += xn_popularity_of(&p, keys[i]) != true_count[i];
    }
    ck_assert_uint_le(wrong, KEYS / 10);
    for (int i = 0; i < 2 * COUNTERS; i++)
        xn_popularity_add(&p, 42); /* time goes by */
    for (int i = 0; i < KEYS; i++)
        ck_assert_uint_le(xn_popularity_of(&p, keys[i]), 8); /* those that share a place with 42 */
    unsigned left = 0;
    for (int i = 0; i < KEYS; i++)
        left += xn_popularity_of(&p, keys[i]);
    ck_assert_uint_le(left, KEYS / 4);
    xn_popularity_clear(&p);
}
END_TEST

/* ---- keys and what is computed of them ---- */

enum { OWNERS = 3, PROBLEMS = 3, TENANTS = 2, POOLS = 2, CONTENTS = 25 };

static xn_metrics *metrics;
static xn_response_cache *cache;
static xn_response_owner *owners[OWNERS];
static xn_problem problems[PROBLEMS];

static void make_problems(void) {
    for (int i = 0; i < PROBLEMS; i++) {
        const xn_shape input = {4, {1, 1, 8, 8}};
        const xn_weights_shape weights = {.dims = {1, 1, 3, 3}, .datatype = XN_FP32};
        const xn_conv_limits limits = {1 << 20, 1 << 20, 1 << 30};
        xn_conv_params params;
        xn_conv conv;
        int64_t images;
        xn_error error;
        xn_conv_params_default(&params);
        params.padding[0] = params.padding[1] = params.padding[2] = params.padding[3] = 1;
        params.pad_value = i - 1; /* nothing else: the sizes are the same */
        ck_assert(
            !xn_conv_resolve(&params, XN_FP32, &input, &weights, &limits, &conv, &images, &error));
        xn_problem_of_conv(&conv, &problems[i]);
    }
}

static void open_cache(size_t limit, xn_response_hash_fn *hash) {
    const char *const devices[] = {"cpu"};
    xn_error error;
    ck_assert(!xn_metrics_create(devices, 1, "test", "cpu", &metrics, &error));
    ck_assert(!xn_response_cache_create(limit, hash, metrics, &cache, &error));
    make_problems();
    for (int i = 0; i < OWNERS; i++) {
        owners[i] = xn_mem_zalloc(1, sizeof *owners[i]);
        owners[i]->cache = cache;
    }
}

static void close_cache(void) {
    for (int i = 0; i < OWNERS; i++) {
        xn_response_owner_retire(owners[i]);
        xn_mem_free(owners[i]);
    }
    ck_assert_int_eq(xn_metrics_gauge(metrics, XN_GAUGE_RESPONSE_CACHE_ENTRIES), 0);
    xn_response_cache_free(cache);
    xn_metrics_free(metrics);
}

static int64_t gauge(xn_gauge which) {
    return xn_metrics_gauge(metrics, which);
}

static int64_t counter(const char *name) {
    size_t length;
    char line[80], *page = xn_metrics_render(metrics, &length);
    ck_assert_ptr_nonnull(page);
    snprintf(line, sizeof line, "\nxnord_response_cache_%s ", name);
    const char *at = strstr(page, line);
    ck_assert_ptr_nonnull(at);
    const long long value = strtoll(at + strlen(line), NULL, 10);
    xn_mem_free(page);
    return value;
}

/* A key, all of it. */
typedef struct {
    int owner, problem, tenant, pool, content, images;
} name;

typedef struct {
    name name;
    xn_response_key key;
    unsigned char *input, *expected, *got;
    size_t output_bytes;
} question;

/* Contents differ in one bit, anywhere, or in their length. */
static void write_input(unsigned char *at, size_t bytes, int content) {
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(i * 7);
    if (!bytes)
        return;
    const size_t bit = (size_t)content * 2654435761U % (bytes * 8);
    at[bit / 8] ^= (unsigned char)(1 << bit % 8);
}

/* Tells every part of the name. */
static void write_output(unsigned char *at, size_t bytes, const name *n) {
    for (size_t i = 0; i < bytes; i++) {
        const int part[] = {n->owner, n->problem, n->tenant, n->pool, n->content, n->images};
        at[i] = (unsigned char)(part[i % 6] + (int)(i / 6));
    }
}

static question ask_for(name n) {
    question q = {.name = n};
    const xn_problem *problem = &problems[n.problem];
    const size_t bytes = (size_t)n.images * xn_problem_input_bytes(problem);
    q.output_bytes = (size_t)n.images * xn_problem_output_bytes(problem);
    q.input = xn_mem_alloc(bytes);
    q.expected = xn_mem_alloc(q.output_bytes);
    q.got = xn_mem_zalloc(1, q.output_bytes);
    write_input(q.input, bytes, n.content);
    write_output(q.expected, q.output_bytes, &n);
    q.key = (xn_response_key){.owner = owners[n.owner],
                              .problem = problem,
                              .tenant = (uint64_t)n.tenant,
                              .pool = n.pool,
                              .input = q.input,
                              .input_bytes = bytes};
    return q;
}

static void drop(question *q) {
    xn_mem_free(q->input);
    xn_mem_free(q->expected);
    xn_mem_free(q->got);
}

static bool get(question *q, xn_response_probe *probe) {
    xn_response_origin origin = {-1, XN_PRECISION_FP32};
    memset(q->got, 0xee, q->output_bytes);
    if (!xn_response_cache_get(cache, &q->key, q->got, q->output_bytes, &origin, probe))
        return false;
    ck_assert_mem_eq(q->got, q->expected, q->output_bytes);
    ck_assert_int_eq(origin.device, q->name.pool + 5);
    ck_assert_int_eq(origin.precision, XN_PRECISION_FP16);
    return true;
}

static bool put(const question *q, const xn_response_probe *probe, int64_t run_ns) {
    const xn_response_origin origin = {q->name.pool + 5, XN_PRECISION_FP16};
    return xn_response_cache_put(cache, &q->key, probe, q->expected, q->output_bytes, &origin,
                                 run_ns);
}

typedef enum { HIT, KEPT, NOT_KEPT } result;

static result ask(name n, int64_t run_ns) {
    question q = ask_for(n);
    xn_response_probe probe;
    const result r = get(&q, &probe) ? HIT : put(&q, &probe, run_ns) ? KEPT : NOT_KEPT;
    drop(&q);
    return r;
}

/* ---- against an account of what was put ---- */

static uint64_t hash_to_nothing(const xn_hash_key *key, const xn_hash_part *parts, size_t count) {
    (void)key;
    (void)parts;
    (void)count;
    return 7;
}

/* Equal in the bits that choose a bucket, and in all but four values. */
static uint64_t hash_to_little(const xn_hash_key *key, const xn_hash_part *parts, size_t count) {
    return (xn_keyed_hash(key, parts, count) & 3) << 60;
}

static int number_of(const name *n) {
    return ((((n->owner * PROBLEMS + n->problem) * TENANTS + n->tenant) * POOLS + n->pool) *
                CONTENTS +
            n->content) *
               3 +
           n->images - 1;
}
enum { NAMES = OWNERS * PROBLEMS * TENANTS * POOLS * CONTENTS * 3 };

typedef struct {
    bool may_be_there[NAMES]; /* was put, and not taken away since */
    int64_t removed;          /* by retire, clear */
} account;

static name random_name(xn_rng *rng) {
    return (name){(int)xn_rng_below(rng, OWNERS),
                  (int)xn_rng_below(rng, PROBLEMS),
                  (int)xn_rng_below(rng, TENANTS),
                  (int)xn_rng_below(rng, POOLS),
                  (int)(xn_rng_below(rng, CONTENTS) * xn_rng_below(rng, CONTENTS) / CONTENTS),
                  1 + (int)xn_rng_below(rng, 3)};
}

static void forget_owner(account *a, int owner) {
    const int64_t before = gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES);
    xn_response_owner_retire(owners[owner]);
    a->removed += before - gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES);
    for (int i = 0; i < NAMES / OWNERS; i++)
        a->may_be_there[owner * (NAMES / OWNERS) + i] = false;
    xn_mem_free(owners[owner]); /* the next has another address, or the same: both must do */
    owners[owner] = xn_mem_zalloc(1, sizeof *owners[owner]);
    owners[owner]->cache = cache;
}

static void one_step(account *a, xn_rng *rng) {
    const uint64_t what = xn_rng_below(rng, 1000);
    if (what == 0) {
        a->removed += gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES);
        xn_response_cache_clear(cache);
        memset(a->may_be_there, 0, sizeof a->may_be_there);
    } else if (what == 1) {
        const bool any = gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES) > 0;
        ck_assert_int_eq(xn_response_cache_trim(cache), any);
        memset(a->may_be_there, 0, sizeof a->may_be_there);
    } else if (what == 2) {
        forget_owner(a, (int)xn_rng_below(rng, OWNERS));
    } else {
        const name n = random_name(rng);
        bool *there = &a->may_be_there[number_of(&n)];
        const result r = ask(n, long_ns + (int64_t)xn_rng_below(rng, 1000));
        if (r == HIT)
            ck_assert(*there);
        if (*there && r != HIT)
            ck_assert_int_gt(counter("evictions_total"), 0); /* nothing goes by itself */
        *there = r != NOT_KEPT;
    }
}

static int64_t count_there(const account *a) {
    int64_t there = 0;
    for (int i = 0; i < NAMES; i++) {
        const int rest = i / 3;
        const name n = {rest / CONTENTS / POOLS / TENANTS / PROBLEMS,
                        rest / CONTENTS / POOLS / TENANTS % PROBLEMS,
                        rest / CONTENTS / POOLS % TENANTS,
                        rest / CONTENTS % POOLS,
                        rest % CONTENTS,
                        i % 3 + 1};
        question q = ask_for(n);
        xn_response_probe probe;
        const bool hit = get(&q, &probe);
        ck_assert(!hit || a->may_be_there[i]);
        there += hit;
        drop(&q);
    }
    return there;
}

static const struct {
    size_t limit;
    xn_response_hash_fn *hash;
    int steps;
} runs[] = {
    {16 * MIB, NULL, 6000},
    {128 * KIB, NULL, 6000},
    {32 * KIB, NULL, 3000},
    {16 * MIB, hash_to_nothing, 3000},
    {16 * MIB, hash_to_little, 3000},
    {128 * KIB, hash_to_little, 3000},
    {1, NULL, 300},
};

START_TEST(never_wrong_never_over) {
    const size_t limit = runs[_i].limit;
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    account a = {0};
    open_cache(limit, runs[_i].hash);
    const int64_t empty = gauge(XN_GAUGE_RESPONSE_CACHE_BYTES);
    for (int i = 0; i < runs[_i].steps; i++) {
        one_step(&a, &rng);
        const int64_t bytes = gauge(XN_GAUGE_RESPONSE_CACHE_BYTES);
        ck_assert(bytes <= (int64_t)limit || bytes == empty);
    }
    const int64_t entries = gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES);
    const int64_t inserted = counter("insertions_total");
    ck_assert_int_eq(entries, inserted - counter("evictions_total") - a.removed);
    ck_assert_int_eq(entries, count_there(&a));
    ck_assert(limit < MIB / 8 || inserted > 0);
    ck_assert(runs[_i].hash || limit < 64 * KIB || counter("hits_total") > runs[_i].steps / 20);
    xn_response_cache_clear(cache);
    ck_assert_int_eq(gauge(XN_GAUGE_RESPONSE_CACHE_BYTES), empty);
    close_cache();
}
END_TEST

/* ---- what is kept ---- */

START_TEST(every_part_of_the_key_counts) {
    static const name base = {0, 0, 0, 0, 0, 1};
    name others[] = {base, base, base, base, base, base};
    open_cache(16 * MIB, _i ? hash_to_nothing : NULL);
    others[0].owner = others[1].problem = others[2].tenant = others[3].pool = others[4].content = 1;
    others[5].images = 2;
    ck_assert_int_eq(ask(base, long_ns), KEPT);
    for (int i = 0; i < 6; i++) { /* those in whose input's bytes alone they differ collide */
        ck_assert_int_eq(ask(others[i], long_ns), _i && i == 4 ? NOT_KEPT : KEPT);
        ck_assert_int_eq(ask(others[i], long_ns), _i && i == 4 ? NOT_KEPT : HIT);
    }
    ck_assert_int_eq(ask(base, long_ns), HIT);
    close_cache();
}
END_TEST

/* With room for about 100: those that are asked for again and again stay, whatever else comes. */
START_TEST(a_scan_does_not_empty_it) {
    int hot_hits = 0, kept = 0;
    open_cache(128 * KIB, NULL);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 20; i++)
            ask((name){.content = i, .images = 1}, long_ns);
    for (int i = 0; i < 1500; i++) {
        const name once = {1 + i % 2, i / 2 % 3, i / 6 % 2, i / 12 % 2, i / 24, 1};
        kept += ask(once, long_ns) == KEPT;
        if (i % 10 == 0)
            hot_hits += ask((name){.content = i / 10 % 20, .images = 1}, long_ns) == HIT;
    }
    ck_assert_int_ge(hot_hits, 149);
    ck_assert_int_lt(kept, 750); /* and most of them are not copied */
    close_cache();
}
END_TEST

/* What many ask for comes in although all is full of what was asked for once. */
START_TEST(what_is_asked_for_again_comes_in) {
    open_cache(64 * KIB, NULL);
    for (int i = 0; i < 400; i++)
        ask((name){1, i % 3, 0, 0, i / 3, 1}, long_ns);
    ck_assert_int_gt(counter("insertions_total"), 20);
    const name wanted = {0, 0, 0, 0, 0, 3};
    int asked = 0;
    while (ask(wanted, long_ns) != HIT && asked < 40)
        asked++;
    ck_assert_int_le(asked, 20);
    ck_assert_int_gt(counter("evictions_total"), 0);
    close_cache();
}
END_TEST

/* Of two owners whose images cost a millisecond and a tenth of one, the dear ones stay. */
START_TEST(dear_ones_outweigh_cheap_ones) {
    int dear = 0, cheap = 0;
    xn_rng rng = {xn_test_seed()};
    open_cache(64 * KIB, NULL);
    for (int i = 0; i < 4000; i++) {
        const int owner = (int)xn_rng_below(&rng, 2);
        const result r =
            ask((name){owner, 0, 0, 0, (int)xn_rng_below(&rng, 200), 1}, owner ? 1000000 : 100000);
        if (i > 1000)
            *(owner ? &dear : &cheap) += r == HIT;
    }
    ck_assert_int_gt(dear, 2 * cheap);
    close_cache();
}
END_TEST

START_TEST(what_does_not_pay_is_not_kept) {
    open_cache(16 * MIB, NULL);
    /* 1.4 MB of input and output would take longer to compare and copy than to compute in 1 us. */
    ck_assert_int_eq(ask((name){.images = 2700}, 1000), NOT_KEPT);
    ck_assert_int_eq(ask((name){.owner = 1, .images = 2700}, long_ns), KEPT);
    close_cache();
}
END_TEST

START_TEST(large_ones_are_neither_kept_nor_hashed) {
    open_cache(128 * KIB, NULL);
    const int images = 128 / 8 * 1024 / 512; /* input and output together: an eighth and more */
    question q = ask_for((name){.images = images});
    xn_response_probe probe = {.asked = true};
    ck_assert(!get(&q, &probe));
    ck_assert(!probe.asked);
    ck_assert(!put(&q, &probe, long_ns));
    ck_assert_int_eq(counter("bypassed_total"), 1);
    ck_assert_int_eq(counter("misses_total"), 0);
    drop(&q);
    close_cache();
}
END_TEST

/* What was being computed while the cache was cleared, its owner retired, the pool changed, or
 * another put the same, does not come in. */
START_TEST(late_ones_are_not_kept) {
    open_cache(16 * MIB, NULL);
    question q = ask_for((name){.images = 1});
    xn_response_probe probe;
    ck_assert(!get(&q, &probe));
    xn_response_cache_clear(cache);
    ck_assert(!put(&q, &probe, long_ns));
    ck_assert(!get(&q, &probe));
    q.key.pool = 1;
    ck_assert(!put(&q, &probe, long_ns));
    q.key.pool = 0;
    ck_assert(put(&q, &probe, long_ns));
    ck_assert(!put(&q, &probe, long_ns));
    xn_response_owner_retire(owners[0]);
    ck_assert_int_eq(gauge(XN_GAUGE_RESPONSE_CACHE_ENTRIES), 0);
    ck_assert(!get(&q, &probe));
    ck_assert(!put(&q, &probe, long_ns));
    ck_assert_int_eq(counter("insertions_total"), 1);
    ck_assert_int_eq(counter("evictions_total"), 0);
    xn_response_owner nothing = {0};
    xn_response_owner_retire(&nothing); /* without a cache */
    drop(&q);
    close_cache();
}
END_TEST

START_TEST(every_allocation_fails) {
    static atomic_int countdown;
    const char *const devices[] = {"cpu"};
    xn_error error;
    ck_assert(!xn_metrics_create(devices, 1, "test", "cpu", &metrics, &error));
    xn_mem_set_hook(xn_test_count_down, &countdown);
    for (int i = 0;; i++) {
        countdown = i;
        const xn_status status = xn_response_cache_create(MIB, NULL, metrics, &cache, &error);
        countdown = -1;
        if (status == XN_OK)
            break;
        ck_assert_int_eq(status, XN_ERR_NO_MEMORY);
        ck_assert_int_lt(i, 10);
    }
    xn_response_cache_free(cache);
    xn_metrics_free(metrics);

    open_cache(MIB, NULL);
    const int64_t empty = gauge(XN_GAUGE_RESPONSE_CACHE_BYTES);
    question q = ask_for((name){.images = 1});
    xn_response_probe probe;
    countdown = 0;
    ck_assert(!get(&q, &probe));
    ck_assert(!put(&q, &probe, long_ns));
    countdown = -1;
    ck_assert_int_eq(gauge(XN_GAUGE_RESPONSE_CACHE_BYTES), empty);
    ck_assert(put(&q, &probe, long_ns));
    countdown = 0;
    ck_assert(get(&q, &probe)); /* a hit takes none */
    countdown = -1;
    drop(&q);
    close_cache();
    xn_mem_set_hook(NULL, NULL);
}
END_TEST

/* ---- many threads ---- */

enum { THREADS = 6, STEPS = 1500 };
static atomic_bool over;

static void *use(void *seed) {
    xn_rng rng = {(uint64_t)(uintptr_t)seed};
    for (int i = 0; i < STEPS; i++) {
        name n = random_name(&rng);
        n.owner = (int)xn_rng_below(&rng, 2); /* the last one is retired meanwhile */
        n.content %= 8;
        ask(n, long_ns);
        if (xn_rng_below(&rng, 200) == 0)
            xn_response_cache_clear(cache);
        if (xn_rng_below(&rng, 200) == 0)
            xn_response_cache_trim(cache);
        if (gauge(XN_GAUGE_RESPONSE_CACHE_BYTES) > (int64_t)(64 * KIB))
            over = true;
    }
    return NULL;
}

/* An owner that comes and goes, as an asset does: nobody uses it when it goes. */
static void *come_and_go(void *seed) {
    xn_rng rng = {(uint64_t)(uintptr_t)seed};
    for (int i = 0; i < STEPS / 5; i++) {
        for (int k = 0; k < 4; k++)
            ask((name){2, 0, 0, 0, (int)xn_rng_below(&rng, 4), 1}, long_ns);
        xn_response_owner_retire(owners[2]);
        xn_mem_free(owners[2]);
        owners[2] = xn_mem_zalloc(1, sizeof *owners[2]);
        owners[2]->cache = cache;
    }
    return NULL;
}

START_TEST(threads_agree) {
    pthread_t threads[THREADS];
    open_cache(64 * KIB, _i ? hash_to_little : NULL);
    over = false;
    for (int i = 0; i < THREADS; i++)
        ck_assert(!pthread_create(&threads[i], NULL, i ? use : come_and_go,
                                  (void *)(uintptr_t)(xn_test_seed() + (uint64_t)i)));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert(!over);
    ck_assert_int_gt(counter("hits_total"), 0);
    close_cache();
}
END_TEST

XN_SUITE(response_cache) {
    Suite *s = suite_create("response_cache");
    TCase *c = tcase_create("response_cache");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, hash_is_as_defined, 0, 3);
    tcase_add_test(c, hash_has_another_key_each_time);
    tcase_add_test(c, popularity_counts_and_forgets);
    tcase_add_loop_test(c, never_wrong_never_over, 0, (int)(sizeof runs / sizeof *runs));
    tcase_add_loop_test(c, every_part_of_the_key_counts, 0, 2);
    tcase_add_test(c, a_scan_does_not_empty_it);
    tcase_add_test(c, what_is_asked_for_again_comes_in);
    tcase_add_test(c, dear_ones_outweigh_cheap_ones);
    tcase_add_test(c, what_does_not_pay_is_not_kept);
    tcase_add_test(c, large_ones_are_neither_kept_nor_hashed);
    tcase_add_test(c, late_ones_are_not_kept);
    tcase_add_test(c, every_allocation_fails);
    tcase_add_loop_test(c, threads_agree, 0, 2);
    suite_add_tcase(s, c);
    return s;
}
