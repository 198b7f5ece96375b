/* main.c: pictures a second from a JPEG in memory to a network's input (decode, resize, crop),
 * beside libjpeg-turbo's decoding alone, on some threads; `make bench-pictures` runs pillow.py
 * behind it, with the same files. bench-pictures FOLDER [THREADS [SECONDS]] writes the files there.
 *
 * The files are made here: 500 x 375 as ImageNet's are on average, 4:2:0, quality 90, noise of
 * all scales: about 110 KB, as there. Rounds of all kinds alternate, the median counts. */
#include "xn_mem.h"
#include "xn_picture.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

enum { WIDTH = 500, HEIGHT = 375, FILES = 8, ROUNDS = 7, MOST_THREADS = 64 };

typedef struct file {
    unsigned char *bytes;
    unsigned long length;
} file;

static file files[FILES];

/* ---- files ---- */

static unsigned hash(unsigned x, unsigned y, unsigned seed) {
    unsigned h = x * 374761393u + y * 668265263u + seed * 2246822519u;
    h = (h ^ h >> 13) * 1274126177u;
    return h ^ h >> 16;
}

/* Random at whole coordinates, linear between them: -1 to 1. */
static double noise(double x, double y, unsigned seed) {
    const unsigned i = (unsigned)x, j = (unsigned)y;
    const double u = x - i, v = y - j;
    double corner[4];
    for (unsigned c = 0; c < 4; c++)
        corner[c] = hash(i + (c & 1), j + (c >> 1), seed) / 2147483648.0 - 1;
    return (corner[0] * (1 - u) + corner[1] * u) * (1 - v) +
           (corner[2] * (1 - u) + corner[3] * u) * v;
}

static unsigned char sample(unsigned x, unsigned y, unsigned seed) {
    double value = 128, weight = 80;
    for (unsigned scale = 128; scale >= 1; scale /= 2) {
        value += weight * noise((double)x / scale, (double)y / scale, seed + scale);
        weight *= 0.86;
    }
    return (unsigned char)fmin(fmax(value, 0), 255);
}

static void make_file(unsigned number, file *out) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char line[WIDTH * 3], *row = line;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &out->bytes, &out->length);
    jpeg.image_width = WIDTH;
    jpeg.image_height = HEIGHT;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 90, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (unsigned y = 0; y < HEIGHT; y++) {
        for (unsigned x = 0; x < WIDTH; x++) {
            const int light = sample(x, y, number * 100), hue = sample(x, y, number * 100 + 7) / 4;
            line[3 * x] = (unsigned char)(light * 3 / 4 + hue);
            line[3 * x + 1] = (unsigned char)light;
            line[3 * x + 2] = (unsigned char)(light * 3 / 4 + 63 - hue);
        }
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
}

static void write_file(const char *folder, int number) {
    char path[512];
    snprintf(path, sizeof path, "%s/%d.jpg", folder, number);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(files[number].bytes, 1, files[number].length, out) != files[number].length ||
        fclose(out)) {
        perror(path);
        exit(1);
    }
}

/* ---- what is measured ---- */

static xn_picture_rule rule_of(void) {
    const xn_shape shape = {3, {224, 224, 3}};
    xn_picture_rule rule;
    xn_picture_rule_default(XN_UINT8, XN_IMAGE_NHWC, &shape, &rule);
    rule.resize = 256;
    return rule;
}

static void read_input(const file *from) {
    static _Thread_local unsigned char values[224 * 224 * 3];
    const xn_picture_rule rule = rule_of();
    xn_picture picture;
    xn_error error;
    if (xn_picture_inspect(from->bytes, from->length, 1 << 24, "file", &picture, &error) ||
        xn_picture_read(&picture, &rule, "file", NULL, values, &error)) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
}

static void decode_alone(const file *from) {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char line[WIDTH * 3], *row = line;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, from->bytes, from->length);
    jpeg_read_header(&jpeg, TRUE);
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height)
        jpeg_read_scanlines(&jpeg, &row, 1);
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
}

static const struct {
    const char *name;
    void (*run)(const file *from);
} kinds[] = {{"xnord: decode, resize, crop", read_input},
             {"libjpeg-turbo: decode alone", decode_alone}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- rounds ---- */

typedef struct worker {
    pthread_t thread;
    int kind;
    double seconds;
    long pictures;
} worker;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *context) {
    worker *w = context;
    const double end = now() + w->seconds;
    for (; now() < end; w->pictures++)
        kinds[w->kind].run(&files[w->pictures % FILES]);
    return NULL;
}

static double measure(int kind, int threads, double seconds) {
    worker workers[MOST_THREADS] = {{0}};
    long pictures = 0;
    const double begin = now();
    for (int i = 0; i < threads; i++) {
        workers[i] = (worker){.kind = kind, .seconds = seconds};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            exit(1);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        pictures += workers[i].pictures;
    }
    return (double)pictures / (now() - begin);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments) {
    const int threads = count > 2 ? atoi(arguments[2]) : 2;
    const double seconds = count > 3 ? atof(arguments[3]) : 1;
    double rates[KINDS][ROUNDS], alone;
    if (count < 2 || threads < 1 || threads > MOST_THREADS || seconds <= 0) {
        fprintf(stderr, "bench-pictures FOLDER [THREADS [SECONDS]]\n");
        return 2;
    }
    for (int i = 0; i < FILES; i++) {
        make_file((unsigned)i, &files[i]);
        write_file(arguments[1], i);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++)
            rates[kind][round] = measure(kind, threads, seconds);
    for (int kind = 0; kind < KINDS; kind++)
        qsort(rates[kind], ROUNDS, sizeof(double), by_value);
    alone = rates[KINDS - 1][ROUNDS / 2];
    printf(
        "JPEG of %d x %d, %lu bytes, %d threads, pictures a second: median (least, most), and of "
        "decoding alone\n",
        WIDTH, HEIGHT, files[0].length, threads);
    for (int kind = 0; kind < KINDS; kind++)
        printf("%-30s %8.0f (%.0f, %.0f) %6.2f\n", kinds[kind].name, rates[kind][ROUNDS / 2],
               rates[kind][0], rates[kind][ROUNDS - 1], rates[kind][ROUNDS / 2] / alone);
    for (int i = 0; i < FILES; i++)
        free(files[i].bytes);
    return 0;
}
