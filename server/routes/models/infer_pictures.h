/* infer_pictures.h: the input of an inference request where it comes as encoded pictures. */
#ifndef XN_INFER_PICTURES_H
#define XN_INFER_PICTURES_H

#include "infer_io.h"
#include "inference.h"

/* Decodes the pictures of io->input to a buffer of the pool, work->job.input. All headers are read,
 * and the memory of the largest picture is counted, before the first one is decoded. Takes long:
 * for background threads. Ends early where the request is cancelled or its deadline passes. */
xn_status xn_infer_pictures_take(xn_inference *work, const xn_infer_io *io,
                                 const xn_picture_rule *rule, xn_error *error);

#endif
