/* replay.c: runs files through a target, as they are and mutated, where there is no libFuzzer:
 *     replay TARGET ROUNDS SEED FILE...
 * A round mutates one of the files. What aborts is left beside the program, as REPLAY-crash. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES 8192

typedef struct input {
    uint8_t bytes[MOST_BYTES];
    size_t size;
} input;

static size_t read_file(const char *path, uint8_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    size_t size = fread(bytes, 1, MOST_BYTES, file);
    fclose(file);
    return size;
}

/* Written before it runs, so that it is there whatever ends the process. */
static void run(const xf_target *target, const char *crash, const uint8_t *bytes, size_t size) {
    FILE *file = fopen(crash, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) {
        perror(crash);
        exit(2);
    }
    uint8_t *exact = xf_alloc(size);
    memcpy(exact, bytes, size);
    target->run(exact, size);
    free(exact);
}

int main(int argc, char **argv) {
    const xf_target *target = argc > 4 ? xf_target_find(argv[1]) : NULL;
    if (!target) {
        fprintf(stderr, "replay TARGET ROUNDS SEED FILE...; targets:");
        for (const xf_target *t = xf_targets; t->name; t++)
            fprintf(stderr, " %s", t->name);
        fprintf(stderr, "\n");
        return 2;
    }
    unsigned long long rounds = strtoull(argv[2], NULL, 0);
    uint64_t state = strtoull(argv[3], NULL, 0);
    char crash[512];
    static input mutated;
    int files = argc - 4;
    snprintf(crash, sizeof crash, "%s-crash", argv[0]);
    printf("%s: %d files, %llu rounds, seed %s; what fails is in %s: replay it with\n    %s %s 0 0 "
           "%s\n",
           target->name, files, rounds, argv[3], crash, argv[0], target->name, crash);
    fflush(stdout);
    for (int i = 0; i < files; i++) {
        mutated.size = read_file(argv[4 + i], mutated.bytes);
        xf_running = argv[4 + i];
        run(target, crash, mutated.bytes, mutated.size);
    }
    for (unsigned long long round = 0; round < rounds; round++) {
        const char *path = argv[4 + (int)(round % (unsigned)files)];
        xf_running = path;
        mutated.size = read_file(path, mutated.bytes);
        for (int n = 1 + (int)(state % 5); n > 0; n--)
            mutated.size = xf_mutate(&state, mutated.bytes, mutated.size, MOST_BYTES);
        run(target, crash, mutated.bytes, mutated.size);
    }
    remove(crash);
    return 0;
}
