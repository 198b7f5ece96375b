/* nw_net.h: networks for tests: layers and their tensors in one object, and running them on ref. */
#ifndef NW_NET_H
#define NW_NET_H

#include "xn_backend.h"
#include "xn_graph.h"
#include "xn_network.h"
#include "xn_test.h"

enum { NW_LAYERS = 256, NW_NAMES = 512, NW_TENSORS = 512, NW_BLOCKS = 2048 };

typedef struct nw_net {
    xn_graph_params params;
    xn_layer layers[NW_LAYERS];
    const char *names[NW_NAMES]; /* lists of inputs, one after the other */
    int name_count;
    xn_tensor tensors[NW_TENSORS];
    int tensor_count;
    void *blocks[NW_BLOCKS]; /* freed with it */
    int block_count;
    const char *outputs[8];
} nw_net;

/* FP32, NCHW, without layers; the input's name is "input". */
nw_net *nw_create(int64_t channels, int64_t height, int64_t width);
void nw_free(nw_net *net);

/* Adds a layer with the defaults of its op. inputs: names apart by spaces, or NULL. */
xn_layer *nw_add(nw_net *net, xn_op op, const char *name, const char *inputs);
void nw_output(nw_net *net, const char *name);

/* A tensor of that shape (the rank ends at the first 0) with these FP32 values, which are copied.
 */
const xn_tensor *nw_tensor(nw_net *net, const float *values, int64_t d0, int64_t d1, int64_t d2,
                           int64_t d3);
/* [count] and its values. */
const xn_tensor *nw_values(nw_net *net, int count, ...);
/* Random values: integers from -3 to 3 in `exact`, times 1/4, else reals from -1 to 1. */
const xn_tensor *nw_random(nw_net *net, xn_rng *rng, bool exact, int64_t d0, int64_t d1, int64_t d2,
                           int64_t d3);
/* Powers of two, or reals, of both signs. */
const xn_tensor *nw_random_scale(nw_net *net, xn_rng *rng, bool exact, int64_t count);
void *nw_take(nw_net *net, size_t bytes);

extern const xn_conv_limits nw_limits; /* large ones */

/* Both must succeed. */
xn_graph *nw_graph(const nw_net *net);
xn_network *nw_lower(const nw_net *net);

/* All outputs of `images` images, one image after the other, as the network makes them on ref; the
 * same in the items' memory, and in a backend's own two images at a time. input is in the network's
 * datatype. The caller frees it. */
float *nw_run(const xn_network *network, const void *input, int64_t images);

/* Another backend that has all kinds of step, with one of its instruction sets; opened once, for
 * the life of the process. */
typedef struct nw_subject {
    char name[48]; /* "cpu/avx2" */
    const xn_backend *backend;
    xn_device *device;
    xn_stream *stream;
} nw_subject;

/* Subject 0, 1, ...: the first of a backend is what it chooses by itself. NULL past the last. */
const nw_subject *nw_subject_at(int index);
/* As nw_run, in batches of up to `batch` images, on as many threads as that. */
float *nw_run_on(const nw_subject *subject, const xn_network *network, const void *input,
                 int64_t images, int64_t batch, int threads);

/* Random networks of a suite of steps that backends run as one: 60, or XNORD_TEST_CHAINS. */
uint64_t nw_chains(void);
/* Reals with a few -0 and, for a quarter of the networks, a NaN. The net frees them. */
float *nw_images(nw_net *net, const xn_network *network, xn_rng *rng, int64_t images);
/* Runs in batches of `images`, half as many, ... and one: fails where a value has not the bits of
 * `want`, the layers run one by one, of which an image begins with the network's outputs and has
 * `want_each` values. */
void nw_expect_layers(const nw_subject *s, const nw_net *net, const xn_network *network,
                      uint64_t seed, const float *input, int64_t images, const float *want,
                      size_t want_each);
/* How many steps read each tensor, as xn_backend.fuses wants it. */
/* Of the network's input, [C, H, W], however it lies. */
xn_shape nw_input_shape(const xn_graph_params *params);
/* Makes the input packed signs, of the same shape. */
void nw_pack_input(nw_net *net);

enum { NW_READS = 64 };
void nw_count_reads(const xn_network *network, int32_t reads[NW_READS]);

#endif
