/* queue.c: see queue.h. Every job is in its group, in order of arrival. A group exists while it
 * holds a job, and group->images is the sum over its jobs. Each is in one of two heaps: the queue's
 * of those that still wait to fill a batch, or its flow's of those that are ready; by their oldest
 * job.
 *
 * A flow is what the queue knows of an asset. Those with a ready group are in the heap `active`, by
 * virtual time. One without groups rests while it is ahead of the others, so that an asset that
 * comes back at once has not lost its debt; then it is forgotten. (An asset that comes to lie where
 * one was that rests here takes over its debt, which is a batch's work at most.) Virtual times are
 * compared by their difference: they may wrap around.
 *
 * Groups and flows that are not needed are kept for reuse, so a steady load allocates nothing. */
#include "queue.h"

#include "heap.h"
#include "work.h"
#include "xn_mem.h"

#include <assert.h>

typedef struct xn_flow {
    xn_heap_node node; /* first; in queue->active or queue->resting */
    xn_asset *asset;   /* borrowed from its jobs; only compared once it has none */
    uint64_t time_ns;  /* virtual */
    xn_heap ready;     /* those of its groups that are */
    int64_t groups;
    bool active, resting;
    bool fresh;            /* it has come, or come back, and was not active since */
    bool timed;            /* its virtual time is its own: it was active once */
    struct xn_flow *chain; /* in its hash bucket, or in the list of free flows */
} xn_flow;

typedef enum { GROUP_IDLE, GROUP_WAITING, GROUP_READY } group_state;

typedef struct xn_group {
    xn_heap_node node; /* first; in queue->waiting or flow->ready, by state */
    group_state state;
    xn_flow *flow;
    xn_problem problem;
    uint64_t hash;
    xn_job *first, *last;
    int64_t images;
    int64_t urgent;         /* jobs whose deadline is nearer than the batch delay */
    bool due;               /* its oldest job was found to have waited long enough */
    struct xn_group *chain; /* in its hash bucket, or in the list of free groups */
} xn_group;

typedef struct bucket {
    xn_group *groups;
    xn_flow *flows;
} bucket;

struct xn_queue {
    xn_batch_policy policy;
    int64_t count;
    uint64_t arrivals;
    /* Virtual: the start of the last batch, and where half of it, or of one before, is done. */
    uint64_t start_ns, middle_ns;
    xn_heap active, resting, waiting;
    size_t resting_count;
    xn_group *free_groups;
    xn_flow *free_flows;
    bucket *buckets;
    size_t bucket_mask;
};

/* ---- orders ---- */

static xn_group *group_of(const xn_heap_node *node) {
    return (xn_group *)(void *)node;
}

static xn_flow *flow_of(const xn_heap_node *node) {
    return (xn_flow *)(void *)node;
}

static bool is_later(uint64_t a, uint64_t than) {
    return (int64_t)(a - than) > 0;
}

static bool group_before(const xn_heap_node *a, const xn_heap_node *b) {
    const xn_job *i = group_of(a)->first, *k = group_of(b)->first;
    return i->submitted_ns != k->submitted_ns ? i->submitted_ns < k->submitted_ns
                                              : i->arrival < k->arrival;
}

static bool flow_before(const xn_heap_node *a, const xn_heap_node *b) {
    const xn_flow *i = flow_of(a), *k = flow_of(b);
    return i->time_ns != k->time_ns ? is_later(k->time_ns, i->time_ns)
                                    : group_before(i->ready.first, k->ready.first);
}

static bool resting_before(const xn_heap_node *a, const xn_heap_node *b) {
    return is_later(flow_of(b)->time_ns, flow_of(a)->time_ns);
}

/* ---- life ---- */

xn_status xn_queue_create(const xn_batch_policy *policy, int64_t depth, xn_queue **out,
                          xn_error *error) {
    enum { MIN_BUCKETS = 64, MAX_BUCKETS = 1 << 16 };
    size_t buckets = MIN_BUCKETS;
    while (buckets < MAX_BUCKETS && (int64_t)buckets < depth)
        buckets *= 2;
    xn_queue *queue = xn_mem_zalloc(1, sizeof *queue);
    bucket *table = xn_mem_zalloc(buckets, sizeof *table);
    if (!queue || !table) {
        xn_mem_free(queue);
        xn_mem_free(table);
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a queue of %zu groups",
                       buckets);
    }
    queue->policy = *policy;
    queue->active.before = flow_before;
    queue->resting.before = resting_before;
    queue->waiting.before = group_before;
    queue->buckets = table;
    queue->bucket_mask = buckets - 1;
    *out = queue;
    return XN_OK;
}

