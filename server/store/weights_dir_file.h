/* weights_dir_file.h: the files of --weights-dir, by their names within the open folder. Messages
 * reach clients, so they do not tell where the folder is, but for those of xn_folder_open. */
#ifndef XN_WEIGHTS_DIR_FILE_H
#define XN_WEIGHTS_DIR_FILE_H

#include "weights_tensors.h"
#include "xn_weights_file.h"

#include <limits.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define XN_WEIGHTS_SUFFIX ".safetensors"

/* What a file is known by; of a link, the file that it leads to. Contents, permissions and the
 * number of links change the time, and no program can set it back. */
typedef struct xn_file_id {
    dev_t device;
    ino_t inode;
    off_t size;
    int64_t changed_ns;
} xn_file_id;

bool xn_file_id_equal(const xn_file_id *a, const xn_file_id *b);

typedef struct xn_folder {
    char path[PATH_MAX];
    int fd;
    xn_file_id id;
} xn_folder;

/* Opens the folder and tries whether it can be written. On failure too, *folder is to be closed. */
xn_status xn_folder_open(xn_folder *folder, const char *path, xn_error *error);
void xn_folder_close(xn_folder *folder);
/* That the path still leads to the folder that is open. */
xn_status xn_folder_check(const xn_folder *folder, xn_error *error);
/* Makes renames and removals last. what: what of, for the message. */
xn_status xn_folder_sync(const xn_folder *folder, const char *what, xn_error *error);

/* These three: or XN_ERR_NOT_FOUND. */
xn_status xn_folder_stat(const xn_folder *folder, const char *file, xn_file_id *id,
                         xn_error *error);
xn_status xn_folder_remove(const xn_folder *folder, const char *file, xn_error *error);
/* The checksum that the file states in its header. */
xn_status xn_folder_checksum(const xn_folder *folder, const char *file, uint64_t *checksum,
                             xn_error *error);

/* A hidden file, on disk, that becomes the file of a name. */
typedef struct xn_temporary {
    char file[48];
    int fd;
    uint64_t checksum;
} xn_temporary;

/* tensors: weights, scale and bias, which may be NULL. On failure there is no file. */
xn_status xn_temporary_write(const xn_folder *folder, const xn_tensor *const tensors[3],
                             xn_temporary *out, xn_error *error);
/* Gives it its name. *id: what it is known by from now on. */
xn_status xn_temporary_rename(const xn_folder *folder, const xn_temporary *temporary,
                              const char *file, xn_file_id *id, xn_error *error);
/* Closes it, and removes it where it was not renamed. */
void xn_temporary_end(const xn_folder *folder, const xn_temporary *temporary, bool renamed);
/* Whether that is the name of one; then it is removed if it is so old that its writer is gone. */
bool xn_temporary_expire(const xn_folder *folder, const char *file);

/* A file in memory, its tensors ready for xn_store_make. */
typedef struct xn_loaded_file {
    xn_file_id id;
    uint64_t checksum;
    xn_weights_tensors tensors;
    void *bytes;
} xn_loaded_file;

/* stop: gives up when it becomes true. On failure too, *out is for xn_loaded_file_free. */
xn_status xn_loaded_file_read(const xn_folder *folder, const char *file,
                              const xn_proto_limits *limits, const atomic_bool *stop,
                              xn_loaded_file *out, xn_error *error);
void xn_loaded_file_free(xn_loaded_file *loaded);

#endif
