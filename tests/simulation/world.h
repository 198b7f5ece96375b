/* world.h: one seed's daemon and those who use it. The world draws its limits, mixes and rates of
 * faults from the seed (swarm testing: most seeds lack most kinds of events, so that those they
 * have meet often), starts the daemon's parts with simulated devices (device.h), and lets clients,
 * faults and another writer of --weights-dir act on it as fibers (fibers.h). Then faults stop, and
 * everything must end.
 *
 *   world.c     limits, start and end, what must hold at any moment and at the end
 *   http.c      in place of server/http: the life of a request, from its headers to its answer
 *   requests.c  the table of requests: what a client sends, and what may come back
 *   faults.c    what befalls devices, memory and files */
#ifndef XN_SIM_WORLD_H
#define XN_SIM_WORLD_H

#include "engine_struct.h"
#include "fibers.h"
#include "inference.h"
#include "laws.h"
#include "service.h"
#include "xn_rng.h"

/* Names: of weights, of models that are loaded with their files, and of the model that has a folder
 * in --model-repository. */
enum { NAMES = 4, MODELS = 2, FOLDER = NAMES + MODELS, ALL_NAMES };
enum {
    ADDRESSES = 3,
    OTHERS = 1021,
    INPUTS = 300,
    BODY_BYTES = 4096,
    DECODED_BYTES = 8192,
    MODEL_BYTES = 96,    /* of model.safetensors */
    INLINE_VALUE = 9001, /* the first of inline weights; products with 1000 are exact in FP32 */
    MOMENT_NS = 200000,  /* how long inline weights are the newest */
    STATUSES = 600,
    VERSIONS = 256,
    VARIANTS = 4,
    ROUNDING = 8192, /* small programs, which workers keep, come and go */
    SLACK_NS = 1000000
};

/* How often, in percent of requests or of moments, and how long. */
typedef struct world_mix {
    int64_t duration_ns; /* how long clients come */
    int64_t pause_ns;    /* between two of a client's requests, about */
    int clients;
    unsigned by_act[32]; /* of requests, in parts of their sum */
    unsigned resets;     /* of clients that hang up */
    unsigned stalls;     /* of bodies that come slowly */
    unsigned chunked, coded;
    unsigned short_deadlines;          /* of requests */
    unsigned hangs, losses, shortages; /* of a fault's moments */
    unsigned canaries, failures, no_memory;
    unsigned disk;  /* of writes to --weights-dir that fail */
    bool large;     /* there are requests larger than a batch */
    bool populated; /* names have weights at first */
    bool folder;    /* there is a --weights-dir */
    bool files;     /* another program changes it and --model-repository */
    bool drains;    /* in the middle of it all */
} world_mix;

/* One value that a name has had, a model's or weights'; 0 is none: from the first step of the
 * simulation at which it may have been visible to the last one. No two have the same value. */
typedef struct version {
    float value;
    uint64_t first_step, last_step;
    uint64_t settled_step; /* when the change that made it had ended; 0: not yet */
    bool prepared;         /* a model: on a device */
} version;

typedef struct client {
    int number;
    xn_client *address; /* NULL: not connected */
    void *data;         /* as xn_request_connection_data */
} client;

typedef struct act act;

struct xn_request {
    xn_request *next; /* alive */
    client *by;
    const act *act;
    /* what the client sends */
    char path[64], query[128], header_length[12], body[BODY_BYTES];
    unsigned char tail[(INPUTS + 1) * sizeof(float)]; /* values behind the JSON */
    size_t length;                                    /* XN_HTTP_UNKNOWN_LENGTH: chunked */
    size_t bytes, tail_bytes;                         /* of the body; at first without its tail */
    bool coded, takes_coded, in_a_hurry;
    /* how far it is */
    int64_t started_ns, received_ns, timeout_ns;
    void *user;
    struct block *blocks;
    unsigned char *into;
    size_t allowed, received;
    pthread_mutex_t mutex; /* as that of a connection: held while `gone` is called */
    pthread_cond_t changed;
    bool suspended, resumed, gone, retained, leaving, aborted;
    xn_client *address; /* retained */
    unsigned number;
    char id[24];
    /* the answer */
    int status;
    char *answer;
    size_t answer_length;
    void (*release)(void *context);
    void *release_context;
    bool retry_after, answer_coded;
    /* what it means */
    int name;
    float value;
    version *change;                                /* that it makes */
    uint64_t since_step, received_step, asset_step; /* begun; complete; its asset was there */
    size_t elements;                                /* of input and output */
    float input[INPUTS];
    unsigned char passed[OTHERS]; /* batches of other assets while it was its asset's oldest */
};