static void free_groups(xn_group *group) {
    while (group) {
        xn_group *next = group->chain;
        xn_mem_free(group);
        group = next;
    }
}

static void free_flows(xn_flow *flow) {
    while (flow) {
        xn_flow *next = flow->chain;
        xn_mem_free(flow);
        flow = next;
    }
}

void xn_queue_free(xn_queue *queue) {
    if (!queue)
        return;
    for (size_t i = 0; i <= queue->bucket_mask; i++) {
        free_groups(queue->buckets[i].groups);
        free_flows(queue->buckets[i].flows);
    }
    free_groups(queue->free_groups);
    free_flows(queue->free_flows);
    xn_mem_free(queue->buckets);
    xn_mem_free(queue);
}

int64_t xn_queue_count(const xn_queue *queue) {
    return queue->count;
}

xn_job *xn_queue_any(const xn_queue *queue) {
    const xn_heap_node *flow = queue->active.first;
    const xn_heap_node *group = flow ? flow_of(flow)->ready.first : queue->waiting.first;
    return group ? group_of(group)->first : NULL;
}

/* ---- the batcher: the whole policy is this function ---- */

int64_t xn_batch_wait_ns(const xn_batch_policy *policy, int64_t images, int64_t oldest_ns,
                         bool draining, int64_t now_ns) {
    if (draining || images >= policy->max_images || policy->delay_ns <= 0)
        return 0;
    /* A job stamped later than `now` has waited for nothing yet. */
    int64_t waited_ns;
    if (now_ns <= oldest_ns)
        return policy->delay_ns;
    if (__builtin_sub_overflow(now_ns, oldest_ns, &waited_ns))
        return 0;
    return waited_ns >= policy->delay_ns ? 0 : policy->delay_ns - waited_ns;
}

/* ---- flows ---- */

uint64_t xn_queue_work_ns(const xn_problem *problem, int64_t images) {
    const double most = (double)(UINT64_C(1) << 58); /* years; differences of a few fit int64 */
    double ns = xn_work_image_ns(problem) * (double)images;
    return XN_QUEUE_BATCH_NS + (uint64_t)(ns < most ? ns : most);
}

