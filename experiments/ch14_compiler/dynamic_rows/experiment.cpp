// Code for one shape is of no use to the next. A server sees a new number of rows at almost every step.
#include "lab/experiment.h"
#include "rows.h"

namespace fathom::lab::dynamic_rows {

const Experiment<Rows> rows{
    .question = "What does it cost to compile every shape, and what does an extent that stays a symbol save?",
    .limit    = Limit::none,
    .axes     = {{"batches", {32, 4}}, {"dim", {512}}},
    .check_at = {{"batches", {0, 1, 2, 3, 7}}, {"dim", {1, 7, 33, 512}}},
    .variants =
        {
            {.id         = "each_shape",
             .launch     = each_shape,
             .techniques = {"graph_capture"},
             .idea       = "every number of rows is captured and compiled",
             .prediction = {}},
            {.id         = "symbol",
             .launch     = symbol,
             .techniques = {"graph_capture", "guards", "dynamic_shapes"},
             .idea       = "the second value makes the extent a symbol: two compilations",
             .prediction = predict::ratio_at_least(1.5)},
            {.id         = "kept",
             .techniques = {"graph_capture", "guards", "dynamic_shapes"},
             .idea       = "compiled before: only guards are checked",
             .prediction = predict::ratio_at_least(3),
             .prepare    = kept},
        },
    .catalog = {"compile-012", "compile-013"},
};
FATHOM_REGISTER(rows);

}  // namespace fathom::lab::dynamic_rows
