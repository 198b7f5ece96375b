/* xnord-demo-pnm: pictures for the demo, between netpbm files and raw floats.
 *
 *   xnord-demo-pnm draw OUT.pgm                     a test picture
 *   xnord-demo-pnm floats IN OUT.f32                a PGM or PPM as [1,1,H,W]; prints "W H"
 *   xnord-demo-pnm picture IN.f32 WIDTH HEIGHT OUT.pgm   [1,C,H,W] as a grey picture
 *   xnord-demo-pnm digit IN OUT.u8                  a PGM or PPM of a digit as 8x8 bytes, 0 to 16
 *   xnord-demo-pnm png IN.pgm OUT.png               a PGM or PPM as a grey PNG, for browsers
 *
 * XNOR convolution looks at the sign of its input and weighs the result by the mean size of the
 * input around it (K of XNOR-Net's Eq. 10). A pixel's brightness is never negative, so all signs
 * would be +1 and no structure would be left. `floats` therefore subtracts from each pixel the mean
 * of the box around it: what stays is positive where the picture is brighter than its
 * neighbourhood, negative where it is darker, and near 0 where it is flat, which is exactly what
 * sign and K pick up. The floats are little-endian, row by row.
 *
 * `digit` makes of a picture what the network in deploy/demo/digits was trained with: 8x8 bytes, 0
 * for paper and 16 for ink. A picture whose border is brighter than its middle is dark ink on paper
 * and turned round; what is around the ink is cut off; cells are means. One of 8x8 is taken as it
 * is.
 *
 * This is not a general netpbm reader: it takes P2, P3, P5 and P6 (the first picture of a file). */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define MAX_SIDE 32768
#define MAX_PIXELS (INT64_C(1) << 25) /* two fp32 output channels of it are xnord's 256 MiB */
#define MAX_CHANNELS 64
#define BOX_RADIUS 7 /* pixels to each side in the mean that `floats` subtracts */
#define WHITE 65535

