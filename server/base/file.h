/* file.h: opening files safely, and reading whole ones at once. */
#ifndef XN_FILE_H
#define XN_FILE_H

#include "xn_status.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* What the mode says it is: "a directory", "a FIFO", ... */
const char *xn_file_kind(mode_t mode);

/* What a file is known by. Contents, permissions and the number of links change the time, and no
 * program can set it back. */
typedef struct xn_file_id {
    dev_t device;
    ino_t inode;
    off_t size;
    int64_t changed_ns;
} xn_file_id;

xn_file_id xn_file_id_of(const struct stat *info);
bool xn_file_id_equal(const xn_file_id *a, const xn_file_id *b);

/* Opens what a name in a folder stands for. A link is followed where it leads to something below
 * the root, which is checked after it was opened, so no change of links leads out. -1 with errno:
 * EXDEV for a link that leads out, ELOOP for one that leads to itself. */
int xn_file_open_within(int root, int folder, const char *name, int flags);

/* The same for reading a plain file. Its kind is checked before opening, since opening a FIFO or a
 * device may have effects, and again after it, since another file may have taken the name.
 * XN_FILE_OTHER: info->st_mode says what it is; XN_FILE_FAILED: errno, as above. */
typedef enum { XN_FILE_OPEN, XN_FILE_OTHER, XN_FILE_FAILED } xn_file_opened;
xn_file_opened xn_file_open_plain(int root, int folder, const char *name, int *fd,
                                  struct stat *info);

/* The names in an open folder, from the start, for closedir; NULL with errno. */
DIR *xn_file_names(int folder);

/* Reads all of the file that *before describes; bytes has room for it. Where *stop becomes true it
 * ends early, as XN_FILE_CHANGED. XN_FILE_UNREADABLE: errno says why. */
typedef enum { XN_FILE_WHOLE, XN_FILE_CHANGED, XN_FILE_UNREADABLE } xn_file_read_result;
xn_file_read_result xn_file_read_whole(int fd, const struct stat *before, void *bytes,
                                       const atomic_bool *stop);

/* Reads until the end of the file, `most` bytes, or *stop, which may be NULL; -1 with errno where
 * that fails. By read(2): stdio would leave copies of a secret in its buffer. */
ssize_t xn_file_fill(int fd, void *bytes, size_t most, const atomic_bool *stop);
/* All of the bytes; false with errno. */
bool xn_file_write(int fd, const void *bytes, size_t length);

/* The file that a setting names, in fresh memory with a NUL behind it (xn_mem_free). name: how the
 * messages call it, such as "--config app.conf"; setting: the field of the error. XN_ERR_IO,
 * XN_ERR_MALFORMED for more than `most` bytes, XN_ERR_NO_MEMORY. */
xn_status xn_file_read(int fd, const char *setting, const char *name, size_t most, char **text,
                       size_t *length, xn_error *error);

#endif
