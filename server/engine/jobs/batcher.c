/* batcher.c: see batcher.h. The whole policy is this function; which thread waits, and
 * which wakes another, is the workers' business (worker.h). */
#include "batcher.h"

int64_t xn_batch_wait_ns(const xn_batch_policy *policy, const xn_batch_pending *pending,
                         int draining, int64_t now_ns) {
    if (draining || pending->images >= policy->max_images || policy->delay_ns <= 0)
        return 0;
    /* A job stamped later than `now` has waited for nothing yet. */
    int64_t waited_ns;
    if (now_ns <= pending->oldest_ns)
        return policy->delay_ns;
    if (__builtin_sub_overflow(now_ns, pending->oldest_ns, &waited_ns))
        return 0;
    return waited_ns >= policy->delay_ns ? 0 : policy->delay_ns - waited_ns;
}
