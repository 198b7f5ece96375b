/* The gate: order, places, the time they are held, and random sequences from several threads. */
#include "clock.h"
#include "gate.h"
#include "xn_rng.h"
#include "xn_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

enum { MOST = 16 };

typedef struct {
    xn_gate_place place;
    atomic_int opened;
} visitor;

static visitor *order[MOST];
static int opened_count;

static void note(xn_gate_place *place) {
    visitor *v = (visitor *)(void *)((char *)place - offsetof(visitor, place));
    atomic_fetch_add(&v->opened, 1);
    order[opened_count++ % MOST] = v;
}

static xn_gate *make(int places, int64_t hold_ns, void (*open)(xn_gate_place *)) {
    xn_gate *gate = NULL;
    opened_count = 0;
    ck_assert_int_eq(xn_gate_create(places, hold_ns, open, &gate, NULL), XN_OK);
    return gate;
}

START_TEST(in_order_as_places_become_free) {
    visitor v[5] = {{{0}, 0}};
    xn_gate *gate = make(2, INT64_MAX, note);
    ck_assert(xn_gate_enter(gate, &v[0].place) && xn_gate_enter(gate, &v[1].place));
    for (int i = 2; i < 5; i++) {
        ck_assert(!xn_gate_enter(gate, &v[i].place));
        xn_gate_wait(gate, &v[i].place);
    }
    ck_assert_int_eq(opened_count, 0);
    xn_gate_leave(gate, &v[1].place);
    xn_gate_leave(gate, &v[1].place); /* once is enough */
    ck_assert(opened_count == 1 && order[0] == &v[2]);
    xn_gate_leave(gate, &v[0].place);
    ck_assert(opened_count == 2 && order[1] == &v[3]);
    for (int i = 2; i < 5; i++)
        xn_gate_leave(gate, &v[i].place);
    ck_assert(opened_count == 3 && order[2] == &v[4]);
    ck_assert(xn_gate_enter(gate, &v[0].place)); /* and it is empty again */
    xn_gate_leave(gate, &v[0].place);
    xn_gate_free(gate);
}
END_TEST

/* A place that becomes free between enter and wait is not missed. */
START_TEST(no_place_is_missed) {
    visitor v[2] = {{{0}, 0}};
    xn_gate *gate = make(1, INT64_MAX, note);
    ck_assert(xn_gate_enter(gate, &v[0].place));
    ck_assert(!xn_gate_enter(gate, &v[1].place));
    xn_gate_leave(gate, &v[0].place);
    xn_gate_wait(gate, &v[1].place);
    ck_assert_int_eq(opened_count, 1);
    xn_gate_leave(gate, &v[1].place);
    xn_gate_free(gate);
}
END_TEST

START_TEST(a_place_is_held_for_a_time) {
    visitor v[3] = {{{0}, 0}};
    xn_gate *gate = make(1, 1000 * XN_NS_PER_S, note);
    ck_assert(xn_gate_enter(gate, &v[0].place));
    for (int i = 1; i < 3; i++)
        xn_gate_wait(gate, &v[i].place);
    xn_gate_tick(gate, xn_now_ns());
    ck_assert_int_eq(opened_count, 0);
    xn_gate_tick(gate, xn_now_ns() + 1001 * XN_NS_PER_S);
    ck_assert(opened_count == 1 && order[0] == &v[1]);
    xn_gate_leave(gate, &v[0].place); /* has none any more: nobody comes in for it */
    ck_assert_int_eq(opened_count, 1);
    xn_gate_unlock(gate);
    ck_assert_int_eq(opened_count, 2);
    ck_assert(xn_gate_enter(gate, &v[0].place)); /* no limit any more */
    for (int i = 0; i < 3; i++)
        xn_gate_leave(gate, &v[i].place);
    xn_gate_free(gate);
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

static void open_for_thread(xn_gate_place *place) {
    come_in();
    visitor *v = (visitor *)(void *)((char *)place - offsetof(visitor, place));
    atomic_fetch_add(&v->opened, 1);
}

static void *visit(void *argument) {
    xn_gate *gate = argument;
    for (int i = 0; i < ROUNDS; i++) {
        visitor v = {{0}, 0};
        if (xn_gate_enter(gate, &v.place)) {
            come_in();
        } else {
            xn_gate_wait(gate, &v.place);
            while (!atomic_load(&v.opened))
                sched_yield();
        }
        atomic_fetch_sub(&inside, 1);
        xn_gate_leave(gate, &v.place);
    }
    return NULL;
}

START_TEST(many_threads) {
    pthread_t threads[THREADS];
    xn_gate *gate = make(PLACES, INT64_MAX, open_for_thread);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, visit, gate), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(atomic_load(&inside), 0);
    ck_assert_int_le(atomic_load(&most_inside), PLACES);
    xn_gate_free(gate);
}
END_TEST

XN_SUITE(gate) {
    Suite *s = suite_create("gate");
    TCase *t = tcase_create("gate");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, in_order_as_places_become_free);
    tcase_add_test(t, no_place_is_missed);
    tcase_add_test(t, a_place_is_held_for_a_time);
    tcase_add_test(t, many_threads);
    suite_add_tcase(s, t);
    return s;
}
