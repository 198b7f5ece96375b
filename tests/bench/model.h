/* model.h: a model folder (proto/MODELS.md), for benchmarks. tests/bench/networks.py writes those
 * of known networks. Where something fails, the program ends with a message. */
#ifndef XN_BENCH_MODEL_H
#define XN_BENCH_MODEL_H

#include "xn_network.h"

enum { XN_BENCH_AS_IT_SAYS = -1 };

/* Its network, of pictures for at most side x side (0: its own size), in this xn_precision or
 * XN_BENCH_AS_IT_SAYS. */
xn_network *xn_bench_model(const char *folder, int64_t side, int precision);
/* What the folder calls the network: the last part of its path. */
const char *xn_bench_model_name(const char *folder);

#endif
