// A chain of products may be bracketed in any way. The result is the same, and the work may differ a
// hundredfold. Does the time?
#include "lab/experiment.h"
#include "chain.h"

namespace fathom::lab::matrix_chain_cpu {

const Experiment<Chain> chain{
    .question = "Other brackets take a hundred times the multiplications: how many times the time?",
    .limit    = Limit::flops,
    // 75,000 against 7,500,000 multiply-adds, and ten times the first and the third size: 7,500,000 against
    // 75,000,000.
    .axes     = {{"chain", {"10x1000x5x500", "100x1000x50x500"}}},
    .check_at = {{"chain",
                  {"0x7x5x3", "3x0x5x4", "4x7x0x5", "5x7x3x0", "1x1x1x1", "7x13x5x11", "8x8x8x8", "9x17x7x15",
                   "16x31x17x33"}}},
    .variants =
        {
            {.id         = "left_first",
             .launch     = left_first,
             .techniques = {},
             .idea       = "(A B) C, as it is written",
             .prediction = predict::share(0.1)},
            {.id         = "right_first",
             .launch     = right_first,
             .techniques = {},
             .idea       = "A (B C): the same loops, the other brackets",
             .prediction = predict::ratio(0.05)},
            {.id         = "openblas_left_first",
             .idea       = "(A B) C by cblas_sgemm",
             .prediction = predict::ratio_at_least(1),
             .kind       = Kind::library,
             .prepare    = openblas_left_first,
             .library    = "libopenblas.so.0"},
        },
    .catalog = {"book-011"},
};
FATHOM_REGISTER(chain);

}  // namespace fathom::lab::matrix_chain_cpu
