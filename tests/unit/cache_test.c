/* cache_test.c: the cache by content against an exact account of what was used last; what it weighs
 * and what it holds; what comes too late; threads. */
#include "cache.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

static xn_metrics *metrics;
static xn_cache *cache;
static atomic_int dropped;

static void count_drop(void *value) {
    (void)value;
    atomic_fetch_add(&dropped, 1);
}

static void open_cache(size_t limit, size_t entry_most, xn_content_hash_fn *hash) {
    const char *const devices[] = {"cpu"};
    const xn_cache_options options = {.limit_bytes = limit,
                                      .entry_bytes_max = entry_most,
                                      .drop = count_drop,
                                      .hash = hash,
                                      .bytes = XN_GAUGE_RESPONSE_CACHE_BYTES,
                                      .counts_entries = true,
                                      .entries = XN_GAUGE_RESPONSE_CACHE_ENTRIES,
                                      .evictions = XN_COUNTER_RESPONSE_CACHE_EVICTIONS};
    xn_cache_options with_metrics = options;
    xn_error error;
    atomic_store(&dropped, 0);
    ck_assert(!xn_metrics_create(devices, 1, "test", "cpu", &metrics, &error));
    with_metrics.metrics = metrics;
    ck_assert(!xn_cache_create(&with_metrics, &cache, &error));
}

static int64_t bytes(void) {
    return xn_metrics_gauge(metrics, XN_GAUGE_RESPONSE_CACHE_BYTES);
}

static int64_t entries(void) {
    return xn_metrics_gauge(metrics, XN_GAUGE_RESPONSE_CACHE_ENTRIES);
}

static void close_cache(void) {
    xn_cache_free(cache);
    xn_metrics_free(metrics);
}

/* ---- keys and values: of a number, each of its own sizes ---- */

enum { MOST = 600 };

typedef struct thing {
    unsigned char key[MOST], value[MOST];
    size_t first, second, length; /* of the key's parts, and of the value */
} thing;

/* Keys of a size differ in one bit alone. */
static thing thing_of(unsigned number) {
    thing t = {.first = 1 + number % 3, .second = 16 + number % 7 * 64, .length = number % 5 * 100};
    const size_t bit = number / 21 % ((t.first + t.second) * 8);
    for (size_t i = 0; i < t.first + t.second; i++)
        t.key[i] = (unsigned char)(i * 7);
    t.key[bit / 8] ^= (unsigned char)(1 << bit % 8);
    for (size_t i = 0; i < t.length; i++)
        t.value[i] = (unsigned char)(number + i);
    return t;
}

static xn_content key_of(const thing *t) {
    return (xn_content){{{t->key, t->first}, {t->key + t->first, t->second}}, 2};
}

static bool find(const thing *t, xn_cache_ticket *ticket) {
    const xn_content key = key_of(t);
    xn_cache_entry *entry = xn_cache_find(cache, &key, ticket);
    if (!entry)
        return false;
    ck_assert(!memcmp(xn_cache_value(entry), t->value, t->length));
    ck_assert_uint_eq((uintptr_t)xn_cache_value(entry) % 16, 0);
    xn_cache_release(cache, entry);
    return true;
}

static bool keep(const thing *t, const xn_cache_ticket *ticket, xn_cache_namespace *owner) {
    const size_t half = t->length / 2;
    const xn_content key = key_of(t),
                     value = {{{t->value, half}, {t->value + half, t->length - half}}, 2};
    return xn_cache_insert(cache, &key, ticket, &value, 0, owner);
}

/* Looks a number up and keeps it where it is not there. */
typedef enum { HIT, KEPT, NOT_KEPT } outcome;

static outcome use(unsigned number, xn_cache_namespace *owner) {
    const thing t = thing_of(number);
    xn_cache_ticket ticket;
    if (find(&t, &ticket))
        return HIT;
    return keep(&t, &ticket, owner) ? KEPT : NOT_KEPT;
}

/* ---- contents ---- */

