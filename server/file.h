/* file.h: reading a whole file at once. */
#ifndef XN_FILE_H
#define XN_FILE_H

#include "xn_status.h"

#include <stddef.h>
#include <sys/types.h>

/* What the mode says it is: "a directory", "a FIFO", ... */
const char *xn_file_kind(mode_t mode);

/* Reads until the end of the file, or `most` bytes; -1 with errno where that fails. By read(2):
 * stdio would leave copies of a secret in its buffer. */
ssize_t xn_file_fill(int fd, void *bytes, size_t most);

/* The file that a setting names, in fresh memory with a NUL behind it (xn_mem_free). name: how the
 * messages call it, such as "--config app.conf"; setting: the field of the error. XN_ERR_IO,
 * XN_ERR_MALFORMED for more than `most` bytes, XN_ERR_NO_MEMORY. */
xn_status xn_file_read(int fd, const char *setting, const char *name, size_t most, char **text,
                       size_t *length, xn_error *error);

#endif
