/* device.h: the devices of a simulation: backend ref with durations and faults. A run is computed
 * when its virtual time is over, not when it is given: memory that went too early is found. Two
 * tables: a GPU's, whose runs go on while the caller looks after them (`wait`), and a CPU's, whose
 * runs take the caller. Misuse breaks a law (laws.h). */
#ifndef XN_SIM_DEVICE_H
#define XN_SIM_DEVICE_H

#include "xn_backend.h"
#include "xn_rng.h"

enum { SIM_DEVICES = 3 };

typedef enum { SIM_GPU, SIM_CPU, SIM_KINDS } sim_kind;

/* Of one device, as the faults of a world set it. */
typedef struct sim_device_state {
    bool lost;         /* runs, weights, plans, memory, canary: XN_ERR_DEVICE_LOST */
    bool told;         /* a call answered so */
    bool hung;         /* no run and no canary ends before it is well again */
    bool canary_fails; /* wrong results */
    int64_t unfit_ns;  /* when its canary failed last; 0: the last one passed, or none ran */
    bool in_canary;
    unsigned short_percent; /* of allocations that find no device memory */
    unsigned fail_percent;  /* of runs that fail with XN_ERR_INTERNAL */
    int64_t run_ns;         /* about how long a run takes */
    int runs;               /* under way */
} sim_device_state;

typedef struct sim_devices {
    xn_rng *rng;
    sim_device_state each[SIM_KINDS][SIM_DEVICES];
    int live; /* devices, streams, plans, weights, host memory that are not freed */
    uint64_t runs;
} sim_devices;

extern sim_devices devices;
extern const xn_backend sim_gpu, sim_cpu;

/* A run of these images begins (or its piece): the world looks whether they may be together. */
void world_sees_run(const xn_batch *batch, const xn_prepared *prepared);
/* Weights are about to be prepared on a device. */
void world_sees_prepare(const xn_weights *weights);

#endif
