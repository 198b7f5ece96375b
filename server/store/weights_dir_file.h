/* weights_dir_file.h: the folder of --weights-dir and the files in it (weights_dir.h says what
 * for). NAME.safetensors is the file of a name. Errors that name a file are XN_ERR_NOT_FOUND where
 * there is none. Nothing here keeps state or knows the store. */
#ifndef XN_WEIGHTS_DIR_FILE_H
#define XN_WEIGHTS_DIR_FILE_H

#include "file.h"
#include "weights_tensors.h"
#include "xn_weights_file.h"

#include <limits.h>

#define XN_WEIGHTS_SUFFIX ".safetensors"

typedef struct xn_folder {
    char path[PATH_MAX];
    int fd;
    xn_file_id id;
} xn_folder;

/* On failure too, *folder is to be closed. A folder that cannot be written is opened, with a
 * warning in the log. */
xn_status xn_folder_open(xn_folder *folder, const char *path, xn_error *error);
void xn_folder_close(xn_folder *folder);
/* That the path still leads to the folder that is open. */
xn_status xn_folder_check(const xn_folder *folder, xn_error *error);
/* Makes renames and removals durable. what: what is done, for the message. */
xn_status xn_folder_sync(const xn_folder *folder, const char *what, xn_error *error);

/* What a name's file is known by; of a link, the file that it leads to. */
xn_status xn_folder_stat(const xn_folder *folder, const char *name, xn_file_id *id,
                         xn_error *error);
xn_status xn_folder_remove(const xn_folder *folder, const char *name, xn_error *error);
/* The checksum that the file states in its header. */
xn_status xn_folder_checksum(const xn_folder *folder, const char *name, uint64_t *checksum,
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
/* Makes it the file of the name. *id: what that is known by. */
xn_status xn_temporary_rename(const xn_folder *folder, const xn_temporary *temporary,
                              const char *name, xn_file_id *id, xn_error *error);
/* Closes it, and removes it where it was not renamed. */
void xn_temporary_end(const xn_folder *folder, const xn_temporary *temporary, bool renamed);
/* Whether `file` is a temporary one; it is removed if it is so old that its writer is gone. */
bool xn_temporary_expire(const xn_folder *folder, const char *file);

/* A file in memory, its tensors ready for xn_store_make. */
typedef struct xn_loaded_file {
    xn_file_id id;
    uint64_t checksum;
    xn_weights_tensors tensors;
    void *bytes;
} xn_loaded_file;

/* stop: gives up when it becomes true. On failure too, *out is for xn_loaded_file_free. */
xn_status xn_loaded_file_read(const xn_folder *folder, const char *name,
                              const xn_proto_limits *limits, const atomic_bool *stop,
                              xn_loaded_file *out, xn_error *error);
void xn_loaded_file_free(xn_loaded_file *loaded);

#endif
