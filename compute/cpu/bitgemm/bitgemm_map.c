/* bitgemm_map.c: what a plan for many channels knows of its geometry (bitgemm.h). */
#include "bitgemm.h"
#include "index.h"
#include "xn_arith.h"
#include "xn_mem.h"

enum { TABLE_LANES = 16 }; /* entries of a class table that one instruction can look up */

xn_cpu_patch xn_cpu_patch_of(int32_t group_channels, int32_t kernel_h, int32_t kernel_w) {
    int32_t taps = kernel_h * kernel_w;
    xn_cpu_patch patch = {.tap_words = (int32_t)xn_cpu_div_up(group_channels, 32), .sharing = 1};
    if (group_channels <= 16)
        patch.sharing = 32 / group_channels;
    patch.words = (int32_t)xn_cpu_div_up(taps, patch.sharing) * patch.tap_words;
    return patch;
}

/* The kinds of outputs along one axis, in order of first appearance: as the tap range moves over
 * the image both of its ends only fall, so equal ranges are neighbours. */
static int32_t list_kinds(int32_t outputs, int32_t stride, int32_t pad, int32_t dilation,
                          int32_t kernel, int32_t size, bool one, xn_cpu_range *ranges,
                          int32_t *kind) {
    int32_t count = 0;
    for (int32_t at = 0; at < outputs; at++) {
        xn_cpu_range r = {0, kernel};
        if (!one)
            xn_valid_taps(at * stride - pad, dilation, kernel, size, &r.first, &r.last);
        if (!count || r.first != ranges[count - 1].first || r.last != ranges[count - 1].last)
            ranges[count++] = r;
        kind[at] = count - 1;
    }
    return count;
}

static size_t kinds_of(int32_t kernel, int32_t outputs) {
    return (size_t)xn_cpu_min(2 * (int64_t)kernel + 1, outputs);
}

/* Class c's entries, in unsigned arithmetic, since parts may pass 2^31 where dot does not. */
static void set_start(const xn_conv *conv, xn_cpu_map *map, int32_t c, xn_cpu_range rows,
                      xn_cpu_range columns) {
    const int32_t pitch = conv->kernel_w + 1; /* of prefix sums */
    const uint32_t channels = (uint32_t)conv->group_channels;
    const uint32_t taps = (uint32_t)conv->kernel_h * (uint32_t)conv->kernel_w;
    const uint32_t inside =
        (uint32_t)(rows.last - rows.first) * (uint32_t)(columns.last - columns.first);
    map->base[c] = (int32_t)(channels * (conv->pad_value > 0 ? 2 * inside - taps : inside));
    map->corner[0][c] = rows.last * pitch + columns.last;
    map->corner[1][c] = rows.last * pitch + columns.first;
    map->corner[2][c] = rows.first * pitch + columns.last;
    map->corner[3][c] = rows.first * pitch + columns.first;
}

/* [row_kinds] and [column_kinds]: taps inside. */
static bool set_starts(const xn_conv *conv, xn_cpu_map *map, const xn_cpu_range *rows,
                       const xn_cpu_range *columns) {
    map->classes = map->row_kinds * map->column_kinds;
    map->pitch = (int32_t)xn_cpu_max(map->classes, TABLE_LANES);
    map->factor = conv->pad_value > 0 ? 4 : 2;
    map->all = (conv->kernel_h + 1) * (conv->kernel_w + 1) - 1;
    map->base = xn_mem_zalloc((size_t)map->pitch, sizeof *map->base);
    bool made = map->base != NULL;
    for (int i = 0; i < 4; i++) {
        map->corner[i] = xn_mem_zalloc((size_t)map->pitch, sizeof *map->corner[i]);
        made = made && map->corner[i];
    }
    for (int32_t c = 0; made && c < map->classes; c++)
        set_start(conv, map, c, rows[c / map->column_kinds], columns[c % map->column_kinds]);
    return made;
}

/* rows, columns: room for the taps inside of each kind. */
static bool fill_map(const xn_conv *conv, xn_cpu_map *map, xn_cpu_range *rows,
                     xn_cpu_range *columns) {
    const bool one = conv->pad_value < 0;
    for (int32_t j = 0; j < conv->kernel_w; j++)
        xn_cpu_valid_outputs((int64_t)j * conv->dilation_w - conv->pad_left, conv->stride_w,
                             conv->width, conv->out_width, &map->outputs[j].first,
                             &map->outputs[j].last);
    map->row_kinds = list_kinds(conv->out_height, conv->stride_h, conv->pad_top, conv->dilation_h,
                                conv->kernel_h, conv->height, one, rows, map->row_kind);
    map->column_kinds =
        list_kinds(conv->out_width, conv->stride_w, conv->pad_left, conv->dilation_w,
                   conv->kernel_w, conv->width, one, columns, map->column_kind);
    return set_starts(conv, map, rows, columns);
}

static bool make_map(const xn_conv *conv, xn_cpu_map *map) {
    xn_cpu_range *rows = xn_mem_zalloc(kinds_of(conv->kernel_h, conv->out_height), sizeof *rows);
    xn_cpu_range *columns =
        xn_mem_zalloc(kinds_of(conv->kernel_w, conv->out_width), sizeof *columns);
    map->outputs = xn_mem_zalloc((size_t)conv->kernel_w, sizeof *map->outputs);
    map->row_kind = xn_mem_zalloc((size_t)conv->out_height, sizeof *map->row_kind);
    map->column_kind = xn_mem_zalloc((size_t)conv->out_width, sizeof *map->column_kind);
    const bool made = map->outputs && map->row_kind && map->column_kind && rows && columns &&
                      fill_map(conv, map, rows, columns);
    xn_mem_free(columns);
    xn_mem_free(rows);
    return made;
}

xn_cpu_map *xn_cpu_map_create(const xn_conv *conv) {
    xn_cpu_map *map = xn_mem_zalloc(1, sizeof *map);
    if (map && !make_map(conv, map)) {
        xn_cpu_map_free(map);
        map = NULL;
    }
    return map;
}

void xn_cpu_map_free(xn_cpu_map *map) {
    if (!map)
        return;
    xn_mem_free(map->column_kind);
    xn_mem_free(map->row_kind);
    for (int i = 0; i < 4; i++)
        xn_mem_free(map->corner[i]);
    xn_mem_free(map->base);
    xn_mem_free(map->outputs);
    xn_mem_free(map);
}
