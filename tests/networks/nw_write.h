/* nw_write.h: networks as the files of a model's folder (proto/MODELS.md). */
#ifndef NW_WRITE_H
#define NW_WRITE_H

#include "nw_net.h"

typedef struct nw_files {
    char *config; /* config.json, with a NUL behind it */
    size_t config_length;
    void *tensors; /* model.safetensors, aligned to 64 */
    size_t tensors_length;
} nw_files;

/* Without rng: all tensors as F32, every member written. With it: each tensor in some datatype that
 * holds its values, or its signs where only those matter, packed bits among them; tensors in any
 * order and at any alignment; members left out, or in another form, where that means the same.
 * Outputs are called out0, out1, ... where the network names any. Names need no escapes in JSON. */
void nw_write(const nw_net *net, xn_rng *rng, nw_files *out);
void nw_files_free(nw_files *files);

/* The same as files in a folder that is there. */
void nw_write_folder(const nw_net *net, xn_rng *rng, const char *folder);

#endif