typedef struct {
    int width, height;
    uint16_t *samples; /* grey, 0..WHITE, row by row */
} picture;

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("xnord-demo-pnm: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* false, so that callers write: return fail("%s: ...", path); */
#define fail(...) (complain(__VA_ARGS__), false)

static FILE *open_file(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (!file)
        complain("%s: %s", path, strerror(errno));
    return file;
}

/* A file that was written to: everything must have reached it. */
static bool close_written(FILE *file, const char *path) {
    bool good = !ferror(file);
    if (fclose(file) || !good)
        return fail("%s: writing failed: %s", path, strerror(errno));
    return true;
}

static bool picture_create(picture *p, int64_t width, int64_t height, const char *path) {
    if (width < 1 || height < 1 || width > MAX_SIDE || height > MAX_SIDE ||
        width * height > MAX_PIXELS)
        return fail("%s: the picture is %lld x %lld; from 1 x 1 up to %d a side and %lld pixels "
                    "are possible",
                    path, (long long)width, (long long)height, MAX_SIDE, (long long)MAX_PIXELS);
    p->width = (int)width;
    p->height = (int)height;
    p->samples = calloc((size_t)(width * height), sizeof *p->samples);
    return p->samples || fail("%s: no memory for %lld pixels", path, (long long)(width * height));
}

/* ---- reading ---- */

/* The next character that is neither white space nor in a comment, or EOF. */
static int skip_blank(FILE *in) {
    int c;
    do {
        c = getc(in);
        if (c == '#')
            while (c != '\n' && c != EOF)
                c = getc(in);
    } while (isspace(c));
    return c;
}

/* The next number of a header or of a plain raster, and the one white-space character after it,
 * which ends a header. */
static bool read_number(FILE *in, const char *path, const char *what, int64_t *out) {
    int c = skip_blank(in);
    int64_t value = 0;
    if (c == EOF)
        return fail("%s: ends where %s should be", path, what);
    if (!isdigit(c))
        return fail("%s: %s is not a number", path, what);
    for (; isdigit(c); c = getc(in))
        if ((value = value * 10 + (c - '0')) > INT32_MAX)
            return fail("%s: %s is too large", path, what);
    if (c != EOF && !isspace(c))
        return fail("%s: %s is followed by '%c' instead of white space", path, what, c);
    *out = value;
    return true;
}

static bool read_sample(FILE *in, const char *path, bool plain, int64_t maximum, int64_t *out) {
    if (plain) {
        if (!read_number(in, path, "a sample", out))
            return false;
    } else {
        int high = maximum > 255 ? getc(in) : 0;
        int low = getc(in);
        if (high == EOF || low == EOF)
            return fail("%s: ends before its last pixel", path);
        *out = high << 8 | low;
    }
    if (*out > maximum)
        return fail("%s: a sample is %lld, over the file's own maximum %lld", path, (long long)*out,
                    (long long)maximum);
    return true;
}

/* Colours become grey by the weights of Rec. 601, in thousandths. */
static bool read_raster(FILE *in, const char *path, char kind, int64_t maximum, picture *p) {
    static const int64_t weight[3] = {299, 587, 114};
    bool plain = kind == '2' || kind == '3', colour = kind == '3' || kind == '6';
    for (int64_t i = 0; i < (int64_t)p->width * p->height; i++) {
        int64_t grey = 0, sample;
        for (int k = 0; k < (colour ? 3 : 1); k++) {
            if (!read_sample(in, path, plain, maximum, &sample))
                return false;
            grey += sample * (colour ? weight[k] : 1000);
        }
        p->samples[i] = (uint16_t)((grey * WHITE + maximum * 500) / (maximum * 1000));
    }
    return true;
}

static const char *format_name(const unsigned char *magic) {
    if (magic[0] == 0x89 && magic[1] == 'P')
        return "a PNG file";
    if (magic[0] == 0xff && magic[1] == 0xd8)
        return "a JPEG file";
    if (magic[0] == 'P' && (magic[1] == '1' || magic[1] == '4'))
        return "a black-and-white PBM file";
    return "no netpbm file that this program knows";
}

static bool read_picture(const char *path, picture *p) {
    unsigned char magic[2] = {0};
    int64_t width, height, maximum;
    bool good = false;
    FILE *in = open_file(path, "rb");
    if (!in)
        return false;
    if (fread(magic, 1, 2, in) != 2 || magic[0] != 'P' || !memchr("2356", magic[1], 4)) {
        complain(
            "%s: this is %s; a PGM or PPM (P2, P3, P5, P6) is needed, which ImageMagick makes: "
            "convert %s picture.pgm",
            path, format_name(magic), path);
        goto end;
    }
    if (!read_number(in, path, "the width", &width) ||
        !read_number(in, path, "the height", &height) ||
        !read_number(in, path, "the maximum", &maximum))
        goto end;
    if (maximum < 1 || maximum > 65535) {
        complain("%s: the maximum is %lld; 1 to 65535 are possible", path, (long long)maximum);
        goto end;
    }
    good =
        picture_create(p, width, height, path) && read_raster(in, path, (char)magic[1], maximum, p);
end:
    fclose(in);
    return good;
}

/* ---- floats ---- */

static void put_float(FILE *out, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int shift = 0; shift < 32; shift += 8)
        putc((int)(bits >> shift & 0xff), out);
}

static bool get_float(FILE *in, float *value) {
    uint32_t bits = 0;
    for (int shift = 0; shift < 32; shift += 8) {
        int c = getc(in);
        if (c == EOF)
            return false;
        bits |= (uint32_t)c << shift;
    }
    memcpy(value, &bits, sizeof bits);
    return true;
}

static void add_row(const picture *p, int y, int sign, int64_t *columns) {
    if (y < 0 || y >= p->height)
        return;
    for (int x = 0; x < p->width; x++)
        columns[x] += sign * (int64_t)p->samples[(int64_t)y * p->width + x];
}

static int clamp(int value, int low, int high) {
    return value < low ? low : value > high ? high : value;
}

/* columns[x] is the sum of column x over the box's rows, and the box slides along a row by one
 * column in and one out: exact integers, whatever the radius. At the border the box is cut off, and
 * the mean is that of the pixels inside. */
static void write_centred(const picture *p, int64_t *columns, FILE *out) {
    for (int y = 0; y <= BOX_RADIUS - 1; y++)
        add_row(p, y, 1, columns);
    for (int y = 0; y < p->height; y++) {
        int rows = clamp(y + BOX_RADIUS, 0, p->height - 1) - clamp(y - BOX_RADIUS, 0, y) + 1;
        int64_t sum = 0;
        add_row(p, y + BOX_RADIUS, 1, columns);
        add_row(p, y - BOX_RADIUS - 1, -1, columns);
        for (int x = 0; x < clamp(BOX_RADIUS, 0, p->width); x++)
            sum += columns[x];
        for (int x = 0; x < p->width; x++) {
            int left = x - BOX_RADIUS, right = x + BOX_RADIUS;
            sum += right < p->width ? columns[right] : 0;
            sum -= left > 0 ? columns[left - 1] : 0;
            int count = rows * (clamp(right, 0, p->width - 1) - clamp(left, 0, x) + 1);
            double mean = (double)sum / count;
            put_float(out, (float)((p->samples[(int64_t)y * p->width + x] - mean) / WHITE));
        }
    }
}

