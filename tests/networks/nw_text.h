/* nw_text.h: networks for tests as text.
 *
 *   "3x8x8: conv 8 float; bn=affine; max_pool; s=sign shift; conv 4 < s; add last bn; out last s"
 *
 * channels x height x width (or "HxWxC nhwc"; a datatype: "uint8"), then a layer each: a name,
 * where others read it; its op; the outputs of a convolution; "<" and what it reads, if that is not
 * the layer before ("last"; "input" is the input); and members, by their names in xn_graph.h. Of
 * parameters a name alone draws values, and "bias=1,-2" gives them. A convolution is 3x3, and
 * padded to keep its size, "conv7" 7x7; "dense" reads flat channels; pools are 2x2, "max_pool3"
 * 3x3. "affine" alone has scale and bias. Layers that sum, join or gate name all they read behind
 * their op. */
#ifndef NW_TEXT_H
#define NW_TEXT_H

#include "nw_net.h"

nw_net *nw_text(xn_rng *rng, const char *text);

#endif
