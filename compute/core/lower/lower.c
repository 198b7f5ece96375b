/* lower.c: from a graph to steps. */
#include "lower.h"

#include "xn_mem.h"

#include <stdatomic.h>

static xn_status run(xn_lowering *l, xn_error *error) {
    if (!xn_lower_build(l) || !xn_lower_rewrite(l) || !xn_lower_place(l) || !xn_lower_sort(l))
        return xn_fail(error, XN_ERR_NO_MEMORY, "layers",
                       "no memory to lower a network of %d layers", l->graph->layer_count);
    return xn_lower_steps(l, error);
}

static uint64_t next_serial(void) {
    static atomic_uint_fast64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

static void measure(const xn_lowering *l, xn_network *network) {
    network->operations = l->graph->operations;
    network->input_elements = xn_extent_elements(&l->graph->input);
    network->input_bytes = xn_step_input_bytes(&network->steps[0]);
    network->output_elements = xn_extent_elements(&l->nodes[l->result].extent);
    network->output_bytes = (size_t)network->output_elements * xn_datatype_bytes(XN_FP32);
    for (int i = 0; i < network->step_count; i++) {
        const xn_step *step = &network->steps[i];
        const xn_conv *conv = &step->conv;
        network->moved_elements += xn_conv_input_elements(conv) + xn_conv_output_elements(conv);
        if (conv->mode == XN_MODE_XNOR)
            network->bit_operations += xn_conv_operations(conv);
    }
}

/* Whoever found that something was not there had no memory for it. */
static xn_status explain(const xn_lowering *l, xn_status status, xn_error *error) {
    if (status != XN_ERR_NO_MEMORY || !l->too_large)
        return status;
    return xn_fail(error, XN_ERR_LIMIT, "layers",
                   "the parameters of %d layers, each spread over its channels, take more than "
                   "%zu MiB while the network is lowered",
                   l->graph->layer_count, XN_LOWER_MAX_BYTES >> 20);
}

xn_status xn_network_lower(const xn_graph *graph, xn_network **out, xn_error *error) {
    return xn_network_lower_in_place(graph, NULL, out, error);
}

xn_status xn_network_lower_in_place(const xn_graph *graph, const xn_memory *tensors,
                                    xn_network **out, xn_error *error) {
    xn_lowering l = {.graph = graph,
                     .tensors = tensors,
                     .edges = graph->precision == XN_PRECISION_FP16 ? XN_FP16 : XN_FP32,
                     .tensor_count = 1};
    xn_status status = explain(&l, run(&l, error), error);
    if (status == XN_OK) {
        measure(&l, l.network);
        l.network->serial = next_serial();
        *out = l.network;
    } else if (l.network) {
        l.network->tensors = (xn_memory){0}; /* the caller's still */
        xn_network_free(l.network);
    }
    xn_lower_free(&l);
    return status;
}

void xn_network_free(xn_network *network) {
    if (!network)
        return;
    for (int i = 0; network->weights && i < network->weights_count; i++)
        xn_weights_free(network->weights[i]);
    if (network->tensors.release)
        network->tensors.release(network->tensors.bytes, network->tensors.length);
    xn_mem_free(network->weights);
    xn_mem_free(network->steps);
    xn_mem_free(network);
}
