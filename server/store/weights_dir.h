/* weights_dir.h: --weights-dir: registered weights are files in a folder, so they survive a
 * restart, and several daemons share them. The folder is authoritative; the store follows it.
 * NAME.safetensors holds the weights of that name (proto/include/xn_weights_file.h).
 *
 * PUT: pack and prepare, write a hidden temporary file and fsync it, rename it and publish the
 * weights in the store, fsync the folder, answer. So a reader sees the old file or the new one, and
 * what was answered survives kill -9 and a loss of power. What fails before the rename leaves all
 * as it was; if the fsync of the folder fails, the answer says that the weights may not survive.
 * DELETE: unlink and delete in the store, fsync the folder, answer. Rename and publish (unlink and
 * delete) happen under one mutex, so disk and memory end with the same weights. Of several daemons
 * the last rename wins; the others see another file, and load it.
 *
 * A thread looks at all names: at start, every --weights-poll-ms, and at SIGHUP. A file is known by
 * inode, size and time of change. Times have a grain and inodes are used again, so in the first
 * seconds the checksum in the file's header is compared too. Files are read and packed without the
 * mutex, and published only if the file is still the one that was read. Running batches keep their
 * asset: a change takes effect between two batches.
 *
 * Until the first look is over, the daemon is not ready and unknown names are 503. A file that
 * cannot be used is reported once, counted and left alone; the name keeps the weights from before.
 * It is tried again when it changes, and after a while where the reason may pass. If the folder
 * goes away or cannot be written, PUT and DELETE fail and the weights in memory are served. */
#ifndef XN_WEIGHTS_DIR_H
#define XN_WEIGHTS_DIR_H

#include "store.h"

#define XN_WEIGHTS_SUFFIX ".safetensors"

typedef struct xn_weights_dir xn_weights_dir;

typedef struct xn_weights_dir_options {
    const char *path;              /* outlives it */
    int64_t poll_ms;               /* 0: only at start and when asked */
    int64_t max_elements;          /* of one tensor, as for a PUT */
    int64_t max_weights;           /* as of the store */
    void (*loaded)(void *context); /* once, when all that was there has been read */
    void *context;
} xn_weights_dir_options;

/* Opens the folder and starts to follow it. XN_ERR_IO: it cannot be opened, or a file cannot be
 * made in it though it may be written. */
xn_status xn_weights_dir_open(const xn_weights_dir_options *options, xn_store *store,
                              xn_metrics *metrics, xn_weights_dir **out, xn_error *error);
/* Only what open would say of the folder. */
xn_status xn_weights_dir_check(const char *path, xn_error *error);
/* NULL-safe. No put or delete runs any more. */
void xn_weights_dir_close(xn_weights_dir *dir);
/* Makes the thread look at the folder now. */
void xn_weights_dir_look(xn_weights_dir *dir);

/* As xn_store_put and xn_store_delete, and kept. They wait for the disk; any thread. Besides the
 * store's errors: XN_ERR_IO, XN_ERR_UNSUPPORTED (a name that the folder cannot take). */
xn_status xn_weights_dir_put(xn_weights_dir *dir, const char *name, const xn_tensor *weights,
                             const xn_tensor *scale, const xn_tensor *bias, bool *created,
                             xn_store_item *item, xn_error *error);
xn_status xn_weights_dir_delete(xn_weights_dir *dir, const char *name, xn_error *error);

#endif
