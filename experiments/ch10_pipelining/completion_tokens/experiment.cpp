// A row that fills shared memory leaves room for no second one, so nothing overlaps unless pieces of it do.
// What is it worth that each piece of a load has a completion of its own?
#include "lab/experiment.h"

#include "experiments/ch10_pipelining/rms_norm_problem.h"
#include "pieces.h"

namespace fathom::lab::completion_tokens {
namespace {

const Experiment<RmsNorm> pieces{
    .question =
        "What is it worth that each piece of a load has a completion of its own, instead of one for all?",
    .limit = Limit::memory,
    // 50304: the vocabulary of GPT-2, padded. 201 KB a row, one block a multiprocessor; 10 rows for each of
    // 132.
    .axes = {{"width", {50304}}, {"rows", {1320}}},
    // Pieces of one vector, empty ones, and a short last one. 300 rows: several for each block.
    .check_at = {{"width", {4, 8, 28, 32, 36, 4100, 50304}}, {"rows", {0, 1, 3, 300}}},
    .variants = {{.id         = "one_wait",
                  .launch     = on_gpu(one_wait),
                  .techniques = {"tma_pipeline"},
                  .idea       = "one barrier for the eight pieces of a row",
                  .prediction = predict::share(0.75),
                  .needs      = {machine::Feature::tma}},
                 {.id         = "wait_per_piece",
                  .launch     = on_gpu(wait_per_piece),
                  .techniques = {"tma_pipeline", "completion_tokens"},
                  .idea       = "a barrier for each piece: it is summed while later ones arrive",
                  .prediction = predict::ratio(1.05),
                  .needs      = {machine::Feature::tma}},
                 {.id         = "refill_per_piece",
                  .launch     = on_gpu(refill_per_piece),
                  .techniques = {"tma_pipeline", "completion_tokens", "persistent_kernel"},
                  .idea       = "a stored piece's place is refilled with the next row's",
                  .prediction = predict::ratio(1.2),
                  .needs      = {machine::Feature::tma}}},
    .backend  = Backend::cuda,
    .catalog  = {"pipeline-001"},
};
FATHOM_REGISTER(pieces);

}  // namespace
}  // namespace fathom::lab::completion_tokens