static uint64_t mix(uint64_t h) {
    h = (h ^ (h >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static xn_flow **flow_bucket(const xn_queue *queue, const xn_asset *asset) {
    return &queue->buckets[mix((uint64_t)(uintptr_t)asset) & queue->bucket_mask].flows;
}

static void flow_wake(xn_queue *queue, xn_flow *flow) {
    if (!flow->resting)
        return;
    xn_heap_remove(&queue->resting, &flow->node);
    queue->resting_count--;
    flow->resting = false;
    flow->fresh = true;
}

/* The asset's flow, made if there is none; NULL without memory. */
static xn_flow *flow_for(xn_queue *queue, xn_asset *asset) {
    xn_flow **at = flow_bucket(queue, asset);
    for (xn_flow *f = *at; f; f = f->chain)
        if (f->asset == asset) {
            flow_wake(queue, f);
            return f;
        }
    xn_flow *flow = queue->free_flows;
    if (flow)
        queue->free_flows = flow->chain;
    else
        flow = xn_mem_alloc(sizeof *flow);
    if (!flow)
        return NULL;
    *flow = (xn_flow){.asset = asset,
                      .time_ns = queue->start_ns,
                      .ready = {.before = group_before},
                      .fresh = true,
                      .chain = *at};
    *at = flow;
    return flow;
}

static void flow_forget(xn_queue *queue, xn_flow *flow) {
    xn_flow **at = flow_bucket(queue, flow->asset);
    while (*at != flow)
        at = &(*at)->chain;
    *at = flow->chain;
    flow->chain = queue->free_flows;
    queue->free_flows = flow;
}

/* The least virtual time of those that are there. */
static uint64_t least_time(const xn_queue *queue) {
    const xn_heap_node *first = queue->active.first;
    return first ? flow_of(first)->time_ns : queue->middle_ns;
}

/* Those that the others have caught up with. */
static void forget_resting(xn_queue *queue) {
    xn_heap_node *first;
    while ((first = queue->resting.first) &&
           (queue->resting_count > XN_QUEUE_RESTING ||
            !is_later(flow_of(first)->time_ns, queue->start_ns))) {
        xn_heap_remove(&queue->resting, first);
        queue->resting_count--;
        flow_forget(queue, flow_of(first));
    }
}

static void flow_rest(xn_queue *queue, xn_flow *flow) {
    flow->resting = true;
    queue->resting_count++;
    xn_heap_push(&queue->resting, &flow->node);
    forget_resting(queue);
}

/* The flow has a ready group again: where it starts. */
static void flow_enter(const xn_queue *queue, xn_flow *flow) {
    uint64_t start = least_time(queue);
    if (flow->fresh && is_later(queue->middle_ns, start)) {
        const xn_group *group = group_of(flow->ready.first);
        uint64_t half = xn_queue_work_ns(&group->problem, group->first->images) / 2;
        uint64_t passed = queue->middle_ns - start;
        start += passed < half ? passed : half;
    }
    if (!flow->timed || is_later(start, flow->time_ns))
        flow->time_ns = start;
    flow->fresh = false;
    flow->timed = true;
}

/* A flow is lifted out of the order while its groups or its virtual time change, and settled. */
static void flow_lift(xn_queue *queue, xn_flow *flow) {
    if (flow->active)
        xn_heap_remove(&queue->active, &flow->node);
}

static void flow_settle(xn_queue *queue, xn_flow *flow) {
    bool active = flow->ready.first != NULL;
    if (active && !flow->active)
        flow_enter(queue, flow);
    flow->active = active;
    if (active)
        xn_heap_push(&queue->active, &flow->node);
    else if (!flow->groups)
        flow_rest(queue, flow);
}

/* ---- groups ---- */

static xn_group **group_bucket(const xn_queue *queue, uint64_t hash) {
    return &queue->buckets[hash & queue->bucket_mask].groups;
}

static xn_group *group_find(const xn_queue *queue, const xn_job *job, uint64_t hash) {
    for (xn_group *g = *group_bucket(queue, hash); g; g = g->chain)
        if (g->hash == hash && g->flow->asset == job->asset &&
            xn_problem_equal(&g->problem, &job->problem))
            return g;
    return NULL;
}

/* The job's group, made if there is none; NULL without memory. */
static xn_group *group_for(xn_queue *queue, const xn_job *job) {
    uint64_t hash = mix(job->problem.hash ^ (uint64_t)(uintptr_t)job->asset);
    xn_group *group = group_find(queue, job, hash);
    if (group)
        return group;
    group = queue->free_groups ? queue->free_groups : xn_mem_alloc(sizeof *group);
    if (!group)
        return NULL;
    if (group == queue->free_groups)
        queue->free_groups = group->chain;
    xn_flow *flow = flow_for(queue, job->asset);
    xn_group **at = flow ? group_bucket(queue, hash) : &queue->free_groups;
    *group = (xn_group){.flow = flow, .problem = job->problem, .hash = hash, .chain = *at};
    *at = group;
    if (!flow)
        return NULL;
    flow->groups++;
    return group;
}

static void group_retire(xn_queue *queue, xn_group *group) {
    xn_group **at = group_bucket(queue, group->hash);
    while (*at != group)
        at = &(*at)->chain;
    *at = group->chain;
    group->flow->groups--;
    group->chain = queue->free_groups;
    queue->free_groups = group;
}

static group_state state_of(const xn_queue *queue, const xn_group *group) {
    if (!group->first)
        return GROUP_IDLE;
    bool ready = group->due || group->urgent > 0 || queue->policy.delay_ns <= 0 ||
                 group->images >= queue->policy.max_images;
    return ready ? GROUP_READY : GROUP_WAITING;
}

static xn_heap *heap_of(xn_queue *queue, xn_group *group) {
    return group->state == GROUP_READY ? &group->flow->ready : &queue->waiting;
}

/* Puts the group where it belongs by now; its flow is lifted. The group may be gone afterwards. */
static void group_move(xn_queue *queue, xn_group *group) {
    if (group->state != GROUP_IDLE)
        xn_heap_remove(heap_of(queue, group), &group->node);
    group->state = state_of(queue, group);
    if (group->state != GROUP_IDLE)
        xn_heap_push(heap_of(queue, group), &group->node);
    else
        group_retire(queue, group);
}

static void group_settle(xn_queue *queue, xn_group *group) {
    xn_flow *flow = group->flow;
    flow_lift(queue, flow);
    group_move(queue, group);
    flow_settle(queue, flow);
}

/* After jobs came or went; oldest: so did the oldest. */
static void group_update(xn_queue *queue, xn_group *group, bool oldest) {
    if (oldest)
        group->due = false;
    if (oldest || group->state != state_of(queue, group))
        group_settle(queue, group);
}

static int64_t group_wait_ns(const xn_queue *queue, const xn_group *group, bool draining,
                             int64_t now_ns) {
    return xn_batch_wait_ns(&queue->policy, group->images, group->first->submitted_ns,
                            draining || group->urgent > 0, now_ns);
}

/* ---- jobs in and out ---- */

static bool is_urgent(const xn_queue *queue, const xn_job *job) {
    int64_t room_ns;
    if (__builtin_sub_overflow(job->deadline_ns, job->submitted_ns, &room_ns))
        return job->deadline_ns < job->submitted_ns;
    return room_ns <= queue->policy.delay_ns;
}

static void group_link(xn_group *group, xn_job *job) {
    xn_job *after = group->last;
    while (after && after->submitted_ns > job->submitted_ns)
        after = after->group_previous;
    job->group_previous = after;
    job->group_next = after ? after->group_next : group->first;
    *(after ? &after->group_next : &group->first) = job;
    *(job->group_next ? &job->group_next->group_previous : &group->last) = job;
    job->group = group;
}

xn_status xn_queue_push(xn_queue *queue, xn_job *job, xn_error *error) {
    xn_group *group = group_for(queue, job);
    if (!group)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to queue the request");
    job->queue = queue;
    job->arrival = queue->arrivals++;
    queue->count++;
    group_link(group, job);
    group->images += job->images;
    group->urgent += is_urgent(queue, job);
    group_update(queue, group, group->first == job);
    return XN_OK;
}

/* Out of its group's list; what follows for the group is the caller's. */
static void unlink_job(xn_queue *queue, xn_job *job) {
    xn_group *group = job->group;
    assert(group && queue->count > 0);
    *(job->group_previous ? &job->group_previous->group_next : &group->first) = job->group_next;
    *(job->group_next ? &job->group_next->group_previous : &group->last) = job->group_previous;
    queue->count--;
    group->images -= job->images;
    group->urgent -= is_urgent(queue, job);
    job->next = job->group_next = job->group_previous = NULL;
    job->group = NULL;
    job->queue = NULL;
}

void xn_queue_remove(xn_queue *queue, xn_job *job) {
    xn_group *group = job->group;
    bool oldest = group->first == job;
    unlink_job(queue, job);
    group_update(queue, group, oldest);
}

/* ---- what to launch ---- */

int64_t xn_queue_wait_ns(const xn_queue *queue, bool draining, int64_t now_ns) {
    if (queue->active.first)
        return 0;
    const xn_heap_node *oldest = queue->waiting.first;
    return oldest ? group_wait_ns(queue, group_of(oldest), draining, now_ns) : XN_QUEUE_EMPTY;
}

/* Groups that have waited long enough become ready. */
static void end_waits(xn_queue *queue, bool draining, int64_t now_ns) {
    xn_heap_node *oldest;
    while ((oldest = queue->waiting.first) &&
           group_wait_ns(queue, group_of(oldest), draining, now_ns) == 0) {
        group_of(oldest)->due = true;
        group_settle(queue, group_of(oldest));
    }
}

/* The group's oldest jobs that fit a batch, linked by next. */
static xn_job *take_jobs(xn_queue *queue, xn_group *group, size_t *count, int64_t *images) {
    xn_job *batch = NULL, **end = &batch, *job;
    *images = 0;
    *count = 0;
    do {
        job = group->first;
        unlink_job(queue, job);
        *images += job->images;
        *end = job;
        end = &job->next;
        ++*count;
        job = group->first;
    } while (job && job->images <= queue->policy.max_images - *images);
    return batch;
}

/* Advances the flow by its batch. */
static void charge(xn_queue *queue, xn_flow *flow, uint64_t work_ns) {
    uint64_t middle = flow->time_ns + work_ns / 2;
    queue->start_ns = flow->time_ns;
    if (is_later(middle, queue->middle_ns))
        queue->middle_ns = middle;
    flow->time_ns += work_ns;
}

xn_job *xn_queue_take(xn_queue *queue, bool draining, int64_t now_ns, size_t *count) {
    int64_t images;
    end_waits(queue, draining, now_ns);
    if (!queue->active.first)
        return NULL;
    xn_flow *flow = flow_of(queue->active.first);
    xn_group *group = group_of(flow->ready.first);
    flow_lift(queue, flow);
    xn_job *batch = take_jobs(queue, group, count, &images);
    charge(queue, flow, xn_queue_work_ns(&group->problem, images));
    group->due = group->first && group_wait_ns(queue, group, draining, now_ns) == 0;
    group_move(queue, group);
    flow_settle(queue, flow);
    forget_resting(queue);
    return batch;
}
