/* queue.c: see queue.h. Invariants: a group exists while it holds a job; group->images is the sum
 * over its jobs; group->ripe says whether it is in the list of ripe groups. Groups that emptied are
 * kept for reuse, so a steady load allocates nothing. */
#include "queue.h"

#include "xn_mem.h"

#include <assert.h>

typedef struct xn_group {
    xn_asset *asset; /* borrowed from its jobs */
    xn_problem problem;
    uint64_t hash;
    xn_job *first, *last;
    int64_t images;
    int64_t urgent; /* jobs whose deadline is nearer than the batch delay */
    bool ripe;
    struct xn_group *ripe_next, *ripe_previous;
    struct xn_group *chain; /* in its hash bucket, or in the list of free groups */
} xn_group;

struct xn_queue {
    xn_batch_policy policy;
    xn_job *first, *last;
    int64_t count;
    xn_group *ripe_first, *ripe_last;
    xn_group *free_groups;
    xn_group **buckets;
    size_t bucket_mask;
};

xn_status xn_queue_create(const xn_batch_policy *policy, int64_t depth, xn_queue **out,
                          xn_error *error) {
    enum { MIN_BUCKETS = 64, MAX_BUCKETS = 1 << 16 };
    size_t buckets = MIN_BUCKETS;
    while (buckets < MAX_BUCKETS && (int64_t)buckets < depth)
        buckets *= 2;
    xn_queue *queue = xn_mem_zalloc(1, sizeof *queue);
    xn_group **table = xn_mem_zalloc(buckets, sizeof *table);
    if (!queue || !table) {
        xn_mem_free(queue);
        xn_mem_free(table);
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a queue of %zu groups",
                       buckets);
    }
    queue->policy = *policy;
    queue->buckets = table;
    queue->bucket_mask = buckets - 1;
    *out = queue;
    return XN_OK;
}

static void free_chain(xn_group *group) {
    while (group) {
        xn_group *next = group->chain;
        xn_mem_free(group);
        group = next;
    }
}

void xn_queue_free(xn_queue *queue) {
    if (!queue)
        return;
    for (size_t i = 0; i <= queue->bucket_mask; i++)
        free_chain(queue->buckets[i]);
    free_chain(queue->free_groups);
    xn_mem_free(queue->buckets);
    xn_mem_free(queue);
}

int64_t xn_queue_count(const xn_queue *queue) {
    return queue->count;
}

xn_job *xn_queue_oldest(const xn_queue *queue) {
    return queue->first;
}

/* ---- groups ---- */

