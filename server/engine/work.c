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
