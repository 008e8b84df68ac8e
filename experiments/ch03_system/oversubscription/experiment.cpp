// A program that counts the machine's cores inside a container, or has 16 written in its configuration,
// starts more threads than may run. Work between barriers then waits for the slowest thread's turn on a CPU.
#include "lab/experiment.h"
#include "core/cpus.h"
#include "core/thread_pool.h"
#include "experiments/ch03_system/diffusion.h"

namespace fathom::lab::oversubscription {
namespace {

// `steps` steps of diffusion over n cells, one barrier a step                 fp32
//
// bytes   8 n
// flops   4 n steps
// limit   none physical: the barrier decides
// idea    the number of threads is the whole difference between the variants: host_threads() looks at the
//         affinity mask and at the control group's quota, not at the cores of the machine
void threads_of_pool(const Diffusion& p, Context& context) { diffuse(p, context.pool); }

}  // namespace

const Experiment<Diffusion> diffusion{
    .question = "What do more threads than CPUs cost work that meets at a barrier every few microseconds?",
    .limit    = Limit::none,
    .axes     = {{"n", {65536, 262144}}, {"steps", {256}}},
    .check_at = {{"n", {0, 1, 2, 3, 7, 61, 255, 256, 257, 4095, 4096, 4097}}, {"steps", {0, 1, 2, 5}}},
    .variants =
        {
            {.id      = "eight_per_cpu",
             .launch  = threads_of_pool,
             .idea    = "threads for a machine with eight times the CPUs that we may use",
             .threads = 8 * host_threads()},
            {.id         = "two_per_cpu",
             .launch     = threads_of_pool,
             .techniques = {"thread_count"},
             .idea       = "twice as many threads as CPUs, hoping to fill gaps",
             .prediction = predict::ratio(3),
             .threads    = 2 * host_threads()},
            {.id         = "one_per_cpu",
             .launch     = threads_of_pool,
             .techniques = {"thread_count"},
             .idea       = "as many as can run: affinity mask and control group's quota",
             .prediction = predict::ratio_at_least(8),
             .threads    = kAllThreads},
        },
};
FATHOM_REGISTER(diffusion);

}  // namespace fathom::lab::oversubscription
