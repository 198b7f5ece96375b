/* fibers.h: the threads, locks and clock of a simulation. The simulator is linked with
 * `-Wl,--wrap` for the functions of pthread.h that the daemon's parts call (Makefile), and its
 * clock is given to them (clock.h), so the code under test is the code that ships: its threads
 * become fibers of the one real thread, and which of them runs next is drawn from a seed wherever a
 * thread could lose its processor to another: before and after a lock, at a wait, a signal, a start
 * and an end. A wait may end for no reason, as POSIX allows.
 *
 * Time is virtual. It moves on by FIBERS_STEP_NS with each switch; where every fiber waits, it
 * jumps to the first one that is due. Nothing sleeps for real. */
#ifndef XN_FIBERS_H
#define XN_FIBERS_H

#include "xn_rng.h"

#include <stdbool.h>
#include <stdint.h>

#define FIBERS_STEP_NS 50

typedef struct fibers_options {
    xn_rng *rng;               /* borrowed */
    unsigned preempt_percent;  /* how often a fiber that could go on is switched from */
    unsigned spurious_percent; /* how often a wait ends for no reason when time is up for another */
    /* Called between two steps of fibers, when none of them holds a lock. */
    void (*between)(void);
    /* Called before time jumps: every fiber waits. */
    void (*resting)(void);
    /* Every fiber waits for another: the run cannot go on. Does not return. */
    void (*deadlock)(void);
} fibers_options;

/* Runs body as the first fiber, until it returns; by then every other one has ended. */
void fibers_run(const fibers_options *options, void (*body)(void));

int64_t fibers_now(void); /* virtual nanoseconds */
void fibers_sleep(int64_t ns);
/* Another fiber may run here. */
void fibers_yield(void);
int fibers_self(void); /* number of the running fiber */
const char *fibers_name(void);
int fibers_locks_held(void); /* by the running fiber */
/* That mutex does not count as one: it is held for long, to do things one after the other. */
void fibers_uncount(const void *mutex);
/* Steps of fibers since fibers_run began. */
uint64_t fibers_steps(void);
/* What all fibers hold together, as xn_mem_held counts. */
int64_t fibers_memory(void);
/* One line for each fiber that has not ended: what it waits for. */
void fibers_print(void);

/* A fiber that is not joined. */
void fibers_start(const char *name, void (*body)(void *argument), void *argument);

#endif
