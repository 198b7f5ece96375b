/* stem_tiles.h: products of bytes by planes of 8 bits, by AMX: 16 filters by 16 columns by 64 terms
 * at a time. A filter's weights end in zeros, so whatever bytes the last tile of words has past the
 * filter do not count. */
enum { SIDE = XN_CPU_STEM_UNIT, MOST_PLANES = 3, LOADED_BYTES = SIDE * 4 };

/* Tiles 0 to 2: sums by each plane; 3 to 5: weights of each; 6: words. All are 16 rows of 64 bytes.
 */
static void configure(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } all = {.palette = 1};
    for (int t = 0; t < 2 * MOST_PLANES + 1; t++) {
        all.row_bytes[t] = LOADED_BYTES;
        all.rows[t] = SIDE;
    }
    _tile_loadconfig(&all);
}

/* acc: [planes][16 filters][16 columns]. */
INLINE void multiply_tile(const xn_cpu_stem_product *p, const int8_t *weights, int32_t column,
                          const int planes, int32_t *acc) {
    const int64_t row = (int64_t)xn_cpu_stem_pitch(p->count) * 4, plane = p->filters * row;
    const int64_t columns = (int64_t)p->columns * 4;
    _tile_zero(0);
    _tile_zero(1);
    if (planes == 3)
        _tile_zero(2);
    for (int32_t k = 0; k < p->count; k += SIDE) {
        const int8_t *w = weights + (int64_t)k * 4;
        _tile_loadd(6, p->words + (int64_t)k * p->columns + column, columns);
        _tile_loadd(3, w, row);
        _tile_dpbsud(0, 3, 6);
        _tile_loadd(4, w + plane, row);
        _tile_dpbsud(1, 4, 6);
        if (planes == 3) {
            _tile_loadd(5, w + 2 * plane, row);
            _tile_dpbsud(2, 5, 6);
        }
    }
    _tile_stored(0, acc, LOADED_BYTES);
    _tile_stored(1, acc + SIDE * SIDE, LOADED_BYTES);
    if (planes == 3)
        _tile_stored(2, acc + 2 * SIDE * SIDE, LOADED_BYTES);
}

INLINE void multiply_all(const xn_cpu_stem_product *p, const int planes, float *values) {
    const int64_t row = (int64_t)xn_cpu_stem_pitch(p->count) * 4;
    _Alignas(64) int32_t acc[MOST_PLANES][SIDE][SIDE];
    for (int32_t x = 0; x < p->columns; x += SIDE)
        for (int32_t f = 0; f < p->filters; f += SIDE) {
            multiply_tile(p, (const int8_t *)p->weights + f * row, x, planes, &acc[0][0][0]);
            for (int n = 0; n < SIDE; n++) {
                const vector_i32 low =
                    *(const vector_i32 *)acc[1][n] * 128 + *(const vector_i32 *)acc[0][n];
                store_values(p, f + n, x,
                             planes == 2 ? __builtin_convertvector(low, vector_f32)
                                         : joined(*(const vector_i32 *)acc[2][n], low),
                             values);
            }
        }
}

static void multiply(const xn_cpu_stem_product *p, float *values) {
    configure();
    if (p->planes == 2)
        multiply_all(p, 2, values);
    else
        multiply_all(p, 3, values);
    _tile_release();
}
