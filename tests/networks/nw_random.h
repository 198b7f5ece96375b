/* nw_random.h: random networks of all ops, with the shapes and the patterns that networks have. */
#ifndef NW_RANDOM_H
#define NW_RANDOM_H

#include "nw_net.h"

/* exact: parameters with which fp32 computes without rounding, and none of the ops that round
 * always. */
nw_net *nw_random_net(xn_rng *rng, bool exact);
/* Adds a top_k of the last layer, or of a dense layer behind that, as an output. */
void nw_random_top_k(nw_net *net, xn_rng *rng, bool exact);

#endif
