/* path.c: what paths call when they make a plan: room in its scratch memory, their state. */
#include "path.h"

#include "xn_mem.h"

size_t xn_cpu_take(xn_cpu_sizer *sizer, size_t count, size_t bytes) {
    size_t offset = sizer->bytes, size, end;
    bool fits = xn_add_size(count, 64, &count) && xn_mul_size(count, bytes, &size) &&
                xn_add_size(size, XN_CPU_ALIGNMENT - 1, &size) &&
                xn_add_size(offset, size / XN_CPU_ALIGNMENT * XN_CPU_ALIGNMENT, &end);
    if (!fits) {
        sizer->failed = true;
        return 0;
    }
    sizer->bytes = end;
    return offset;
}

void *xn_cpu_state_create(xn_plan *plan, size_t bytes, xn_error *error) {
    plan->state = xn_mem_zalloc(1, bytes);
    if (!plan->state)
        xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a step, %s",
                xn_step_kind_name((xn_step_kind)plan->step.kind));
    return plan->state;
}

xn_status xn_cpu_set_scratch(xn_plan *plan, const xn_cpu_sizer *shared, const xn_cpu_sizer *slice,
                             xn_error *error) {
    if (shared->failed || slice->failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->shared_bytes = shared->bytes;
    plan->thread_bytes = slice->bytes;
    return XN_OK;
}

bool xn_cpu_writes_all_bits(const xn_step *step) {
    (void)step;
    return true;
}
