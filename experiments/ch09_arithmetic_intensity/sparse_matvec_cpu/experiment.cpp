// A list of nonzeros has fewer bytes than the matrix as soon as half of it is zero. From which density on is
// a product with it faster?
#include "lab/experiment.h"
#include "sparse_matrix.h"

namespace fathom::lab::sparse_matvec_cpu {

const Experiment<SparseMatrix> sparse_matvec{
    .question = "How sparse must a matrix be before a product that skips its zeros is faster?",
    .limit    = Limit::memory,
    // 64 MiB of fp32, in DRAM; x is 16 KiB, in L1.
    .axes = {{"n", {4096}}, {"pattern", {"scattered", "blocks"}}, {"density", {0.05, 0.01, 0.1, 0.2, 0.4}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 15, 16, 17, 61, 127}},
                 {"pattern", {"scattered", "blocks"}},
                 {"density", {0.0, 0.05, 0.3, 1.0}}},
    .variants =
        {
            {.id         = "dense",
             .launch     = dense,
             .techniques = {},
             .idea       = "all places, in eight vectors of sums",
             .prediction = predict::nothing()},
            {.id         = "csr",
             .launch     = csr,
             .techniques = {"sparse_storage"},
             .idea       = "a list of values and columns, one running sum: an FMA's latency a nonzero",
             .prediction = predict::ratio(2)},
            {.id         = "csr_chains",
             .launch     = csr_chains,
             .techniques = {"instruction_level_parallelism", "sparse_storage"},
             .idea       = "the same list in four running sums",
             .prediction = predict::ratio(6)},
            {.id         = "csr_gather",
             .launch     = csr_gather,
             .techniques = {"simd", "instruction_level_parallelism", "sparse_storage"},
             .idea       = "the same list, eight nonzeros at once by gather",
             .prediction = predict::ratio(6)},
            {.id         = "bitmap",
             .launch     = bitmap,
             .techniques = {"simd", "sparse_storage"},
             .idea       = "a bit for each place; the nonzeros of eight places spread over a vector",
             .prediction = predict::ratio(1)},
            {.id         = "bsr",
             .launch     = bsr,
             .techniques = {"simd", "sparse_storage", "block_sparsity"},
             .idea       = "blocks of 8 x 8 that have a nonzero, an index for each",
             .prediction = predict::ratio(1)},
            {.id         = "openblas",
             .idea       = "cblas_sgemv on the dense matrix",
             .prediction = predict::ratio(1),
             .kind       = Kind::library,
             .prepare    = openblas,
             .library    = "libopenblas.so.0"},
        },
    .catalog = {"book-012"},
};
FATHOM_REGISTER(sparse_matvec);

}  // namespace fathom::lab::sparse_matvec_cpu
