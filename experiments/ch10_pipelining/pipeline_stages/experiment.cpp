// A block that owns its multiprocessor has no neighbours that compute while it waits. How many stages must
// its pipeline have, and is it their number that counts, or the bytes that are on their way?
#include "lab/experiment.h"

#include "experiments/ch10_pipelining/rms_norm_problem.h"
#include "rows.h"

namespace fathom::lab::pipeline_stages {
namespace {

const std::vector<machine::Feature> kTma = {machine::Feature::tma};

const Experiment<RmsNorm> stages{
    .question = "How many stages does a pipeline need when one block has the multiprocessor for itself?",
    .limit    = Limit::memory,
    // A stage is a row: 8, 4 or 16 KiB.
    .axes = {{"width", {2048, 1024, 4096}}, {"rows", {32768}}},
    // 1000 rows: more than 6 for each of 132 blocks, so that every ring wraps.
    .check_at = {{"width", {4, 8, 124, 1020, 1024, 1028, 8192}}, {"rows", {0, 1, 131, 133, 1000}}},
    .variants = {{.id         = "many_blocks",
                  .launch     = on_gpu(many_blocks),
                  .techniques = {},
                  .idea       = "no pipeline: a block a row, other blocks hide latency",
                  .prediction = predict::share(0.9)},
                 {.id         = "one_stage",
                  .launch     = on_gpu(one_stage),
                  .techniques = {"tma_pipeline", "persistent_kernel"},
                  .idea       = "one block a multiprocessor; load, wait, compute, one after the other",
                  .prediction = predict::ratio(0.6),
                  .needs      = kTma},
                 {.id         = "two_stages",
                  .launch     = on_gpu(two_stages),
                  .techniques = {"tma_pipeline", "persistent_kernel", "double_buffering"},
                  .idea       = "double buffering: the next row is on its way while this one is computed",
                  .prediction = predict::ratio(0.9),
                  .needs      = kTma},
                 {.id         = "three_stages",
                  .launch     = on_gpu(three_stages),
                  .techniques = {"tma_pipeline", "persistent_kernel", "multi_stage_pipeline"},
                  .idea       = "two rows on their way",
                  .prediction = predict::ratio(1.0),
                  .needs      = kTma},
                 {.id         = "four_stages",
                  .launch     = on_gpu(four_stages),
                  .techniques = {"tma_pipeline", "persistent_kernel", "multi_stage_pipeline"},
                  .idea       = "three rows on their way",
                  .prediction = predict::ratio(1.0),
                  .needs      = kTma},
                 {.id         = "six_stages",
                  .launch     = on_gpu(six_stages),
                  .techniques = {"tma_pipeline", "persistent_kernel", "multi_stage_pipeline"},
                  .idea       = "five rows on their way",
                  .prediction = predict::ratio(1.0),
                  .needs      = kTma}},
    .backend  = Backend::cuda,
    .catalog  = {"pipeline-003", "pipeline-004", "memory-022"},
};
FATHOM_REGISTER(stages);

}  // namespace
}  // namespace fathom::lab::pipeline_stages
