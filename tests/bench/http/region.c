/* region.c: see http.h. */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void bench_region_make(bench_region *r, const char *name, size_t bytes,
                       const struct sockaddr_in *server) {
    char path[128], json[128];
    ol_message message;
    r->size = bytes;
    snprintf(r->key, sizeof r->key, "/xnord-bench-%d-%s", (int)getpid(), name);
    const int fd = shm_open(r->key, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        xn_bench_fail(r->key, strerror(errno));
    r->bytes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (r->bytes == MAP_FAILED)
        xn_bench_fail(r->key, strerror(errno));
    close(fd);
    snprintf(path, sizeof path, "/v2/systemsharedmemory/region/%s/register", name);
    snprintf(json, sizeof json, "{\"key\": \"%s\", \"offset\": 0, \"byte_size\": %zu}", r->key,
             bytes);
    ol_message_build("POST", path, json, "", 0, 1, &message);
    free(ol_ask(&message, 0, server, NULL));
    ol_message_free(&message);
}

void bench_region_free(bench_region *r) {
    munmap(r->bytes, r->size);
    shm_unlink(r->key); /* the daemon has it open */
}

void bench_region_offsets(ol_message *message, size_t each_in, size_t each_out) {
    char digits[16];
    for (size_t i = 0; i < message->variants; i++) {
        char *at = message->bytes + i * message->length, *end = at + message->length;
        for (size_t each = each_in; /* first the input's, then the output's */
             (at = memmem(at, (size_t)(end - at), BENCH_OFFSET, strlen(BENCH_OFFSET)));
             each = each_out) {
            snprintf(digits, sizeof digits, "%8zu", i * each);
            memcpy(at, digits, strlen(BENCH_OFFSET));
        }
    }
}
