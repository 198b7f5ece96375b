/* The limiter: order, permits, the time they are held, and random sequences from several threads.
 */
#include "clock.h"
#include "limiter.h"
#include "xn_rng.h"
#include "xn_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

enum { MOST = 16 };

typedef struct {
    xn_permit permit;
    atomic_int opened;
} holder;

static holder *order[MOST];
static int opened_count;

static void note(xn_permit *permit) {
    holder *v = (holder *)(void *)((char *)permit - offsetof(holder, permit));
    atomic_fetch_add(&v->opened, 1);
    order[opened_count++ % MOST] = v;
}

static xn_limiter *make(int permits, int64_t max_hold_ns, void (*granted)(xn_permit *)) {
    xn_limiter *limiter = NULL;
    opened_count = 0;
    ck_assert_int_eq(xn_limiter_create(permits, max_hold_ns, granted, &limiter, NULL), XN_OK);
    return limiter;
}

START_TEST(in_order_as_places_become_free) {
    holder v[5] = {{{0}, 0}};
    xn_limiter *limiter = make(2, INT64_MAX, note);
    ck_assert(xn_limiter_acquire(limiter, &v[0].permit) &&
              xn_limiter_acquire(limiter, &v[1].permit));
    for (int i = 2; i < 5; i++) {
        ck_assert(!xn_limiter_acquire(limiter, &v[i].permit));
        xn_limiter_wait(limiter, &v[i].permit);
    }
    ck_assert_int_eq(opened_count, 0);
    xn_limiter_release(limiter, &v[1].permit);
    xn_limiter_release(limiter, &v[1].permit); /* once is enough */
    ck_assert(opened_count == 1 && order[0] == &v[2]);
    xn_limiter_release(limiter, &v[0].permit);
    ck_assert(opened_count == 2 && order[1] == &v[3]);
    for (int i = 2; i < 5; i++)
        xn_limiter_release(limiter, &v[i].permit);
    ck_assert(opened_count == 3 && order[2] == &v[4]);
    ck_assert(xn_limiter_acquire(limiter, &v[0].permit)); /* and it is empty again */
    xn_limiter_release(limiter, &v[0].permit);
    xn_limiter_free(limiter);
}
END_TEST

/* A permit that becomes free between enter and wait is not missed. */
START_TEST(no_place_is_missed) {
    holder v[2] = {{{0}, 0}};
    xn_limiter *limiter = make(1, INT64_MAX, note);
    ck_assert(xn_limiter_acquire(limiter, &v[0].permit));
    ck_assert(!xn_limiter_acquire(limiter, &v[1].permit));
    xn_limiter_release(limiter, &v[0].permit);
    xn_limiter_wait(limiter, &v[1].permit);
    ck_assert_int_eq(opened_count, 1);
    xn_limiter_release(limiter, &v[1].permit);
    xn_limiter_free(limiter);
}
END_TEST

START_TEST(a_place_is_held_for_a_time) {
    holder v[3] = {{{0}, 0}};
    xn_limiter *limiter = make(1, 1000 * XN_NS_PER_S, note);
    ck_assert(xn_limiter_acquire(limiter, &v[0].permit));
    for (int i = 1; i < 3; i++)
        xn_limiter_wait(limiter, &v[i].permit);
    xn_limiter_tick(limiter, xn_now_ns());
    ck_assert_int_eq(opened_count, 0);
    xn_limiter_tick(limiter, xn_now_ns() + 1001 * XN_NS_PER_S);
    ck_assert(opened_count == 1 && order[0] == &v[1]);
    xn_limiter_release(limiter, &v[0].permit); /* has none any more: nobody comes in for it */
    ck_assert_int_eq(opened_count, 1);
    xn_limiter_lift(limiter);
    ck_assert_int_eq(opened_count, 2);
    ck_assert(xn_limiter_acquire(limiter, &v[0].permit)); /* no limit any more */
    for (int i = 0; i < 3; i++)
        xn_limiter_release(limiter, &v[i].permit);
    xn_limiter_free(limiter);
}
END_TEST

/* ---- from several threads ---- */

enum { THREADS = 6, ROUNDS = 4000, PLACES = 3 };
static atomic_int inside, most_inside;

static void come_in(void) {
    int now = atomic_fetch_add(&inside, 1) + 1, most = atomic_load(&most_inside);
    while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now))
        ;
}

static void open_for_thread(xn_permit *permit) {
    come_in();
    holder *v = (holder *)(void *)((char *)permit - offsetof(holder, permit));
    atomic_fetch_add(&v->opened, 1);
}

static void *visit(void *argument) {
    xn_limiter *limiter = argument;
    for (int i = 0; i < ROUNDS; i++) {
        holder v = {{0}, 0};
        if (xn_limiter_acquire(limiter, &v.permit)) {
            come_in();
        } else {
            xn_limiter_wait(limiter, &v.permit);
            while (!atomic_load(&v.opened))
                sched_yield();
        }
        atomic_fetch_sub(&inside, 1);
        xn_limiter_release(limiter, &v.permit);
    }
    return NULL;
}

START_TEST(many_threads) {
    pthread_t threads[THREADS];
    xn_limiter *limiter = make(PLACES, INT64_MAX, open_for_thread);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, visit, limiter), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(atomic_load(&inside), 0);
    ck_assert_int_le(atomic_load(&most_inside), PLACES);
    xn_limiter_free(limiter);
}
END_TEST

XN_SUITE(limiter) {
    Suite *s = suite_create("limiter");
    TCase *t = tcase_create("limiter");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, in_order_as_places_become_free);
    tcase_add_test(t, no_place_is_missed);
    tcase_add_test(t, a_place_is_held_for_a_time);
    tcase_add_test(t, many_threads);
    suite_add_tcase(s, t);
    return s;
}
