/* prepared.c: see prepared.h. */
#include "prepared.h"

#include "xn_mem.h"

#include <assert.h>

xn_status xn_cpu_weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                 xn_error *error) {
    (void)device;
    xn_prepared *p = xn_mem_zalloc(1, sizeof *p);
    if (!p)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                       "no memory for the prepared weights [%d, %d, %d, %d]", weights->out_channels,
                       weights->group_channels, weights->kernel_h, weights->kernel_w);
    p->out_channels = weights->out_channels;
    p->group_channels = weights->group_channels;
    p->kernel_h = weights->kernel_h;
    p->kernel_w = weights->kernel_w;
    p->taps = weights->kernel_h * weights->kernel_w;
    p->filter = p->taps * weights->group_channels;
    p->weights = weights;
    pthread_mutex_init(&p->making, NULL);
    for (int slot = 0; slot < XN_CPU_FORM_SLOTS; slot++)
        atomic_init(&p->forms[slot], NULL);
    *out = p;
    return XN_OK;
}

void xn_cpu_weights_free(xn_prepared *prepared) {
    if (!prepared)
        return;
    for (int slot = 0; slot < XN_CPU_FORM_SLOTS; slot++)
        if (prepared->kinds[slot])
            prepared->kinds[slot]->free(atomic_load(&prepared->forms[slot]));
    pthread_mutex_destroy(&prepared->making);
    xn_mem_free(prepared);
}

/* Weights are const to all but this. */
static void *make_once(xn_prepared *p, const xn_cpu_form *form, int variant) {
    const int slot = form->slot + variant;
    pthread_mutex_lock(&p->making);
    void *made = atomic_load_explicit(&p->forms[slot], memory_order_relaxed);
    if (!made) {
        made = form->make(p, variant);
        p->kinds[slot] = form;
        atomic_store_explicit(&p->forms[slot], made, memory_order_release);
    }
    pthread_mutex_unlock(&p->making);
    return made;
}

xn_status xn_cpu_form_ready(const xn_prepared *p, const xn_cpu_form *form, int variant,
                            xn_error *error) {
    if (atomic_load_explicit(&p->forms[form->slot + variant], memory_order_acquire) ||
        make_once((xn_prepared *)p, form, variant))
        return XN_OK;
    return xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                   "no memory for %s of the weights [%d, %d, %d, %d]", form->what, p->out_channels,
                   p->group_channels, p->kernel_h, p->kernel_w);
}

const void *xn_cpu_form_of(const xn_prepared *p, const xn_cpu_form *form, int variant) {
    void *made = atomic_load_explicit(&p->forms[form->slot + variant], memory_order_relaxed);
    assert(made); /* weights_ready came before */
    return made;
}
