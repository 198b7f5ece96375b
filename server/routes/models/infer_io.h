/* infer_io.h: what an inference request asks of the model it names: its input held against the
 * model's, and the outputs that it wants, as results of the answer. */
#ifndef XN_INFER_IO_H
#define XN_INFER_IO_H

#include "served_model.h"
#include "xn_oip.h"

typedef struct xn_infer_io {
    xn_infer_request parsed;
    uint64_t owner;      /* of the regions of shared memory that it may name; given */
    int64_t classes;     /* the best classes that outputs give where they ask for none; -1: as the
                          * input says; given */
    bool lines;          /* the answer is lines of classes; given */
    xn_oip_input *input; /* of parsed, its datatype and shape known */
    int result_count;
    xn_oip_result *results; /* without values until they are there */
    size_t *offsets;        /* of each in the output of an image */
    size_t image_bytes;     /* of all outputs, asked for or not */
    int64_t images;
    bool scattered; /* an output's values do not lie one after the other: gather them */
} xn_infer_io;

/* After parsing, with its owner: everything but results' values, and the problem. Errors name the
 * input or the output. shared: NULL where it is not allowed. memory: of the results; as long as
 * *io. */
xn_status xn_infer_io_resolve(xn_infer_io *io, const xn_served_model *model,
                              const xn_service *service, const xn_oip_memory *memory,
                              xn_problem *problem, xn_error *error);

/* Bytes for gathered values; 0 where nothing is gathered. */
size_t xn_infer_io_gather_bytes(const xn_infer_io *io);
/* The values of all results out of the program's output; gathered ones go to `room`. */
void xn_infer_io_set_values(xn_infer_io *io, const unsigned char *output, unsigned char *room);

#endif
