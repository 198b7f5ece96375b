/* xn_network.h: a graph made ready for backends: its steps, and their weights. Lowering knows no
 * device; the same network runs on any backend that has the kinds of step in it.
 *
 * What it does, so that a network costs as few steps and as few bytes between them as may be:
 *   - affine layers behind a convolution, or behind another, become its scale and bias, computed in
 *     double and rounded once;
 *   - add, prelu, clip and sign behind a step go into its epilogue, which stores reals, bits or
 *     both;
 *   - what is read by nothing but signs lies in memory as bits;
 *   - a sign behind a max-pool goes in front of it (OR of bits, AND in channels that an affine
 *     layer turned round), and a hardtanh in front of a sign goes away;
 *   - a bias behind an activation moves into the shifts and biases of what reads it;
 *   - a pooled shortcut comes behind the binary convolution that it is added to, and adds both;
 *   - concat and slice are parts of one tensor, flatten is another shape of it; a dense layer is a
 *     convolution, behind flatten one with the image as its kernel.
 * In precision fp16 (MODELS.md, "Precision"): reals between steps are FP16, but for tensors that
 * hold the network's input or an output, which are FP32; weights of mode float are rounded here,
 * those of convolutions that read FP32 are not.
 *
 * None of it is done where a result would change by more than rounding: where a folded factor
 * leaves the range of fp32, where a slope below 0 makes a chain not monotone, or where NaN would
 * come out otherwise. */
#ifndef XN_NETWORK_H
#define XN_NETWORK_H

#include "xn_graph.h"
#include "xn_step.h"
#include "xn_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A block of memory, and how its owner gives it back: xn_mem_unmap, where it was mapped. */
typedef struct xn_memory {
    void *bytes;
    size_t length;
    void (*release)(void *bytes, size_t length);
} xn_memory;

/* Immutable. Owns everything in it; the graph and its tensors are not needed any more. Several
 * outputs lie one after the other in the program's output, each as [C][H][W] in FP32, in the order
 * in which they were asked for. */
typedef struct xn_network {
    uint64_t serial; /* no other network of the process has it, or will; never 0 */
    int step_count, weights_count;
    xn_step *steps; /* for xn_program_create_steps */
    xn_weights **weights;
    /* Of one image: multiply-adds, and the ends of the program. */
    int64_t operations, input_elements, output_elements;
    size_t input_bytes, output_bytes;
    /* Of one image, all steps together: those of the operations that are of bits alone, and the
     * elements that steps read and write. For estimates of what an image costs. */
    int64_t bit_operations, moved_elements;
    /* XN_PRECISION_FP16: values between steps, or real weights, were rounded to it; else FP32. What
     * a backend's products are computed from beside that, its plans say. */
    xn_precision precision;
    xn_memory tensors; /* what weights point into; release is NULL where they do not */
} xn_network;

/* Errors: XN_ERR_NO_MEMORY, XN_ERR_LIMIT (a filter of more values than int32 holds;
 * parameters that take more than 1 GiB, in double and for each channel). */
xn_status xn_network_lower(const xn_graph *graph, xn_network **out, xn_error *error);
/* The same of a graph whose tensors lie in memory that may stay: packed bits of binary layers are
 * used in it as they are, if they can be (xn_weights_parts.stays). Where any are, the network has
 * taken the memory (network->tensors) and releases it when it is freed; else, and where lowering
 * fails, it is the caller's. tensors: or NULL. */
xn_status xn_network_lower_in_place(const xn_graph *graph, const xn_memory *tensors,
                                    xn_network **out, xn_error *error);
void xn_network_free(xn_network *network); /* NULL-safe */

#ifdef __cplusplus
}
#endif
#endif
