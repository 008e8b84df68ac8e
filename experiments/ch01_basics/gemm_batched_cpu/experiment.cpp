// A product of 32 x 32 matrices takes less than a microsecond. What do the calls cost, and what does one call
// for the whole batch gain?
#include "lab/experiment.h"
#include "gemm_batched.h"

namespace fathom::lab::gemm_batched_cpu {
namespace {

const Experiment<GemmBatched> gemm_batched{
    .question = "What do many small matrix products gain when they are handed over as one batch?",
    .limit    = Limit::flops,
    // 512 products of 32 x 32 are 6 MB: three sets of them fit in L3.
    .axes     = {{"size", {32, 16, 8}}, {"batch", {512}}},
    .check_at = {{"size", {0, 1, 7, 8, 16, 31, 32, 33}}, {"batch", {0, 1, 5}}},
    .variants = {{.id         = "one_by_one",
                  .launch     = one_by_one,
                  .techniques = {},
                  .idea       = "a loop that calls a general matrix product for each",
                  .prediction = predict::share(0.2)},
                 {.id         = "batched",
                  .launch     = batched,
                  .techniques = {"batching"},
                  .idea       = "one call: the size is checked once, the loop is compiled for it",
                  .prediction = predict::ratio_at_least(2)},
                 {.id         = "openblas",
                  .idea       = "cblas_sgemm for each",
                  .prediction = predict::ratio(1.5),
                  .kind       = Kind::library,
                  .prepare    = openblas,
                  .library    = "libopenblas.so.0"},
                 {.id         = "onednn",
                  .idea       = "oneDNN's matmul, the batch in one call",
                  .prediction = predict::ratio(2),
                  .kind       = Kind::library,
                  .prepare    = onednn_matmul,
                  .library    = "libdnnl.so.2"}},
    .catalog  = {"harness-014"},
    .group    = "gemm_batched",
};
FATHOM_REGISTER(gemm_batched);

}  // namespace
}  // namespace fathom::lab::gemm_batched_cpu
