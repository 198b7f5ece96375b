/* turns.c: see turns.h. */
#include "turns.h"

#include "../clock.h"
#include "xn_mem.h"

xn_contender xn_contender_make(const xn_bench_place *place, void (*run)(void *context),
                               void *context) {
    return (xn_contender){.place = place,
                          .timer = place->timer_make(run, context),
                          .samples = xn_bench_take(XN_BENCH_SAMPLES, sizeof(double))};
}

static void take_turn(xn_contender *s, const xn_turns *how) {
    const struct timespec pause = {0, s->place->pause_ns};
    nanosleep(&pause, NULL);
    s->place->timer_sample(s->timer);
    const int64_t end = xn_bench_now_ns() + (int64_t)(how->turn_us * 1e3);
    for (int i = 0; s->count < XN_BENCH_SAMPLES && (i < how->least || xn_bench_now_ns() < end); i++)
        s->samples[s->count++] = s->place->timer_sample(s->timer);
}

void xn_bench_turns(xn_contender *sides, int count, const xn_turns *how) {
    for (int round = 0; round < how->rounds; round++)
        for (int i = 0; i < count; i++)
            if (sides[i].place)
                take_turn(&sides[i], how);
    for (int i = 0; i < count; i++) {
        if (!sides[i].place)
            continue;
        sides[i].stats = xn_stats_of(sides[i].samples, sides[i].count);
        sides[i].place->timer_free(sides[i].timer);
        xn_mem_free(sides[i].samples);
    }
}