START_TEST(every_bit_and_every_border_counts) {
    unsigned char data[300];
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)xn_rng_next(&rng);
    for (int i = 0; i < 300; i++) {
        unsigned char copy[300];
        const size_t length = 1 + xn_rng_below(&rng, sizeof data), at = xn_rng_below(&rng, length);
        const xn_content content = {{{data, at}, {data + at, length - at}}, 2};
        const xn_content_hash hash = xn_content_hash_of(&content, 1);
        const xn_content same = xn_content_copy(&content, copy);
        ck_assert(xn_content_equal(&content, &same));
        xn_content_hash other = xn_content_hash_of(&same, 1);
        ck_assert(hash.low == other.low && hash.high == other.high);
        other = xn_content_hash_of(&same, 2);
        ck_assert(hash.low != other.low && hash.high != other.high);
        copy[xn_rng_below(&rng, length)] ^= (unsigned char)(1 << xn_rng_below(&rng, 8));
        ck_assert(!xn_content_equal(&content, &same));
        other = xn_content_hash_of(&same, 1);
        ck_assert(hash.low != other.low && hash.high != other.high);
        const xn_content moved = {{{data, at + 1}, {data + at + 1, length - at - 1}}, 2};
        ck_assert(!xn_content_equal(&content, &moved));
        other = xn_content_hash_of(&moved, 1);
        ck_assert(hash.low != other.low && hash.high != other.high);
    }
}
END_TEST

/* ---- the least recently used leaves ---- */

/* What must be there: numbers, the most recently used first, each with what it counts for. */
typedef struct account {
    unsigned numbers[1000];
    int64_t weights[1000];
    int count;
    int64_t bytes;
} account;

static int place_of(const account *a, unsigned number) {
    int at = 0;
    while (at < a->count && a->numbers[at] != number)
        at++;
    return at;
}

static void put_first(account *a, int at, unsigned number, int64_t weight) {
    memmove(a->numbers + 1, a->numbers, (size_t)at * sizeof *a->numbers);
    memmove(a->weights + 1, a->weights, (size_t)at * sizeof *a->weights);
    a->numbers[0] = number;
    a->weights[0] = weight;
}

static void use_exactly(account *a, unsigned number, int64_t weight, int64_t limit) {
    const int at = place_of(a, number);
    ck_assert_int_eq(use(number, NULL), at < a->count ? HIT : KEPT);
    put_first(a, at, number, weight);
    if (at < a->count)
        return;
    a->count++;
    a->bytes += weight;
    while (a->bytes > limit)
        a->bytes -= a->weights[--a->count];
}

START_TEST(exactly_the_least_recently_used_leave) {
    enum { NUMBERS = 300 };
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    int64_t weights[NUMBERS];
    account a = {.count = 0};
    open_cache(64 * MIB, 64 * MIB, NULL);
    for (unsigned i = 0; i < NUMBERS; i++) { /* what each weighs */
        const int64_t before = bytes();
        ck_assert_int_eq(use(i, NULL), KEPT);
        weights[i] = bytes() - before;
    }
    close_cache();
    const size_t limit = _i * 20 * KIB + 4 * KIB;
    open_cache(limit, limit, NULL);
    const int64_t empty = a.bytes = bytes();
    for (int i = 0; i < 3000; i++) {
        const unsigned n = (unsigned)(xn_rng_below(&rng, NUMBERS) * xn_rng_below(&rng, NUMBERS));
        use_exactly(&a, n / NUMBERS, weights[n / NUMBERS], (int64_t)limit);
        ck_assert_int_eq(bytes(), a.bytes);
        ck_assert_int_eq(entries(), a.count);
    }
    xn_cache_clear(cache);
    ck_assert_int_eq(entries(), 0);
    ck_assert_int_eq(bytes(), empty);
    close_cache();
}
END_TEST

/* Many small ones leave for a large one, more than leave at a time; one that has no place at all
 * moves nothing. */
START_TEST(large_ones) {
    static unsigned char large[900 * KIB];
    const xn_content key = {{{large, sizeof large}}, 1}, value = {.count = 0};
    xn_cache_ticket ticket;
    open_cache(MIB, 2 * MIB, NULL);
    for (unsigned i = 0; i < 2000; i++)
        ck_assert_int_ne(use(i, NULL), NOT_KEPT);
    const int64_t before = entries();
    ck_assert_int_gt(before, 1000);
    ck_assert(xn_cache_fits(cache, &key, 0) && !xn_cache_fits(cache, &key, 120 * KIB));
    ck_assert_ptr_null(xn_cache_find(cache, &key, &ticket));
    ck_assert(!xn_cache_insert(cache, &key, &ticket, &value, 120 * KIB, NULL));
    ck_assert_int_eq(entries(), before);
    ck_assert(xn_cache_insert(cache, &key, &ticket, &value, 0, NULL));
    ck_assert_int_lt(entries(), before / 2);
    ck_assert_int_le(bytes(), (int64_t)MIB);
    close_cache();
}
END_TEST

