/* load_thread.c: a thread of bench-http load: one epoll set, its share of the connections, and
 * its share of the schedule: a Poisson process, or equal steps. A request that is due takes a free
 * connection; without one it waits for at most the client's patience. */
#include "load.h"

#include "../clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define DRAIN_NS INT64_C(5000000000) /* answers are waited for so long after the end */

static bool counts(const ol_thread *thread, int64_t due_ns) {
    return due_ns >= thread->plan->window_ns && due_ns < thread->plan->end_ns;
}

/* NULL where none is kept of that moment. */
static ol_slice *slice_of(ol_thread *thread, int64_t due_ns) {
    const ol_plan *plan = thread->plan;
    const int64_t number = plan->slice_ns ? (due_ns - plan->window_ns) / plan->slice_ns : OL_SLICES;
    return number < OL_SLICES ? &thread->counts.slices[number] : NULL;
}

/* A moment inside the window. */
static void count_due(ol_thread *thread, int64_t due_ns) {
    ol_slice *slice = slice_of(thread, due_ns);
    thread->counts.due++;
    if (slice)
        slice->due++;
}

static void count(ol_thread *thread, ol_outcome outcome, int64_t due_ns) {
    if (counts(thread, due_ns))
        thread->counts.outcomes[outcome]++;
}

/* ---- the schedule ---- */

static int64_t step_ns(ol_thread *thread) {
    const ol_plan *plan = thread->plan;
    double mean_ns = 1e9 * plan->threads / plan->rate;
    if (!plan->poisson)
        return (int64_t)mean_ns;
    double uniform = ((double)(xn_rng_next(&thread->rng) >> 11) + 0.5) / 9007199254740992.0;
    return (int64_t)(-log(uniform) * mean_ns);
}

static ol_conn *take_free(ol_thread *thread) {
    ol_conn *conn = thread->free_conns;
    if (conn)
        thread->free_conns = conn->next;
    return conn;
}

static void start(ol_thread *thread, ol_conn *conn, int64_t due_ns) {
    ol_conn_start(conn, due_ns, counts(thread, due_ns));
}

static void wait_for_connection(ol_thread *thread, int64_t due_ns) {
    if (thread->waiting_count == thread->waiting_size) {
        count(thread, OL_UNSENT, due_ns);
        return;
    }
    size_t at = (thread->waiting_first + thread->waiting_count++) % thread->waiting_size;
    thread->waiting[at] = due_ns;
}

static int64_t waiting_pop(ol_thread *thread) {
    int64_t due_ns = thread->waiting[thread->waiting_first];
    thread->waiting_first = (thread->waiting_first + 1) % thread->waiting_size;
    thread->waiting_count--;
    return due_ns;
}

/* The first of those that wait has waited longest. */
static void give_up_late(ol_thread *thread, int64_t now) {
    while (thread->waiting_count &&
           now - thread->waiting[thread->waiting_first] > thread->plan->patience_ns)
        count(thread, OL_UNSENT, waiting_pop(thread));
}

static void send_waiting(ol_thread *thread) {
    while (thread->waiting_count) {
        ol_conn *conn = take_free(thread);
        if (!conn)
            return;
        start(thread, conn, waiting_pop(thread));
    }
}

static void send_due(ol_thread *thread, int64_t now) {
    while (thread->next_due_ns <= now && thread->next_due_ns < thread->plan->end_ns) {
        int64_t due_ns = thread->next_due_ns;
        thread->next_due_ns += step_ns(thread);
        if (counts(thread, due_ns))
            count_due(thread, due_ns);
        ol_conn *conn = thread->waiting_count ? NULL : take_free(thread);
        if (!conn) {
            wait_for_connection(thread, due_ns);
            continue;
        }
        if (counts(thread, due_ns))
            xn_histogram_add(&thread->counts.late, now - due_ns);
        start(thread, conn, due_ns);
    }
}

/* Closed loop: every free connection sends at once. */
static void send_all(ol_thread *thread, int64_t now) {
    for (ol_conn *conn; now < thread->plan->end_ns && (conn = take_free(thread));) {
        if (counts(thread, now))
            count_due(thread, now);
        start(thread, conn, now);
    }
}

