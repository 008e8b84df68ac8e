// A model is one block many times. Why compile it as if it were not?
#include "lab/experiment.h"
#include "stack.h"

namespace fathom::lab::regional_compilation {

// Predictions: fusion takes most of a compilation, and grows a little faster than the number of layers. Both
// variants trace every layer and run the same steps, so that the ratio stays far below the number of layers.
// The whole model fuses each norm with the product before it, across blocks, which saves a launch a layer and
// 1 KB a token; with a few tokens that is little beside two products.
const Experiment<Stack> stack{
    .question =
        "What does it save to compile one block of a model and call it for every layer, and what do its "
        "steps lose?",
    .limit    = Limit::none,
    .axes     = {{"layers", {24, 4}}},
    .check_at = {{"layers", {0, 1, 2, 7}}},
    .variants =
        {
            {.id         = "whole",
             .launch     = whole,
             .techniques = {"graph_capture", "compiler_fusion"},
             .idea       = "all layers are one program, compiled at the first step and at another shape",
             .prediction = {}},
            {.id         = "regional",
             .launch     = regional,
             .techniques = {"graph_capture", "compiler_fusion", "regional_compilation"},
             .idea       = "equal blocks are compiled once, at the first step and at another shape",
             .prediction = predict::ratio_at_least(2)},
            {.id         = "whole_kept",
             .techniques = {"graph_capture", "compiler_fusion"},
             .idea       = "compiled before: the steps alone",
             .prediction = predict::ratio_at_least(2),
             .prepare    = whole_kept},
            {.id         = "regional_kept",
             .techniques = {"graph_capture", "compiler_fusion", "regional_compilation"},
             .idea       = "compiled before: the steps alone, a block's code for every layer",
             .prediction = predict::ratio_at_least(2),
             .prepare    = regional_kept},
        },
    .catalog = {"compile-014", "compile-024"},
    .aliases = {"ch16:regional_compilation"},
};
FATHOM_REGISTER(stack);

}  // namespace fathom::lab::regional_compilation