static bool make_floats(const char *from, const char *to) {
    picture p = {0};
    int64_t *columns = NULL;
    FILE *out = NULL;
    bool good = read_picture(from, &p);
    if (!good)
        goto end;
    columns = calloc((size_t)p.width, sizeof *columns);
    good = columns || fail("no memory for a row of %d pixels", p.width);
    if (!good || !(out = open_file(to, "wb"))) {
        good = false;
        goto end;
    }
    write_centred(&p, columns, out);
    good = close_written(out, to);
    if (good)
        printf("%d %d\n", p.width, p.height);
end:
    free(columns);
    free(p.samples);
    return good;
}

/* ---- a digit ---- */

#define DIGIT_SIDE 8
#define DIGIT_INK 16

typedef struct {
    int left, top, right, bottom; /* right and bottom are one past the last */
} box;

static double mean_of(const picture *p, const box *b) {
    int64_t sum = 0, count = 0;
    for (int y = b->top > 0 ? b->top : 0; y < b->bottom && y < p->height; y++)
        for (int x = b->left > 0 ? b->left : 0; x < b->right && x < p->width; x++, count++)
            sum += p->samples[(int64_t)y * p->width + x];
    return count ? (double)sum / (double)count : 0;
}

/* Ink becomes bright. A pixel of border tells paper from ink. */
static void make_ink_bright(picture *p) {
    const int64_t pixels = (int64_t)p->width * p->height;
    const box all = {0, 0, p->width, p->height}, inner = {1, 1, p->width - 1, p->height - 1};
    const double inside = mean_of(p, &inner) * (p->width - 2) * (p->height - 2);
    const double border = mean_of(p, &all) * (double)pixels - inside;
    if (border <= WHITE / 2.0 * (2.0 * (p->width + p->height) - 4))
        return;
    for (int64_t i = 0; i < pixels; i++)
        p->samples[i] = (uint16_t)(WHITE - p->samples[i]);
}

/* The smallest box around what is at least half as bright as the brightest pixel. */
static box box_of_ink(const picture *p) {
    box b = {p->width, p->height, 0, 0};
    uint16_t brightest = 0;
    for (int64_t i = 0; i < (int64_t)p->width * p->height; i++)
        brightest = p->samples[i] > brightest ? p->samples[i] : brightest;
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            if (p->samples[(int64_t)y * p->width + x] < brightest / 2 + 1)
                continue;
            b.left = x < b.left ? x : b.left;
            b.right = x >= b.right ? x + 1 : b.right;
            b.top = y < b.top ? y : b.top;
            b.bottom = y + 1;
        }
    return b;
}

/* Made a square around its middle; it may reach out of the picture, where there is paper. */
static box square(box b) {
    const int width = b.right - b.left, height = b.bottom - b.top;
    const int side = width > height ? width : height;
    b.left -= (side - width) / 2;
    b.top -= (side - height) / 2;
    b.right = b.left + side;
    b.bottom = b.top + side;
    return b;
}

/* The part of an interval from low to high that cell `index` has; at least a pixel. */
static void cell_of(int low, int high, int index, int *from, int *to) {
    *from = low + (high - low) * index / DIGIT_SIDE;
    *to = low + (high - low) * (index + 1) / DIGIT_SIDE;
    if (*to == *from)
        ++*to;
}

static bool make_digit(const char *from, const char *to) {
    picture p = {0};
    FILE *out = NULL;
    bool good = read_picture(from, &p) && (out = open_file(to, "wb"));
    if (!good)
        goto end;
    box ink = {0, 0, p.width, p.height};
    if (p.width != DIGIT_SIDE || p.height != DIGIT_SIDE) {
        make_ink_bright(&p);
        ink = box_of_ink(&p);
        good = ink.right > ink.left || fail("%s: there is nothing on it", from);
        ink = square(ink);
    }
    for (int i = 0; good && i < DIGIT_SIDE * DIGIT_SIDE; i++) {
        box cell;
        cell_of(ink.left, ink.right, i % DIGIT_SIDE, &cell.left, &cell.right);
        cell_of(ink.top, ink.bottom, i / DIGIT_SIDE, &cell.top, &cell.bottom);
        putc((int)lround(mean_of(&p, &cell) * DIGIT_INK / WHITE), out);
    }
    good = close_written(out, to) && good;
end:
    free(p.samples);
    return good;
}

/* ---- writing ---- */