void ol_thread_done(ol_conn *conn, ol_outcome outcome) {
    ol_thread *thread = conn->thread;
    thread->busy--;
    conn->next = thread->free_conns;
    thread->free_conns = conn;
    if (!conn->counted)
        return;
    thread->counts.outcomes[outcome]++;
    int64_t took_ns = xn_bench_now_ns() - conn->due_ns;
    if (outcome == OL_GOOD) {
        ol_slice *slice = slice_of(thread, conn->due_ns);
        if (slice)
            slice->good++;
        xn_histogram_add(&thread->counts.good, took_ns);
        xn_histogram_add(&thread->counts.compute, conn->compute_ns);
    } else if (outcome == OL_REFUSED) {
        xn_histogram_add(&thread->counts.refused, took_ns);
    }
}

/* ---- the loop ---- */

static void poll_sockets(ol_thread *thread, int64_t now) {
    struct epoll_event events[128];
    const ol_plan *plan = thread->plan;
    int64_t until_ns = now + 1000000;
    if (plan->rate > 0 && thread->next_due_ns < until_ns && thread->next_due_ns < plan->end_ns)
        until_ns = thread->next_due_ns;
    int64_t wait_ns = until_ns > now ? until_ns - now : 0;
    struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    int count_ = epoll_pwait2(thread->epoll_fd, events, 128, &wait, NULL);
    for (int i = 0; i < count_; i++)
        ol_conn_ready(events[i].data.ptr);
}

static bool prepare(ol_thread *thread) {
    const ol_plan *plan = thread->plan;
    int conns = plan->connections / plan->threads;
    double most_waiting = plan->rate / plan->threads * ((double)plan->patience_ns / 1e9);
    thread->waiting_size = (size_t)(2 * most_waiting) + 16;
    thread->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    thread->conns = calloc((size_t)conns, sizeof *thread->conns);
    thread->scratch = malloc(OL_SCRATCH_BYTES);
    thread->waiting = calloc(thread->waiting_size, sizeof *thread->waiting);
    if (thread->epoll_fd < 0 || !thread->conns || !thread->scratch || !thread->waiting)
        return false;
    for (int i = 0; i < conns; i++) {
        ol_conn *conn = &thread->conns[i];
        *conn = (ol_conn){.thread = thread, .fd = -1, .next = thread->free_conns};
        thread->free_conns = conn;
    }
    thread->rng = (xn_rng){plan->seed * 1000003 + (uint64_t)thread->index};
    return true;
}

static void pin(const ol_thread *thread) {
    const ol_plan *plan = thread->plan;
    cpu_set_t set;
    if (!plan->cpu_count)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)plan->cpus[thread->index % plan->cpu_count], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void run(ol_thread *thread) {
    const ol_plan *plan = thread->plan;
    thread->next_due_ns = plan->start_ns + (plan->rate > 0 ? step_ns(thread) : 0);
    for (;;) {
        int64_t now = xn_bench_now_ns();
        if (now > plan->end_ns + DRAIN_NS || (now >= plan->end_ns && !thread->busy))
            return;
        if (plan->rate > 0) {
            give_up_late(thread, now);
            send_waiting(thread);
            send_due(thread, now);
        } else if (now >= plan->start_ns) {
            send_all(thread, now);
        }
        poll_sockets(thread, xn_bench_now_ns());
    }
}

void *ol_thread_main(void *argument) {
    ol_thread *thread = argument;
    int conns = thread->plan->connections / thread->plan->threads;
    pin(thread);
    if (prepare(thread))
        run(thread);
    while (thread->waiting_count)
        count(thread, OL_UNSENT, waiting_pop(thread));
    for (int i = 0; thread->conns && i < conns; i++) {
        if (thread->conns[i].state == OL_BUSY && thread->conns[i].counted)
            thread->counts.outcomes[OL_UNANSWERED]++;
        if (thread->conns[i].fd >= 0)
            close(thread->conns[i].fd);
    }
    close(thread->epoll_fd);
    free(thread->waiting);
    free(thread->scratch);
    free(thread->conns);
    return NULL;
}
