/* world.h: one seed's daemon and those who use it. The world draws its limits, mixes and rates of
 * faults from the seed (swarm testing: most seeds lack most kinds of events, so that those they
 * have meet often), makes an engine with simulated devices (device.h), and lets clients, operators
 * and faults act on it as fibers (fibers.h). Then faults stop, and everything must end. */
#ifndef XN_SIM_WORLD_H
#define XN_SIM_WORLD_H

#include "engine_struct.h"
#include "fibers.h"
#include "models.h"
#include "xn_rng.h"

enum { NAMES = 4, MODELS = 2, INLINE_WEIGHTS = 6, ADDRESSES = 3, OTHERS = 1021 };

/* How often, in percent of requests or of moments, and how long. */
typedef struct world_mix {
    int64_t duration_ns; /* how long clients come */
    int64_t pause_ns;    /* between two of a client's requests, about */
    int clients;
    unsigned by_inline, by_model;      /* of requests: weights given with it, a network */
    unsigned resets;                   /* of clients that hang up */
    unsigned stalls;                   /* of bodies that come slowly */
    unsigned short_deadlines;          /* of requests */
    unsigned changes;                  /* of an operator's moments: a put or a delete */
    unsigned hangs, losses, shortages; /* of a fault's moments */
    unsigned canaries, failures, no_memory;
    bool drains; /* in the middle of it all */
} world_mix;

/* One value that a name has had, a model's or weights'; 0 is none: from the first step of the
 * simulation at which it may have been visible to the last one. */
typedef struct version {
    float value;
    uint64_t first_step, last_step;
    uint64_t settled_step; /* a model's: when the change that made it had ended */
} version;

typedef struct request {
    struct request *next;
    xn_job job;
    xn_ticket ticket;
    xn_asset *asset;
    const xn_model *model;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    float value;         /* of its weights; of a model, its number */
    uint64_t since_step; /* when it asked for the model */
    float *input, *output;
    size_t elements; /* of each */
    bool counted, leaving, in_a_hurry;
    bool submitted, done, released, cancelled;
    bool in_call;                 /* of submit or cancel */
    int caller;                   /* the fiber of that */
    unsigned char passed[OTHERS]; /* batches of other assets while it was its asset's oldest */
} request;

typedef struct world {
    xn_rng rng;
    world_mix mix;
    xn_config config;
    xn_engine *engine;
    xn_models *models;
    xn_client *addresses[ADDRESSES];
    version versions[NAMES + MODELS][256]; /* of weights, then of models */
    int version_count[NAMES + MODELS];
    request *requests;       /* alive */
    int request_count, busy; /* fibers that act on the world */
    int entering;            /* calls of xn_ticket_enter under way */
    bool over;               /* nobody begins anything new */
    bool draining, told_fatal, short_of_memory;
    unsigned fail_allocations; /* in 10,000 */
    int64_t end_ns;
} world;

extern world w;
/* Of all worlds so far. */
enum { ANSWERS_MAX = 32 };
typedef struct totals {
    uint64_t events, runs, inline_runs, recalls;
    uint64_t answers[ANSWERS_MAX], refusals[ANSWERS_MAX]; /* by xn_status */
} totals;
extern totals *all;

bool world_draws(unsigned percent);
int64_t world_about(int64_t ns); /* between 0 and twice that */

/* Whether the value was that of weights or a model (NAMES + its number) at some moment since then.
 */
bool world_had(int name, float value, uint64_t since_step);

/* Fibers; each counts in w.busy while it is there. */
void client_begin(int number);
void operators_begin(void);
void faults_begin(void); /* at the end all is well again, but for what is lost */

/* Called between steps: what must hold at any moment. */
void world_check(void);
void world_run(uint64_t seed);

#endif
