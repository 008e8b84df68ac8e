// Tokens of which the model is certain might do with fewer bits. Which tokens need the better half of the
// bits: those after an uncertain choice, those whose numbers lose most, or any?
#include "lab/experiment.h"

#include "row_formats.h"

namespace fathom::lab::precision_by_entropy {
namespace {

const Experiment<RoundedForward> experiment{
    .question =
        "Half of the tokens in FP8 and half in FP4 (emulated): which half should the entropy of the "
        "next-token "
        "distribution choose, and is that better than chance?",
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
            {.id         = "entropy",
             .launch     = entropy,
             .techniques = {"fp8", "block_scaling", "dynamic_precision", "entropy_precision"},
             .idea       = "FP8 after the least certain choices, which is a token late",
             .prediction = predict::ratio(0.45)},
            {.id         = "own_entropy",
             .launch     = own_entropy,
             .techniques = {"fp8", "block_scaling", "dynamic_precision", "entropy_precision"},
             .idea       = "FP8 for the least certain tokens themselves: no decoder knows them in time",
             .prediction = predict::ratio(0.45)},
            {.id         = "block_error",
             .launch     = block_error,
             .techniques = {"fp8", "block_scaling", "dynamic_precision"},
             .idea       = "FP8 for the tokens whose activations lose most in FP4",
             .prediction = predict::ratio(0.45)},
            {.id         = "chance",
             .launch     = chance,
             .techniques = {"fp8", "block_scaling", "dynamic_precision"},
             .idea       = "FP8 for a half drawn by lot",
             .prediction = predict::ratio(0.9)},
        },
    .catalog = {"adaptive-003", "adaptive-004"},
};
FATHOM_REGISTER(experiment);

}  // namespace
}  // namespace fathom::lab::precision_by_entropy