static void put_big(FILE *out, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
        putc((int)(value >> shift & 0xff), out);
}

static bool write_pgm(const picture *p, const char *path) {
    FILE *out = open_file(path, "wb");
    if (!out)
        return false;
    fprintf(out, "P5\n%d %d\n255\n", p->width, p->height);
    for (int64_t i = 0; i < (int64_t)p->width * p->height; i++)
        putc(p->samples[i] * 255 / WHITE, out);
    return close_written(out, path);
}

/* A chunk of a PNG file: its length, type and contents, and the check sum of the latter two. */
static void put_chunk(FILE *out, const char type[4], const unsigned char *bytes, uint32_t count) {
    uLong check = crc32(crc32(0, (const unsigned char *)type, 4), bytes, count);
    put_big(out, count);
    fwrite(type, 1, 4, out);
    fwrite(bytes, 1, count, out);
    put_big(out, (uint32_t)check);
}

/* Rows of 8-bit grey, each behind a byte that says it is not filtered. */
static unsigned char *png_rows(const picture *p, uLong *count) {
    const size_t row = (size_t)p->width + 1;
    unsigned char *rows = malloc(row * (size_t)p->height);
    *count = (uLong)(row * (size_t)p->height);
    for (int y = 0; rows && y < p->height; y++) {
        rows[(size_t)y * row] = 0;
        for (int x = 0; x < p->width; x++)
            rows[(size_t)y * row + 1 + (size_t)x] =
                (unsigned char)(p->samples[(int64_t)y * p->width + x] * 255 / WHITE);
    }
    return rows;
}

static bool write_png(const picture *p, const char *path) {
    unsigned char head[13] = {[8] = 8 /* bits */, 0 /* grey */};
    uLong count, packed_count = 0;
    unsigned char *rows = png_rows(p, &count), *packed = NULL;
    FILE *out = NULL;
    bool good = rows != NULL;
    if (good) {
        packed_count = compressBound(count);
        packed = malloc(packed_count);
        good = packed && compress2(packed, &packed_count, rows, count, 6) == Z_OK;
    }
    if (!good) {
        complain("%s: no memory for %d x %d pixels", path, p->width, p->height);
    } else if ((out = open_file(path, "wb")) != NULL) {
        for (int i = 0; i < 4; i++) {
            head[i] = (unsigned char)(p->width >> (24 - 8 * i));
            head[4 + i] = (unsigned char)(p->height >> (24 - 8 * i));
        }
        fwrite("\x89PNG\r\n\x1a\n", 1, 8, out);
        put_chunk(out, "IHDR", head, sizeof head);
        put_chunk(out, "IDAT", packed, (uint32_t)packed_count);
        put_chunk(out, "IEND", head, 0);
    }
    free(packed);
    free(rows);
    return out && close_written(out, path);
}

static bool make_png(const char *from, const char *to) {
    picture p = {0};
    bool good = read_picture(from, &p) && write_png(&p, to);
    free(p.samples);
    return good;
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The value that 1 in 200 pixels exceeds: it becomes white. The maximum would let one pixel decide
 * how dark all others are. */
static float white_level(const float *values, int64_t count) {
    float *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return -1;
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_floats);
    float level = sorted[count - 1 - count / 200];
    free(sorted);
    return level > 0 ? level : 1;
}

/* Adds the squares of all channels of the file to sums. */
static bool add_squares(FILE *in, const char *path, int64_t pixels, float *sums) {
    float value;
    int64_t read = 0;
    for (; get_float(in, &value); read++) {
        if (!isfinite(value))
            return fail("%s: value %lld is not finite", path, (long long)read);
        if (read >= pixels * MAX_CHANNELS)
            return fail("%s: more than %d channels", path, MAX_CHANNELS);
        sums[read % pixels] += value * value;
    }
    if (read == 0 || read % pixels != 0)
        return fail("%s: has %lld floats, which is no multiple of the %lld pixels", path,
                    (long long)read, (long long)pixels);
    return true;
}

/* The channels are joined as the length of their vector: for one horizontal and one vertical
 * gradient that is the strength of the edge in any direction. */
