/* gate.c: see gate.h. */
#include "gate.h"

#include "clock.h"
#include "xn_mem.h"

#include <pthread.h>

typedef struct {
    xn_gate_place *first, *last;
} line;

struct xn_gate {
    int64_t hold_ns;
    void (*open)(xn_gate_place *place);
    pthread_mutex_t lock; /* guards all below and every place; a leaf */
    int places, held;     /* places 0: no limit */
    line waiting, inside; /* in the order they came */
};

static void append(line *to, xn_gate_place *place) {
    place->next = NULL;
    place->previous = to->last;
    *(to->last ? &to->last->next : &to->first) = place;
    to->last = place;
}

static void take_out(line *from, xn_gate_place *place) {
    *(place->previous ? &place->previous->next : &from->first) = place->next;
    *(place->next ? &place->next->previous : &from->last) = place->previous;
    place->next = place->previous = NULL;
}

xn_status xn_gate_create(int places, int64_t hold_ns, void (*open)(xn_gate_place *place),
                         xn_gate **out, xn_error *error) {
    xn_gate *gate = xn_mem_zalloc(1, sizeof *gate);
    if (!gate)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the gate of requests");
    pthread_mutex_init(&gate->lock, NULL);
    gate->places = places;
    gate->hold_ns = hold_ns;
    gate->open = open;
    *out = gate;
    return XN_OK;
}

void xn_gate_free(xn_gate *gate) {
    if (!gate)
        return;
    pthread_mutex_destroy(&gate->lock);
    xn_mem_free(gate);
}

static bool has_room_locked(const xn_gate *gate) {
    return !gate->places || gate->held < gate->places;
}

static void let_in_locked(xn_gate *gate, xn_gate_place *place, int64_t now_ns) {
    gate->held++;
    place->state = XN_GATE_INSIDE;
    place->since_ns = now_ns;
    append(&gate->inside, place);
}

/* Those that may go on now, chained by next: open is for the caller to call. */
static xn_gate_place *let_in_waiting_locked(xn_gate *gate, int64_t now_ns) {
    xn_gate_place *chain = NULL, **end = &chain;
    while (gate->waiting.first && has_room_locked(gate)) {
        xn_gate_place *place = gate->waiting.first;
        take_out(&gate->waiting, place);
        let_in_locked(gate, place, now_ns);
        *end = place;
        end = &place->chained;
        *end = NULL;
    }
    return chain;
}

static void open_all(xn_gate *gate, xn_gate_place *chain) {
    while (chain) {
        xn_gate_place *next = chain->chained; /* it may be gone once it is open */
        gate->open(chain);
        chain = next;
    }
}

bool xn_gate_enter(xn_gate *gate, xn_gate_place *place) {
    pthread_mutex_lock(&gate->lock);
    bool enters = !gate->waiting.first && has_room_locked(gate);
    if (enters)
        let_in_locked(gate, place, xn_now_ns());
    pthread_mutex_unlock(&gate->lock);
    return enters;
}

void xn_gate_wait(xn_gate *gate, xn_gate_place *place) {
    pthread_mutex_lock(&gate->lock);
    place->state = XN_GATE_WAITING;
    append(&gate->waiting, place);
    xn_gate_place *chain = let_in_waiting_locked(gate, xn_now_ns());
    pthread_mutex_unlock(&gate->lock);
    open_all(gate, chain);
}

static void let_out_locked(xn_gate *gate, xn_gate_place *place) {
    take_out(&gate->inside, place);
    place->state = XN_GATE_OUTSIDE;
    gate->held--;
}

void xn_gate_leave(xn_gate *gate, xn_gate_place *place) {
    xn_gate_place *chain = NULL;
    pthread_mutex_lock(&gate->lock);
    if (place->state == XN_GATE_INSIDE) {
        let_out_locked(gate, place);
        chain = let_in_waiting_locked(gate, xn_now_ns());
    }
    pthread_mutex_unlock(&gate->lock);
    open_all(gate, chain);
}

void xn_gate_tick(xn_gate *gate, int64_t now_ns) {
    pthread_mutex_lock(&gate->lock);
    while (gate->inside.first && now_ns - gate->inside.first->since_ns > gate->hold_ns)
        let_out_locked(gate, gate->inside.first);
    xn_gate_place *chain = let_in_waiting_locked(gate, now_ns);
    pthread_mutex_unlock(&gate->lock);
    open_all(gate, chain);
}

void xn_gate_unlock(xn_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->places = 0;
    xn_gate_place *chain = let_in_waiting_locked(gate, xn_now_ns());
    pthread_mutex_unlock(&gate->lock);
    open_all(gate, chain);
}
