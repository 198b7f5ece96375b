/* bk_table.h: what the files of the case table share. */
#ifndef BK_TABLE_H
#define BK_TABLE_H

#include "bk_case.h"

typedef struct bk_cursor {
    bk_visit visit;
    void *context;
    uint64_t number; /* of the case in its section; it deals the turns and is the seed */
} bk_cursor;

/* Hands the case on, with a seed, items and spare images by its number. */
void bk_deal(bk_cursor *at, bk_case c);

/* Sections of bk_tiles.c. */
void bk_each_strip(bk_visit visit, void *context);
void bk_each_plane(bk_visit visit, void *context);
void bk_each_strip_of_columns(bk_visit visit, void *context);
void bk_each_tile(bk_visit visit, void *context);
void bk_each_position_count(bk_visit visit, void *context);
void bk_each_real_panel(bk_visit visit, void *context);
void bk_each_shifted_row(bk_visit visit, void *context);
void bk_each_filter_tile(bk_visit visit, void *context);
void bk_each_step(bk_visit visit, void *context);
void bk_each_dilated_strip(bk_visit visit, void *context);
void bk_each_bit_count(bk_visit visit, void *context);
void bk_each_allowed_precision(bk_visit visit, void *context);
void bk_each_grid(bk_visit visit, void *context);

#endif