static uint64_t group_hash(const xn_asset *asset, const xn_problem *problem) {
    uint64_t h = problem->hash ^ (uint64_t)(uintptr_t)asset;
    h = (h ^ (h >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static xn_group *group_for(xn_queue *queue, const xn_job *job) {
    uint64_t hash = group_hash(job->asset, &job->problem);
    xn_group **bucket = &queue->buckets[hash & queue->bucket_mask];
    for (xn_group *g = *bucket; g; g = g->chain)
        if (g->hash == hash && g->asset == job->asset &&
            xn_problem_equal(&g->problem, &job->problem))
            return g;
    xn_group *group = queue->free_groups;
    if (group)
        queue->free_groups = group->chain;
    else
        group = xn_mem_alloc(sizeof *group);
    if (!group)
        return NULL;
    *group =
        (xn_group){.asset = job->asset, .problem = job->problem, .hash = hash, .chain = *bucket};
    *bucket = group;
    return group;
}

static void group_retire(xn_queue *queue, xn_group *group) {
    xn_group **at = &queue->buckets[group->hash & queue->bucket_mask];
    while (*at != group)
        at = &(*at)->chain;
    *at = group->chain;
    group->chain = queue->free_groups;
    queue->free_groups = group;
}

static void ripe_unlink(xn_queue *queue, xn_group *group) {
    if (group->ripe_previous)
        group->ripe_previous->ripe_next = group->ripe_next;
    else
        queue->ripe_first = group->ripe_next;
    if (group->ripe_next)
        group->ripe_next->ripe_previous = group->ripe_previous;
    else
        queue->ripe_last = group->ripe_previous;
}

static void ripe_append(xn_queue *queue, xn_group *group) {
    group->ripe_next = NULL;
    group->ripe_previous = queue->ripe_last;
    if (queue->ripe_last)
        queue->ripe_last->ripe_next = group;
    else
        queue->ripe_first = group;
    queue->ripe_last = group;
}

/* After the group's images or urgent jobs changed. */
static void group_update(xn_queue *queue, xn_group *group) {
    bool ripe = group->images >= queue->policy.max_images || group->urgent > 0;
    if (ripe == group->ripe)
        return;
    group->ripe = ripe;
    if (ripe)
        ripe_append(queue, group);
    else
        ripe_unlink(queue, group);
}

static bool is_urgent(const xn_queue *queue, const xn_job *job) {
    int64_t room_ns;
    if (__builtin_sub_overflow(job->deadline_ns, job->submitted_ns, &room_ns))
        return job->deadline_ns < job->submitted_ns;
    return room_ns <= queue->policy.delay_ns;
}

/* ---- jobs in and out ---- */

static void queue_link(xn_queue *queue, xn_job *job) {
    xn_job *after = queue->last;
    while (after && after->submitted_ns > job->submitted_ns)
        after = after->previous;
    job->previous = after;
    job->next = after ? after->next : queue->first;
    *(after ? &after->next : &queue->first) = job;
    *(job->next ? &job->next->previous : &queue->last) = job;
    queue->count++;
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
    queue_link(queue, job);
    group_link(group, job);
    group->images += job->images;
    group->urgent += is_urgent(queue, job);
    group_update(queue, group);
    return XN_OK;
}

void xn_queue_remove(xn_queue *queue, xn_job *job) {
    xn_group *group = job->group;
    assert(group && queue->count > 0);
    *(job->previous ? &job->previous->next : &queue->first) = job->next;
    *(job->next ? &job->next->previous : &queue->last) = job->previous;
    *(job->group_previous ? &job->group_previous->group_next : &group->first) = job->group_next;
    *(job->group_next ? &job->group_next->group_previous : &group->last) = job->group_previous;
    queue->count--;
    group->images -= job->images;
    group->urgent -= is_urgent(queue, job);
    job->next = job->previous = job->group_next = job->group_previous = NULL;
    job->group = NULL;
    group_update(queue, group);
    if (!group->first)
        group_retire(queue, group);
}

/* ---- what to launch ---- */

static int64_t group_wait_ns(const xn_queue *queue, const xn_group *group, bool draining,
                             int64_t now_ns) {
    xn_batch_pending pending = {group->images, group->first->submitted_ns};
    return xn_batch_wait_ns(&queue->policy, &pending, draining || group->urgent > 0, now_ns);
}

/* The group to launch, or NULL and how long until there is one. The groups that are neither the
 * oldest nor ripe wait at least as long as the oldest. */
static xn_group *choose(const xn_queue *queue, bool draining, int64_t now_ns, int64_t *wait_ns) {
    *wait_ns = XN_QUEUE_EMPTY;
    if (!queue->first)
        return NULL;
    xn_group *oldest = queue->first->group;
    *wait_ns = group_wait_ns(queue, oldest, draining, now_ns);
    if (*wait_ns == 0)
        return oldest;
    if (queue->ripe_first)
        *wait_ns = 0;
    return queue->ripe_first;
}

int64_t xn_queue_wait_ns(const xn_queue *queue, bool draining, int64_t now_ns) {
    int64_t wait_ns;
    choose(queue, draining, now_ns, &wait_ns);
    return wait_ns;
}

xn_job *xn_queue_take(xn_queue *queue, bool draining, int64_t now_ns, size_t *count) {
    int64_t wait_ns;
    xn_group *group = choose(queue, draining, now_ns, &wait_ns);
    if (!group)
        return NULL;
    xn_job *batch = NULL, **end = &batch;
    size_t taken = 0;
    /* The group dies with its last job: keep what is needed of it outside. */
    xn_job *job = group->first;
    int64_t room = queue->policy.max_images;
    do {
        xn_job *following = job->group_next;
        room -= job->images;
        xn_queue_remove(queue, job);
        *end = job;
        end = &job->next;
        taken++;
        job = following;
    } while (job && job->images <= room);
    *count = taken;
    return batch;
}
