// A rule of thumb chooses the precision of a layer by the largest magnitude of its activations: below 6 FP4,
// below 240 FP8, else BF16. Does that magnitude say what a format with scales loses?
#include "lab/experiment.h"

#include "site_formats.h"

namespace fathom::lab::precision_by_amax {
namespace {

const Experiment<RoundedForward> experiment{
    .question =
        "Inputs of products in FP4, FP8 or BF16 (emulated), layer by layer: does their largest magnitude "
        "choose "
        "better than chance, and than the error that FP4 makes?",
    .axes     = {{"tokens", {320}}},
    .quick    = {{"tokens", {96}}},
    .check_at = {{"tokens", {0, 1, 31, 100}}},
    .variants =
        {
            {.id = "all_bf16", .launch = all_bf16, .techniques = {}, .idea = "16 bits everywhere"},
            {.id         = "all_fp8",
             .launch     = all_fp8,
             .techniques = {"fp8", "dynamic_precision"},
             .idea       = "8 bits everywhere, a scale for each row",
             .prediction = predict::ratio(0.95)},
            {.id         = "all_fp4",
             .launch     = all_fp4,
             .techniques = {"block_scaling", "dynamic_precision"},
             .idea       = "4 bits everywhere, a scale for each 16 numbers",
             .prediction = predict::ratio(0.9)},
            {.id         = "amax",
             .launch     = amax,
             .techniques = {"fp8", "block_scaling", "dynamic_precision"},
             .idea       = "per layer: amax below 6 FP4, below 240 FP8, else BF16",
             .prediction = predict::ratio(0.45)},
            {.id         = "block_error",
             .launch     = block_error,
             .techniques = {"fp8", "block_scaling", "dynamic_precision"},
             .idea       = "as many in each format, FP4 where it errs least",
             .prediction = predict::ratio(0.45)},
            {.id         = "chance",
             .launch     = chance,
             .techniques = {"fp8", "block_scaling", "dynamic_precision"},
             .idea       = "as many in each format, drawn by lot",
             .prediction = predict::ratio(0.45)},
        },
    .catalog = {"adaptive-002"},
};
FATHOM_REGISTER(experiment);

}  // namespace
}  // namespace fathom::lab::precision_by_amax
