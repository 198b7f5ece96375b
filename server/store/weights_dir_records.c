/* weights_dir_records.c: what is known of the files of --weights-dir, in the order of their names.
 * dir->mutex is held in all of it. */
#include "weights_dir_internal.h"

#include "arrays.h"

#include <stdio.h>
#include <string.h>

static const char *name_of_record(const void *records, size_t index) {
    return ((xn_kept *const *)records)[index]->file;
}

static bool find_locked(const xn_weights_dir *dir, const char *file, size_t *at) {
    return xn_names_find(dir->kept, dir->kept_count, name_of_record, file, at);
}

xn_kept *xn_kept_find_locked(const xn_weights_dir *dir, const char *file) {
    size_t at;
    return find_locked(dir, file, &at) ? dir->kept[at] : NULL;
}

xn_kept *xn_kept_make_locked(xn_weights_dir *dir, const char *file) {
    enum { FIRST_CAPACITY = 16 };
    size_t at;
    if (find_locked(dir, file, &at))
        return dir->kept[at];
    xn_kept **records = xn_array_grow(dir->kept, dir->kept_count, &dir->kept_capacity,
                                      sizeof *records, FIRST_CAPACITY);
    if (!records)
        return NULL;
    dir->kept = records;
    xn_kept *kept = xn_mem_zalloc(1, sizeof *kept);
    if (!kept)
        return NULL;
    snprintf(kept->file, sizeof kept->file, "%s", file);
    memmove(&records[at + 1], &records[at], (dir->kept_count - at) * sizeof *records);
    records[at] = kept;
    dir->kept_count++;
    return kept;
}

void xn_kept_drop_locked(xn_weights_dir *dir, xn_kept *kept) {
    size_t at;
    if (!find_locked(dir, kept->file, &at))
        return;
    xn_kept_set_bad_locked(dir, kept, false);
    dir->kept_count--;
    memmove(&dir->kept[at], &dir->kept[at + 1], (dir->kept_count - at) * sizeof(xn_kept *));
    xn_mem_free(kept);
}

void xn_kept_set_bad_locked(xn_weights_dir *dir, xn_kept *kept, bool bad) {
    if (kept->bad != bad)
        xn_metrics_gauge_add(dir->metrics, XN_GAUGE_WEIGHTS_DIR_SKIPPED, bad ? 1 : -1);
    kept->bad = bad;
    if (!bad)
        kept->pause_ns = 0;
}

void xn_kept_free_all(xn_weights_dir *dir) {
    for (size_t i = 0; i < dir->kept_count; i++)
        xn_mem_free(dir->kept[i]);
    xn_mem_free(dir->kept);
    dir->kept = NULL;
    dir->kept_count = dir->kept_capacity = 0;
}