/* ---- what it weighs ---- */

/* The memory that malloc took, against what was counted. */
START_TEST(entries_count_for_what_they_weigh) {
    enum { COUNT = 5000 };
    static unsigned char data[4096];
    const size_t length = (size_t[]){0, 16, 100, 333, 1000, 4000}[_i];
    open_cache(64 * MIB, MIB, NULL);
    const int64_t counted = bytes();
    const struct mallinfo2 before = mallinfo2();
    for (uint32_t i = 0; i < COUNT; i++) {
        const xn_content key = {{{&i, sizeof i}, {data, length / 2}}, 2},
                         value = {{{data, length - length / 2}}, 1};
        xn_cache_ticket ticket;
        ck_assert_ptr_null(xn_cache_find(cache, &key, &ticket));
        ck_assert(xn_cache_insert(cache, &key, &ticket, &value, 0, NULL));
    }
    const struct mallinfo2 after = mallinfo2();
    const double taken =
        (double)(after.arena + after.hblkhd) - (double)(before.arena + before.hblkhd);
    ck_assert_double_le(taken, 1.1 * (double)(bytes() - counted) + 256 * (double)KIB);
    close_cache();
}
END_TEST

/* A reader's entry stays whole, and counts, until it is released; meanwhile there is no room. */
START_TEST(held_entries_count) {
    open_cache(4 * KIB, 4 * KIB, NULL);
    const int64_t empty = bytes();
    const thing t = thing_of(69); /* of the largest */
    const xn_content key = key_of(&t);
    xn_cache_ticket ticket;
    ck_assert_int_eq(use(69, NULL), KEPT);
    const int64_t one = bytes() - empty;
    xn_cache_entry *held = xn_cache_find(cache, &key, &ticket);
    ck_assert_ptr_nonnull(held);
    xn_cache_clear(cache);
    ck_assert_int_eq(entries(), 0);
    ck_assert_int_eq(bytes(), empty + one);
    ck_assert(!find(&t, &ticket));
    for (unsigned i = 0; i < 200; i++) {
        use(i, NULL);
        ck_assert_int_le(bytes(), (int64_t)(4 * KIB));
    }
    static unsigned char rest[4 * KIB];
    const size_t room = 4 * KIB - (size_t)empty - (size_t)one;
    const xn_content big = {{{rest, room}}, 1}, nothing = {.count = 0};
    ck_assert_ptr_null(xn_cache_find(cache, &big, &ticket));
    ck_assert(!xn_cache_insert(cache, &big, &ticket, &nothing, 0, NULL));
    ck_assert_int_eq(bytes(), empty + one); /* all others left for it, in vain */
    ck_assert(!memcmp(xn_cache_value(held), t.value, t.length));
    const int before = atomic_load(&dropped);
    xn_cache_release(cache, held);
    ck_assert_int_eq(bytes(), empty);
    ck_assert_int_eq(atomic_load(&dropped), before + 1);
    close_cache();
}
END_TEST

/* ---- collisions ---- */

static xn_content_hash hash_to_nothing(const xn_content *content, uint64_t seed) {
    (void)content;
    return (xn_content_hash){seed, 7};
}

/* Equal in the bits that choose a bucket. */
static xn_content_hash hash_to_a_bucket(const xn_content *content, uint64_t seed) {
    xn_content_hash hash = xn_content_hash_of(content, seed);
    hash.low &= ~(uint64_t)0xffffffff;
    return hash;
}

START_TEST(one_of_two_with_a_hash_is_kept) {
    const thing first = thing_of(1), second = thing_of(22); /* but for a bit the same */
    xn_cache_ticket ticket;
    open_cache(MIB, MIB, hash_to_nothing);
    ck_assert_uint_eq(first.second, second.second);
    ck_assert_int_eq(use(1, NULL), KEPT);
    ck_assert(!find(&second, &ticket));
    ck_assert(!keep(&second, &ticket, NULL));
    ck_assert(find(&first, &ticket));
    close_cache();
    open_cache(MIB, MIB, hash_to_a_bucket);
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < 100; i++)
            ck_assert_int_eq(use(i, NULL), round ? HIT : KEPT);
    xn_cache_clear(cache);
    close_cache();
}
END_TEST

