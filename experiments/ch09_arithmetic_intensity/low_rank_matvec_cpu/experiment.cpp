// A matrix of rank r is the product of two thin ones. In a product with one vector each of its numbers is
// read for one multiply-add, so factors save bytes and arithmetic alike. Does the time fall with them?
#include "lab/experiment.h"
#include "low_rank.h"

namespace fathom::lab::low_rank_matvec_cpu {

const Experiment<LowRank> low_rank{
    .question = "Up to which rank is a matrix faster as two factors, and by how much?",
    .limit    = Limit::memory,
    // W has 64 MiB, the factors 32 KiB a rank: as many with rank 2048.
    .axes     = {{"n", {4096}}, {"rank", {256, 64, 1024, 2048, 3072}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 61, 63, 64, 65, 127, 129}}, {"rank", {1, 7, 8, 63, 64, 128}}},
    .variants =
        {
            {.id         = "multiplied_out",
             .launch     = multiplied_out,
             .techniques = {},
             .idea       = "W x: every place of the matrix",
             .prediction = predict::nothing()},
            {.id         = "factored",
             .launch     = factored,
             .techniques = {"low_rank_factorization"},
             .idea       = "U (V x): two thin matrices, as many bytes as they hold",
             .prediction = predict::share_at_least(0.8)},
            {.id         = "openblas_factored",
             .idea       = "cblas_sgemv twice",
             .prediction = predict::share_at_least(0.8),
             .kind       = Kind::library,
             .prepare    = openblas_factored,
             .library    = "libopenblas.so.0"},
        },
    // Weights of a model: many matrices are read before the same one is needed again.
    .cache   = Cache::cold,
    .catalog = {"book-011"},
};
FATHOM_REGISTER(low_rank);

}  // namespace fathom::lab::low_rank_matvec_cpu