typedef enum { JSON, OIP, SAFETENSORS, RAW, PICTURE, FORMS } form;

/* A row of the table of requests. */
struct act {
    const char *name, *method, *path; /* '*': the name's letter */
    int first, count;                 /* names that it is for; count 0: none */
    form form;
    void (*make)(xn_request *r);
    void (*check)(const xn_request *r); /* an answer of 200, 201 or 204; NULL: any will do */
};
enum { ACTS = 31, REMOVALS = 4 }; /* the last ones remove, or are wrong */
extern const act acts[ACTS];
bool act_infers(const act *of);
bool act_changes(const act *of);
const act *act_of(const char *name);

typedef struct world {
    xn_rng rng;
    world_mix mix;
    xn_config config;
    xn_service service;
    xn_engine *engine;
    xn_http_handler handler;
    version versions[ALL_NAMES][VERSIONS]; /* of weights, then of models */
    int version_count[ALL_NAMES];
    float last_value, loader[MODELS]; /* of all versions; whose load prepares a model last */
    int cpu_threads;                  /* that runs on the CPU share */
    char folder[64];
    xn_request *requests; /* alive */
    int changes;          /* begun */
    unsigned serial;      /* of requests */
    int busy;             /* fibers that act on the world */
    int connections, connecting;
    bool alone; /* one request at a time, of one name */
    bool over;  /* nothing new begins */
    bool draining, stopping, told_fatal;
    bool unloaded;             /* FOLDER, by a request: looks leave it so until its file changes */
    unsigned fail_allocations; /* in 10,000 */
    long allocations, fail_allocation; /* that one, from 1 on, fails; 0: none */
    bool fail_all_after;
    int64_t end_ns, last_ns;
    int64_t last_bytes, last_connections; /* of requests in flight; of connections */
    int counts[XN_ROUTE_COUNT][STATUSES], refused, successes;
} world;

extern world w;

/* Of all worlds so far. */
typedef struct totals {
    uint64_t seed, events, requests, runs, answers[STATUSES];
} totals;
extern totals *all;

bool world_draws(unsigned percent);
int64_t world_about(int64_t ns); /* between 0 and twice that */
float world_new_value(void);
/* Whether the value was that of weights or a model at some moment between the two. */
bool world_had(int name, float value, uint64_t since_step, uint64_t until_step);
/* FOLDER was served with that version of its file: older ones do not come back. */
void world_saw_version(float value);
/* A version that replaces the name's others, from now on at the earliest; NULL: too many. */
version *world_begin_version(int name, float value);
void world_end_versions(int name, const version *by, uint64_t begun_step);

/* http.c. The job of an inference request that has come so far; or NULL. */
xn_inference *request_work(const xn_request *r);
void client_connect(client *by);
void client_disconnect(client *by);
/* The whole life of a request, which it frees. */
void request_run(xn_request *r);
xn_request *request_new(client *by, const act *what);
/* requests.c. Whether the answer may be what it is. */
void request_judge(const xn_request *r);
void request_settle(xn_request *r); /* the change that it makes is made, or never will be */

/* Fibers; each counts in w.busy while it is there. */
void client_begin(int number);
void faults_begin(void); /* at the end all is well again, but for what is lost */
bool faults_allow(void *context, size_t bytes); /* an xn_mem_hook */
extern const char model_config[];
void model_tensors(float value, unsigned char out[MODEL_BYTES]);
/* --weights-dir and --model-repository. */
void folders_make(void);
void folders_remove(void);
void law_of_folders(void);

/* Called between steps: what must hold at any moment. */
void world_check(void);
void world_run(uint64_t seed);
/* Each allocation of one request of each kind fails, once and from it on. */
void world_allocations(uint64_t seed);

#endif
