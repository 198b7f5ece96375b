/* problem.c: see xn_problem.h. */
#include "hash.h"
#include "xn_problem.h"

void xn_problem_of_conv(const xn_conv *conv, xn_problem *out) {
    const xn_conv copy = *conv; /* which may be out's own */
    memset(out, 0, sizeof *out);
    out->conv = copy;
    out->hash = xn_hash_bytes(0, &copy, sizeof copy);
}

void xn_problem_of_network(const xn_network *network, xn_problem *out) {
    memset(out, 0, sizeof *out);
    out->network = network;
    out->serial = network->serial;
    out->hash = xn_hash_bytes(0, &network->serial, sizeof network->serial);
}

bool xn_problem_equal(const xn_problem *a, const xn_problem *b) {
    return a->hash == b->hash && a->serial == b->serial &&
           !memcmp(&a->conv, &b->conv, sizeof a->conv);
}

int64_t xn_problem_input_elements(const xn_problem *problem) {
    return problem->network ? problem->network->input_elements
                            : xn_conv_input_elements(&problem->conv);
}

int64_t xn_problem_output_elements(const xn_problem *problem) {
    return problem->network ? problem->network->output_elements
                            : xn_conv_output_elements(&problem->conv);
}

size_t xn_problem_input_bytes(const xn_problem *problem) {
    return problem->network ? problem->network->input_bytes : xn_conv_input_bytes(&problem->conv);
}

size_t xn_problem_output_bytes(const xn_problem *problem) {
    return problem->network ? problem->network->output_bytes : xn_conv_output_bytes(&problem->conv);
}

int64_t xn_problem_operations(const xn_problem *problem) {
    return problem->network ? problem->network->operations : xn_conv_operations(&problem->conv);
}
