// Data parallelism keeps everything everywhere and sums all gradients. A mesh of ranks cuts the model along
// other axes too: what does each cut keep, and what does it send?
#include "lab/experiment.h"
#include "training.h"

namespace fathom::lab::device_mesh_cpu {

const Experiment<Training> device_mesh_cpu{
    .question =
        "One code path on four meshes: what does a rank keep, what does it send, and what does that save of "
        "a "
        "step?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {8, 64}}},
    .check_at = {{"tokens", {0, 1, 2, 7, 11}}},
    .variants =
        {
            {.id         = "dp4",
             .techniques = {"device_mesh", "data_parallel", "collectives"},
             .idea       = "every rank has the whole model; all gradients are summed",
             .prediction = predict::nothing(),
             .prepare    = dp4},
            {.id         = "dp2_tp2",
             .techniques = {"device_mesh", "data_parallel", "tensor_parallel", "collectives"},
             .idea       = "two ranks share a replica, each with half of the hidden units",
             .prediction = predict::ratio_at_least(1.2),
             .prepare    = dp2_tp2},
            {.id         = "ep2_dp2",
             .techniques = {"device_mesh", "data_parallel", "collectives"},
             .idea       = "a rank has half of the experts, and tokens go to them",
             .prediction = predict::ratio_at_least(1.2),
             .prepare    = ep2_dp2},
            {.id         = "ep2_tp2",
             .techniques = {"device_mesh", "tensor_parallel", "collectives"},
             .idea       = "both: no expert's gradient travels",
             .prediction = predict::ratio_at_least(1.3),
             .prepare    = ep2_tp2},
        },
    .catalog = {"usecase-014"},
    .ranks   = kRanks,
};
FATHOM_REGISTER(device_mesh_cpu);

}  // namespace fathom::lab::device_mesh_cpu
