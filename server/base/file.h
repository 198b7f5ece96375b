/* file.h: reading a whole file at once. */
#ifndef XN_FILE_H
#define XN_FILE_H

#include "xn_status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* What the mode says it is: "a directory", "a FIFO", ... */
const char *xn_file_kind(mode_t mode);

/* Opens a plain file of a folder for reading, and says what it is. Others are told before they are
 * opened (that alone may have effects), and again after it (something else may have come in its
 * place). follow: links that stay below the folder are followed. XN_FILE_OTHER: info->st_mode says
 * what it is; XN_FILE_FAILED: errno says why, ELOOP for a link where links are not followed, EXDEV
 * for one that leaves the folder. */
typedef enum { XN_FILE_OPEN, XN_FILE_OTHER, XN_FILE_FAILED } xn_file_opened;
xn_file_opened xn_file_open_plain(int folder, const char *name, bool follow, int *fd,
                                  struct stat *info);

/* Reads a file from its start: up to `length` bytes, its end, or *stop, which may be NULL; *got
 * says how many. False, with errno, where that fails. */
bool xn_file_read_start(int fd, void *bytes, size_t length, const atomic_bool *stop, size_t *got);

/* Reads until the end of the file, or `most` bytes; -1 with errno where that fails. By read(2):
 * stdio would leave copies of a secret in its buffer. */
ssize_t xn_file_fill(int fd, void *bytes, size_t most);

/* The file that a setting names, in fresh memory with a NUL behind it (xn_mem_free). name: how the
 * messages call it, such as "--config app.conf"; setting: the field of the error. XN_ERR_IO,
 * XN_ERR_MALFORMED for more than `most` bytes, XN_ERR_NO_MEMORY. */
xn_status xn_file_read(int fd, const char *setting, const char *name, size_t most, char **text,
                       size_t *length, xn_error *error);

#endif
