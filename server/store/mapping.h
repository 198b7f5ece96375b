/* mapping.h: a large file as memory, for weights that are used where they lie. Replacing the file
 * by renaming another to its name changes nothing here, since the old one stays. Writing into it
 * does: what is computed from then on is refused, and a file that was cut short ends no process:
 * what it no longer has reads as 0. Thread-safe. */
#ifndef XN_MAPPING_H
#define XN_MAPPING_H

#include "xn_network.h"

#include <sys/stat.h>

#define XN_MAPPING_LEAST_BYTES ((int64_t)16 << 20) /* a smaller file is worth copying */

/* The whole of an open file that *info describes; the descriptor stays the caller's. False where
 * it cannot be mapped, with out->bytes NULL. Given back by out->release. */
bool xn_mapping_create(int fd, const struct stat *info, xn_memory *out);
/* Whether the file is as it was. */
bool xn_mapping_is_intact(const xn_memory *mapping);

#endif