/* ---- the lock ---- */

static unsigned char *trap;
static pthread_t other;
static sem_t other_goes, other_done;
static atomic_int trapped;

static void *use_another(void *unused) {
    (void)unused;
    while (sem_wait(&other_goes))
        ;
    use(5, NULL);
    sem_post(&other_done);
    return NULL;
}

/* In the middle of the comparison: another thread must get the lock. */
static void on_trap(int signal_number) {
    const char late[] = "compared under the lock\n";
    struct timespec end;
    (void)signal_number;
    mprotect(trap, 4096, PROT_READ | PROT_WRITE);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    sem_post(&other_goes);
    if (atomic_fetch_add(&trapped, 1) || sem_timedwait(&other_done, &end)) {
        if (write(STDERR_FILENO, late, sizeof late - 1))
            _exit(1);
        _exit(1);
    }
}

/* The key lies where reading it traps, and the hash does not read it. */
START_TEST(comparing_holds_no_lock) {
    xn_cache_ticket ticket;
    xn_content key, value = {.count = 0};
    struct sigaction action = {.sa_handler = on_trap}, before;
    sem_init(&other_goes, 0, 0);
    sem_init(&other_done, 0, 0);
    atomic_store(&trapped, 0);
    trap = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(trap, MAP_FAILED);
    open_cache(MIB, MIB, hash_to_nothing);
    key = (xn_content){{{trap, 4096}}, 1};
    ck_assert_ptr_null(xn_cache_find(cache, &key, &ticket));
    ck_assert(xn_cache_insert(cache, &key, &ticket, &value, 0, NULL));
    ck_assert(!pthread_create(&other, NULL, use_another, NULL));
    ck_assert(!sigaction(SIGSEGV, &action, &before));
    ck_assert(!mprotect(trap, 4096, PROT_NONE));
    xn_cache_entry *entry = xn_cache_find(cache, &key, &ticket);
    ck_assert(!sigaction(SIGSEGV, &before, NULL));
    ck_assert_ptr_nonnull(entry);
    ck_assert_int_eq(atomic_load(&trapped), 1);
    pthread_join(other, NULL);
    xn_cache_release(cache, entry);
    close_cache();
    munmap(trap, 4096);
    sem_destroy(&other_done);
}
END_TEST

/* ---- owners, and what comes too late ---- */

START_TEST(owners_take_theirs_along) {
    enum { OWNERS = 3, NUMBERS = 900 };
    xn_cache_namespace owners[OWNERS], none;
    open_cache(16 * MIB, MIB, NULL);
    const int64_t empty = bytes();
    for (int i = 0; i < OWNERS; i++)
        xn_cache_namespace_init(&owners[i], cache);
    for (unsigned i = 0; i < NUMBERS; i++)
        ck_assert_int_eq(use(i, &owners[i % OWNERS]), KEPT);
    xn_cache_namespace_retire(&owners[1]); /* more than leave at a time */
    ck_assert_int_eq(entries(), NUMBERS / OWNERS * 2);
    for (unsigned i = 0; i < NUMBERS; i++)
        ck_assert_int_eq(use(i, &owners[i % OWNERS]), i % OWNERS == 1 ? NOT_KEPT : HIT);
    xn_cache_namespace_retire(&owners[1]);
    xn_cache_namespace_retire(&owners[0]);
    xn_cache_namespace_retire(&owners[2]);
    ck_assert_int_eq(bytes(), empty);
    xn_cache_namespace_init(&none, NULL); /* without a cache */
    xn_cache_namespace_retire(&none);
    close_cache();
}
END_TEST

/* What was made while the cache was cleared, its owner retired, or another thread kept the same. */
START_TEST(late_ones_are_not_kept) {
    const thing t = thing_of(3);
    xn_cache_namespace owner;
    xn_cache_ticket ticket, second;
    open_cache(MIB, MIB, NULL);
    xn_cache_namespace_init(&owner, cache);
    ck_assert(!find(&t, &ticket));
    xn_cache_clear(cache);
    ck_assert(!keep(&t, &ticket, &owner));
    ck_assert(!find(&t, &ticket) && !find(&t, &second));
    ck_assert(keep(&t, &ticket, &owner) && !keep(&t, &second, &owner));
    xn_cache_namespace_retire(&owner);
    ck_assert(!find(&t, &ticket) && !keep(&t, &ticket, &owner));
    ck_assert_int_eq(entries(), 0);
    ck_assert_int_eq(atomic_load(&dropped), 1);
    close_cache();
}
END_TEST

