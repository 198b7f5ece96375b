/* xn_problem.h: one request for work, as the queue, the plan cache and the backends know it: what
 * is to be computed for an image, without the weights and the number of images. Requests with the
 * same asset (weights, or a network with its weights) and equal problems can share a batch. */
#ifndef XN_PROBLEM_H
#define XN_PROBLEM_H

#include "xn_network.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A network, or NULL and one convolution. Plain data; what is not used is 0. */
typedef struct xn_problem {
    const xn_network *network; /* borrowed from its asset; not followed once that is gone */
    uint64_t serial;           /* the network's, or 0 */
    xn_conv conv;
    uint64_t hash; /* of all above; computed once, when the problem is made */
} xn_problem;

void xn_problem_of_conv(const xn_conv *conv, xn_problem *out);
void xn_problem_of_network(const xn_network *network, xn_problem *out);

/* By bytes, of networks by the serial: problems are kept in caches longer than their networks live,
 * and another network may come to lie where one was. The hash comes first, so that unequal ones
 * mostly cost one comparison. */
bool xn_problem_equal(const xn_problem *a, const xn_problem *b);

/* Per image: elements and bytes of input and output, multiply-adds. They fit: resolving the
 * problem checks them for all its images. */
int64_t xn_problem_input_elements(const xn_problem *problem);
int64_t xn_problem_output_elements(const xn_problem *problem);
size_t xn_problem_input_bytes(const xn_problem *problem);
size_t xn_problem_output_bytes(const xn_problem *problem);
int64_t xn_problem_operations(const xn_problem *problem);

#ifdef __cplusplus
}
#endif
#endif
