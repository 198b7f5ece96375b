/* many_map.c: what a plan for many channels knows of its geometry (many.h). */
#include "cpu.h"
#include "many.h"
#include "xn_arith.h"

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

xn_cpu_map *xn_cpu_map_create(const xn_conv *conv) {
    xn_cpu_map *map = xn_mem_zalloc(1, sizeof *map);
    if (!map)
        return NULL;
    map->outputs = xn_mem_zalloc((size_t)conv->kernel_w, sizeof *map->outputs);
    map->rows = xn_mem_zalloc(kinds_of(conv->kernel_h, conv->out_height), sizeof *map->rows);
    map->columns = xn_mem_zalloc(kinds_of(conv->kernel_w, conv->out_width), sizeof *map->columns);
    map->row_kind = xn_mem_zalloc((size_t)conv->out_height, sizeof *map->row_kind);
    map->column_kind = xn_mem_zalloc((size_t)conv->out_width, sizeof *map->column_kind);
    if (!map->outputs || !map->rows || !map->columns || !map->row_kind || !map->column_kind) {
        xn_cpu_map_free(map);
        return NULL;
    }
    for (int32_t j = 0; j < conv->kernel_w; j++)
        xn_cpu_valid_outputs((int64_t)j * conv->dilation_w - conv->pad_left, conv->stride_w,
                             conv->width, conv->out_width, &map->outputs[j].first,
                             &map->outputs[j].last);
    bool one = conv->pad_value < 0;
    map->row_kinds = list_kinds(conv->out_height, conv->stride_h, conv->pad_top, conv->dilation_h,
                                conv->kernel_h, conv->height, one, map->rows, map->row_kind);
    map->column_kinds =
        list_kinds(conv->out_width, conv->stride_w, conv->pad_left, conv->dilation_w,
                   conv->kernel_w, conv->width, one, map->columns, map->column_kind);
    map->classes = map->row_kinds * map->column_kinds;
    map->pitch = (int32_t)xn_cpu_max(map->classes, TABLE_LANES);
    return map;
}

void xn_cpu_map_free(xn_cpu_map *map) {
    if (!map)
        return;
    xn_mem_free(map->column_kind);
    xn_mem_free(map->row_kind);
    xn_mem_free(map->columns);
    xn_mem_free(map->rows);
    xn_mem_free(map->outputs);
    xn_mem_free(map);
}