START_TEST(every_allocation_fails) {
    static atomic_int countdown;
    const xn_cache_options options = {.limit_bytes = MIB, .entry_bytes_max = MIB};
    const thing t = thing_of(3);
    xn_cache_ticket ticket;
    xn_cache *none = NULL;
    xn_error error;
    open_cache(MIB, MIB, NULL);
    const int64_t empty = bytes();
    xn_mem_set_hook(xn_test_count_down, &countdown);
    countdown = 0;
    ck_assert_int_eq(xn_cache_create(&options, &none, &error), XN_ERR_NO_MEMORY);
    countdown = 0;
    ck_assert(!find(&t, &ticket));
    ck_assert(!keep(&t, &ticket, NULL));
    countdown = -1;
    ck_assert_int_eq(bytes(), empty);
    ck_assert(keep(&t, &ticket, NULL));
    countdown = 0;
    ck_assert(find(&t, &ticket)); /* a hit takes none */
    countdown = -1;
    xn_mem_set_hook(NULL, NULL);
    close_cache();
}
END_TEST

/* ---- many threads ---- */

enum { THREADS = 6, STEPS = 3000 };
static atomic_bool over;

static void *use_many(void *seed) {
    xn_rng rng = {(uint64_t)(uintptr_t)seed};
    for (int i = 0; i < STEPS; i++) {
        use((unsigned)xn_rng_below(&rng, 40), NULL);
        if (xn_rng_below(&rng, 300) == 0)
            xn_cache_clear(cache);
        if (bytes() > (int64_t)(8 * KIB))
            atomic_store(&over, true);
    }
    return NULL;
}

/* An owner that comes and goes, as an asset does: no thread uses it when it goes. */
static void *come_and_go(void *seed) {
    xn_rng rng = {(uint64_t)(uintptr_t)seed};
    for (int i = 0; i < STEPS / 5; i++) {
        xn_cache_namespace *owner = xn_mem_alloc(sizeof *owner);
        xn_cache_namespace_init(owner, cache);
        for (int k = 0; k < 4; k++)
            use(100 + (unsigned)xn_rng_below(&rng, 20), owner);
        xn_cache_namespace_retire(owner);
        xn_mem_free(owner);
    }
    return NULL;
}

/* A cache of some ten entries: most of them leave while another thread reads them. */
START_TEST(threads_agree) {
    pthread_t threads[THREADS];
    open_cache(8 * KIB, 8 * KIB, _i ? hash_to_a_bucket : NULL);
    const int64_t empty = bytes();
    atomic_store(&over, false);
    for (int i = 0; i < THREADS; i++)
        ck_assert(!pthread_create(&threads[i], NULL, i ? use_many : come_and_go,
                                  (void *)(uintptr_t)(xn_test_seed() + (uint64_t)i)));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert(!atomic_load(&over));
    xn_cache_clear(cache);
    ck_assert_int_eq(entries(), 0);
    ck_assert_int_eq(bytes(), empty);
    close_cache();
}
END_TEST

XN_SUITE(cache) {
    Suite *s = suite_create("cache");
    TCase *c = tcase_create("cache");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, every_bit_and_every_border_counts, 0, 3);
    tcase_add_loop_test(c, exactly_the_least_recently_used_leave, 0, 4);
    tcase_add_test(c, large_ones);
    if (!XN_TEST_SANITIZED) /* whose allocators are others */
        tcase_add_loop_test(c, entries_count_for_what_they_weigh, 0, 6);
    tcase_add_test(c, held_entries_count);
    tcase_add_test(c, one_of_two_with_a_hash_is_kept);
    tcase_add_test(c, comparing_holds_no_lock);
    tcase_add_test(c, owners_take_theirs_along);
    tcase_add_test(c, late_ones_are_not_kept);
    tcase_add_test(c, every_allocation_fails);
    tcase_add_loop_test(c, threads_agree, 0, 2);
    suite_add_tcase(s, c);
    return s;
}
