/* queue.c: see queue.h. Every job is in its group, in order of arrival. A group exists while it
 * holds a job, and group->images is the sum over its jobs. Each is in one of two heaps: the queue's
 * of those that still wait to fill a batch, or its flow's of those that are ready; by their oldest
 * job.
 *
 * A flow is what the queue knows of an asset. Those with a ready group are in the heap `active`, by
 * virtual time. One without groups rests while it is ahead of the others, so that an asset that
 * comes back at once has not lost its debt; then it is forgotten. (An asset that comes to lie where
 * one was that rests here takes over its debt, which is a batch's work at most.) Virtual times are
 * compared by their difference: they may wrap around. */
#include "queue.h"

#include "hash_table.h"
#include "work.h"
#include "xn_mem.h"

#include <assert.h>

typedef struct xn_flow {
    xn_hash_node found; /* by its asset */
    xn_heap_node node;  /* in queue->active or queue->resting */
    xn_asset *asset;    /* borrowed from its jobs; only compared once it has none */
    uint64_t time_ns;   /* virtual */
    xn_heap ready;      /* those of its groups that are */
    int64_t groups;
    bool active, resting;
    bool fresh; /* it has come, or come back, and was not active since */
    bool timed; /* its virtual time is its own: it was active once */
} xn_flow;

typedef enum { GROUP_IDLE, GROUP_WAITING, GROUP_READY } group_state;

typedef struct xn_group {
    xn_hash_node found; /* by its asset and problem */
    xn_heap_node node;  /* in queue->waiting or flow->ready, by state */
    group_state state;
    xn_flow *flow;
    xn_problem problem;
    xn_list jobs; /* by arrival */
    int64_t images;
    int64_t urgent; /* jobs whose deadline is nearer than the batch delay */
    bool due;       /* its oldest job was found to have waited long enough */
} xn_group;

struct xn_queue {
    xn_batch_policy policy;
    int64_t count;
    uint64_t arrivals;
    /* Virtual: the start of the last batch, and where half of it, or of one before, is done. */
    uint64_t start_ns, middle_ns;
    xn_heap active, resting, waiting;
    size_t resting_count;
    xn_list jobs; /* the oldest first */
    xn_hash_table groups, flows;
};

/* ---- orders ---- */

static xn_group *group_of(const xn_heap_node *node) {
    return XN_ITEM(node, xn_group, node);
}

static xn_flow *flow_of(const xn_heap_node *node) {
    return XN_ITEM(node, xn_flow, node);
}

/* NULL: it has none. */
static xn_job *first_of(const xn_group *group) {
    return xn_list_is_empty(&group->jobs) ? NULL : XN_ITEM(group->jobs.next, xn_job, in_group);
}

static bool is_later(uint64_t a, uint64_t than) {
    return (int64_t)(a - than) > 0;
}

static bool group_before(const xn_heap_node *a, const xn_heap_node *b) {
    const xn_job *i = first_of(group_of(a)), *k = first_of(group_of(b));
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
    const size_t buckets = xn_hash_size((size_t)depth, 64, 1 << 16);
    xn_queue *queue = xn_mem_zalloc(1, sizeof *queue);
    xn_hash_node **heads = xn_mem_zalloc(2 * buckets, sizeof(xn_hash_node *));
    if (!queue || !heads) {
        xn_mem_free(queue);
        xn_mem_free(heads);
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a queue of %zu groups",
                       buckets);
    }
    queue->policy = *policy;
    queue->active.before = flow_before;
    queue->resting.before = resting_before;
    queue->waiting.before = group_before;
    xn_list_init(&queue->jobs);
    queue->groups = (xn_hash_table){heads, buckets - 1};
    queue->flows = (xn_hash_table){heads + buckets, buckets - 1};
    *out = queue;
    return XN_OK;
}

void xn_queue_free(xn_queue *queue) {
    if (!queue)
        return;
    for (size_t i = 0; i <= queue->groups.mask; i++) {
        for (xn_hash_node *at = queue->groups.buckets[i], *next; at; at = next) {
            next = at->next;
            xn_mem_free(XN_ITEM(at, xn_group, found));
        }
        for (xn_hash_node *at = queue->flows.buckets[i], *next; at; at = next) {
            next = at->next;
            xn_mem_free(XN_ITEM(at, xn_flow, found));
        }
    }
    xn_mem_free(queue->groups.buckets); /* and those of flows behind them */
    xn_mem_free(queue);
}

int64_t xn_queue_count(const xn_queue *queue) {
    return queue->count;
}

