/* birealnet.h: Bi-Real-18 with random weights, for benchmarks: a picture of side x side as bytes,
 * RGB after RGB, to 1,000 logits. Where something fails, the program ends with a message.
 *
 * Parameters are such that every sum up to the last layer is exact in fp32: what two backends keep
 * between layers, in fp32 or in fp16, is the same bit for bit, and so is every sign. */
#ifndef XN_BENCH_BIREALNET_H
#define XN_BENCH_BIREALNET_H

#include "xn_network.h"

enum { XN_BIREALNET_CLASSES = 1000 };

typedef struct xn_birealnet xn_birealnet;

/* The same at every call. */
xn_birealnet *xn_birealnet_make(int64_t side, xn_precision precision);
void xn_birealnet_free(xn_birealnet *net);

xn_network *xn_birealnet_lower(const xn_birealnet *net);
/* config.json and model.safetensors, into a folder that is there. */
void xn_birealnet_write(const xn_birealnet *net, const char *folder);

#endif