static bool make_picture(const char *from, const char *width, const char *height, const char *to) {
    picture p = {0};
    float *sums = NULL;
    FILE *in = NULL;
    bool good =
        picture_create(&p, strtoll(width, NULL, 10), strtoll(height, NULL, 10), "WIDTH HEIGHT");
    int64_t pixels = (int64_t)p.width * p.height;
    if (!good)
        return false;
    sums = calloc((size_t)pixels, sizeof *sums);
    good = sums || fail("no memory for %lld pixels", (long long)pixels);
    if (!good || !(in = open_file(from, "rb")) || !add_squares(in, from, pixels, sums)) {
        good = false;
        goto end;
    }
    float white = white_level(sums, pixels);
    good = white > 0 || fail("no memory to sort %lld pixels", (long long)pixels);
    for (int64_t i = 0; good && i < pixels; i++)
        p.samples[i] = (uint16_t)(WHITE * fmin(1, sqrt((double)sums[i] / white)));
    good = good && write_pgm(&p, to);
end:
    if (in)
        fclose(in);
    free(sums);
    free(p.samples);
    return good;
}

/* ---- the test picture ---- */

#define DRAWN_WIDTH 640
#define DRAWN_HEIGHT 480

/* "XNOR" in 5 x 7 dots, one row of all four letters a string. */
static const char *const letters[7] = {"x...x.x...x..xxx..xxxx.", "x...x.xx..x.x...x.x...x",
                                       ".x.x..xx..x.x...x.x...x", "..x...x.x.x.x...x.xxxx.",
                                       ".x.x..x..xx.x...x.x.x..", "x...x.x..xx.x...x.x..x.",
                                       "x...x.x...x..xxx..x...x"};
#define LETTER_DOT 9 /* pixels a dot */
#define LETTERS_X 330
#define LETTERS_Y 60

static bool in_letters(int x, int y) {
    int column = (x - LETTERS_X) / LETTER_DOT, row = (y - LETTERS_Y) / LETTER_DOT;
    return x >= LETTERS_X && y >= LETTERS_Y && row < 7 && column < (int)strlen(letters[row]) &&
           letters[row][column] == 'x';
}

/* Brightness 0..1: on a diagonal gradient a lit ball, a square frame, the letters, a triangle of
 * low contrast, and lines that come ever closer. */
static double brightness(int x, int y) {
    double ball = hypot(x - 150, y - 140);
    if (ball < 100)
        return 0.25 + 0.7 * fmax(0, 1 - hypot(x - 115, y - 105) / 150);
    if (in_letters(x, y))
        return 0.08;
    if (x >= 60 && x < 260 && y >= 290 && y < 440 && !(x >= 85 && x < 235 && y >= 315 && y < 415))
        return 0.9;
    if (y >= 180 && y < 280 && abs(x - 440) < (y - 180))
        return 0.42 + 0.0004 * x;
    if (x >= 320 && x < 600 && y >= 320 && y < 430)
        return sin(0.00035 * (x - 280) * (x - 280)) > 0 ? 0.85 : 0.15;
    return 0.35 + 0.0003 * x + 0.0002 * y;
}

static bool draw(const char *path) {
    picture p = {0};
    uint32_t noise = 1;
    if (!picture_create(&p, DRAWN_WIDTH, DRAWN_HEIGHT, path))
        return false;
    for (int y = 0; y < p.height; y++)
        for (int x = 0; x < p.width; x++) {
            /* A camera's grain, within 1 %: edges must stand out from it. */
            noise = noise * 1664525u + 1013904223u;
            double value = brightness(x, y) + 0.01 * ((noise >> 16) / 32768.0 - 1);
            p.samples[y * p.width + x] = (uint16_t)(WHITE * fmin(1, fmax(0, value)));
        }
    bool good = write_pgm(&p, path);
    free(p.samples);
    return good;
}

int main(int argc, char **argv) {
    bool good;
    if (argc == 3 && !strcmp(argv[1], "draw")) {
        good = draw(argv[2]);
    } else if (argc == 4 && !strcmp(argv[1], "floats")) {
        good = make_floats(argv[2], argv[3]);
    } else if (argc == 6 && !strcmp(argv[1], "picture")) {
        good = make_picture(argv[2], argv[3], argv[4], argv[5]);
    } else if (argc == 4 && !strcmp(argv[1], "digit")) {
        good = make_digit(argv[2], argv[3]);
    } else if (argc == 4 && !strcmp(argv[1], "png")) {
        good = make_png(argv[2], argv[3]);
    } else {
        fputs("usage: xnord-demo-pnm draw OUT.pgm\n"
              "       xnord-demo-pnm floats IN.pgm|IN.ppm OUT.f32\n"
              "       xnord-demo-pnm picture IN.f32 WIDTH HEIGHT OUT.pgm\n"
              "       xnord-demo-pnm digit IN.pgm|IN.ppm OUT.u8\n"
              "       xnord-demo-pnm png IN.pgm|IN.ppm OUT.png\n",
              stderr);
        return 2;
    }
    return good ? 0 : 1;
}
