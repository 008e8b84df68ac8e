// A model that is called for one sample at a time reads all its weights for each of them.
#include "lab/experiment.h"
#include "mlp.h"

namespace fathom::lab::mlp_batched_cpu {

const Experiment<Mlp> mlp{
    .question = "What does a small network gain when one call takes all samples instead of one of them?",
    .limit    = Limit::flops,
    // 64 samples: ten register tiles of six, and a remainder of four. 8 samples: one, and two.
    .axes     = {{"samples", {64, 8}}},
    .check_at = {{"samples", {0, 1, 2, 5, 6, 7, 13}}},
    .variants = {{.id         = "sample_by_sample",
                  .launch     = sample_by_sample,
                  .techniques = {},
                  .idea       = "a loop over the samples; each reads the weights",
                  .prediction = predict::share(0.4)},
                 {.id         = "batched",
                  .launch     = batched,
                  .techniques = {"batching"},
                  .idea       = "the same function, once: samples share the weights",
                  .prediction = predict::ratio_at_least(2)}},
    .catalog  = {"harness-012"},
    .aliases  = {"ch01:performance"},
};
FATHOM_REGISTER(mlp);

}  // namespace fathom::lab::mlp_batched_cpu
