/* engine_fake.h: two backends that tests steer, named "cuda" (4 devices) and "cpu" (1), and jobs
 * for them. A run multiplies each image's one value by the weights' one value, so that every answer
 * shows which input and which weights it came from. A gated run posts `entered` and waits for
 * `gate`. A GPU that hangs ends no run and no canary; later it computes what it was given; failures
 * and memory are dialled in; live objects and calls are counted; each run is recorded. Misuse (a
 * stream used by two threads, a foreign handle, a call on a lost device other than a free, memory
 * pinned twice, or unpinned while a run uses it) aborts the test. */
#ifndef XN_ENGINE_FAKE_H
#define XN_ENGINE_FAKE_H

#include "clock.h"
#include "engine_struct.h"
#include "xn_test.h"

#include <semaphore.h>

enum { FAKE_GPU, FAKE_CPU, FAKE_KINDS };
enum { FAKE_DEVICES = 4, FAKE_MAX_RECORDS = 4096, FAKE_MAX_PINS = 512 };

typedef struct fake_record {
    int ordinal;
    size_t count;
    int64_t images;
    float weight, first_input;
} fake_record;

/* Memory of another's. stale: unpinned when the device was lost; nothing else may lie there. */
typedef struct fake_pin {
    const unsigned char *memory;
    size_t bytes;
    int runs; /* that use it now */
    bool stale;
} fake_pin;

typedef struct fake_control {
    sem_t entered, gate;
    atomic_bool gated;
    atomic_bool hung[FAKE_DEVICES];    /* of GPUs: see above */
    atomic_bool lost[FAKE_DEVICES];    /* run, prepare and canary answer DEVICE_LOST */
    atomic_int run_failure;            /* xn_status of the next runs */
    atomic_int canary_failure;         /* xn_status */
    atomic_int prepare_failure;        /* xn_status */
    atomic_int prepare_short;          /* so many next ones are out of memory, */
    atomic_int prepare_short_after;    /* after so many that are not */
    atomic_llong memory[FAKE_DEVICES]; /* images that all plans of a device may hold; 0 = any */
    atomic_llong run_memory;           /* images a run may have; 0 = any */
    atomic_int live_devices, live_streams, live_plans, live_prepared, live_host;
    atomic_int plan_creates, prepares;
    atomic_int threads_now, threads_most; /* of set_threads, over runs in flight */
    sem_t canary_done;                    /* posted by each canary */
    sem_t prepare_entered, prepare_gate;
    atomic_bool prepare_gated;
    atomic_int register_failure; /* xn_status of the next ones */
    atomic_int registers, live_pins;
    atomic_int pinned_inputs, pinned_outputs; /* of runs, in pinned memory */
    pthread_mutex_t mutex;                    /* guards all below */
    size_t pinned_bytes, most_pinned_bytes;
    int pin_count;
    fake_pin pins[FAKE_MAX_PINS];
    int record_count;
    fake_record records[FAKE_MAX_RECORDS];
} fake_control;

extern fake_control fake[FAKE_KINDS];
extern const xn_backend fake_gpu, fake_cpu;

void fake_reset(void); /* before each test that uses a fake */
void fake_expect_all_freed(void);
fake_record fake_record_get(int kind, int index);
int fake_record_count(int kind);

/* Waits for a post; the test fails where none comes for a minute. */
void fake_wait_at(sem_t *sem, const char *file, int line);
#define fake_wait(sem) fake_wait_at(sem, __FILE__, __LINE__)

#endif
