/* work.c: see work.h. A bit costs little beside the tensors' elements around it. */
#include "work.h"

static double sum_ns(double bit_operations, double real_operations, double elements) {
    const double bit_ns = 0.002, real_ns = 0.04, element_ns = 0.15;
    return bit_ns * bit_operations + real_ns * real_operations + element_ns * elements;
}

double xn_work_image_ns(const xn_problem *problem) {
    const xn_network *network = problem->network;
    double operations = (double)xn_problem_operations(problem);
    if (network) {
        double bits = (double)network->bit_operations;
        return sum_ns(bits, operations > bits ? operations - bits : 0,
                      (double)network->moved_elements);
    }
    bool bits = problem->conv.mode == XN_MODE_XNOR;
    return sum_ns(bits ? operations : 0, bits ? 0 : operations,
                  (double)xn_problem_input_elements(problem) +
                      (double)xn_problem_output_elements(problem));
}

/* A run without anything to do takes 12 us. The link carries 40 bytes a ns for one thread, each way
 * half of them, and 60 for all. A network adds a kernel for each step. One image keeps few
 * multiprocessors busy, so the chip counts as fifty cores: a hundredth of it. */
double xn_work_gpu_ns(const xn_problem *problem, int64_t images) {
    const double run_ns = 12e3, step_ns = 3e3, byte_ns = 0.035;
    const double cores = 50;
    const double bytes =
        (double)xn_problem_input_bytes(problem) + (double)xn_problem_output_bytes(problem);
    const int more_steps = problem->network ? problem->network->step_count - 1 : 0;
    return run_ns + step_ns * more_steps +
           (byte_ns * bytes + xn_work_image_ns(problem) / cores) * (double)images;
}