xn_job *xn_queue_any(const xn_queue *queue) {
    const xn_heap_node *flow = queue->active.first;
    const xn_heap_node *group = flow ? flow_of(flow)->ready.first : queue->waiting.first;
    return group ? first_of(group_of(group)) : NULL;
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
    const uint64_t hash = xn_hash_mix((uint64_t)(uintptr_t)asset);
    xn_hash_node *found = xn_hash_find(&queue->flows, hash);
    while (found && XN_ITEM(found, xn_flow, found)->asset != asset)
        found = xn_hash_find_next(found);
    xn_flow *flow = found ? XN_ITEM(found, xn_flow, found) : xn_mem_alloc(sizeof *flow);
    if (found)
        flow_wake(queue, flow);
    if (found || !flow)
        return flow;
    *flow = (xn_flow){.asset = asset,
                      .time_ns = queue->start_ns,
                      .ready = {.before = group_before},
                      .fresh = true};
    xn_hash_add(&queue->flows, &flow->found, hash);
    return flow;
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
        xn_hash_remove(&queue->flows, &flow_of(first)->found);
        xn_mem_free(flow_of(first));
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
        uint64_t half = xn_queue_work_ns(&group->problem, first_of(group)->images) / 2;
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

static xn_group *group_find(const xn_queue *queue, const xn_job *job, uint64_t hash) {
    xn_hash_node *at = xn_hash_find(&queue->groups, hash);
    for (; at; at = xn_hash_find_next(at)) {
        xn_group *group = XN_ITEM(at, xn_group, found);
        if (group->flow->asset == job->asset && xn_problem_equal(&group->problem, &job->problem))
            return group;
    }
    return NULL;
}

/* The job's group, made if there is none; NULL without memory. */
static xn_group *group_for(xn_queue *queue, const xn_job *job) {
    const uint64_t hash = xn_hash_mix(job->problem.hash ^ (uint64_t)(uintptr_t)job->asset);
    xn_group *group = group_find(queue, job, hash);
    if (group)
        return group;
    group = xn_mem_alloc(sizeof *group);
    xn_flow *flow = group ? flow_for(queue, job->asset) : NULL;
    if (!flow) {
        xn_mem_free(group);
        return NULL;
    }
    *group = (xn_group){.flow = flow, .problem = job->problem};
    xn_list_init(&group->jobs);
    xn_hash_add(&queue->groups, &group->found, hash);
    flow->groups++;
    return group;
}

static void group_retire(xn_queue *queue, xn_group *group) {
    xn_hash_remove(&queue->groups, &group->found);
    group->flow->groups--;
    xn_mem_free(group);
}

static group_state state_of(const xn_queue *queue, const xn_group *group) {
    if (xn_list_is_empty(&group->jobs))
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
    return xn_batch_wait_ns(&queue->policy, group->images, first_of(group)->submitted_ns,
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
    xn_list *after = group->jobs.previous;
    while (after != &group->jobs &&
           XN_ITEM(after, xn_job, in_group)->submitted_ns > job->submitted_ns)
        after = after->previous;
    xn_list_add_first(after, &job->in_group); /* behind it */
    job->group = group;
}

static void queue_link(xn_queue *queue, xn_job *job) {
    xn_list *after = queue->jobs.previous;
    while (after != &queue->jobs &&
           XN_ITEM(after, xn_job, in_queue)->submitted_ns > job->submitted_ns)
        after = after->previous;
    xn_list_add_first(after, &job->in_queue);
}

int64_t xn_queue_oldest_ns(const xn_queue *queue) {
    const xn_list *first = queue->jobs.next;
    return first == &queue->jobs ? XN_QUEUE_EMPTY : XN_ITEM(first, xn_job, in_queue)->submitted_ns;
}

xn_status xn_queue_push(xn_queue *queue, xn_job *job, xn_error *error) {
    xn_group *group = group_for(queue, job);
    if (!group)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to queue the request");
    job->queue = queue;
    job->arrival = queue->arrivals++;
    queue->count++;
    group_link(group, job);
    queue_link(queue, job);
    group->images += job->images;
    group->urgent += is_urgent(queue, job);
    group_update(queue, group, first_of(group) == job);
    return XN_OK;
}

/* Out of its group's list; what follows for the group is the caller's. */
static void unlink_job(xn_queue *queue, xn_job *job) {
    xn_group *group = job->group;
    assert(group && queue->count > 0);
    xn_list_remove(&job->in_group);
    xn_list_remove(&job->in_queue);
    queue->count--;
    group->images -= job->images;
    group->urgent -= is_urgent(queue, job);
    job->next = NULL;
    job->group = NULL;
    job->queue = NULL;
}

void xn_queue_remove(xn_queue *queue, xn_job *job) {
    xn_group *group = job->group;
    bool oldest = first_of(group) == job;
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
    xn_job *batch = NULL, **end = &batch, *job = first_of(group);
    *images = 0;
    *count = 0;
    do {
        unlink_job(queue, job);
        *images += job->images;
        *end = job;
        end = &job->next;
        ++*count;
        job = first_of(group);
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
    group->due = first_of(group) && group_wait_ns(queue, group, draining, now_ns) == 0;
    group_move(queue, group);
    flow_settle(queue, flow);
    forget_resting(queue);
    return batch;
}
