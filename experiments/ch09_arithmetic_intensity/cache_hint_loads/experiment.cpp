// A matrix is read once while every row uses the same vector. The vector would fit in L1, but the matrix goes
// through L1 too and evicts it, so the vector is read from L2 again.
#include "lab/experiment.h"

#include <cmath>

#include "gemv.h"

namespace fathom::lab::cache_hint_loads {

Gemv::Gemv(const Point& at, Arena& arena)
    : a(arena.input<bf16>({at["m"], at["k"]}, Uniform{-1, 1})),
      x(arena.input<float>({at["k"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["m"]})) {}

Cost Gemv::cost() const {
  return {
      .read = a.bytes() + x.bytes(), .written = out.bytes(), .flops = 2.0 * static_cast<double>(a.size())};
}

Sum Gemv::expected(int64_t m) const {
  Sum sum{.length = a.extent(1)};
  for (int64_t k = 0; k < a.extent(1); ++k) {
    const double product = static_cast<double>(static_cast<float>(a(m, k))) * x(k);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

const Experiment<Gemv> gemv{
    .question = "Do loads that bypass L1 keep the reused vector in L1?",
    .limit    = Limit::memory,
    // A row is 80 KiB and x 160 KiB: two rows at a time and x are more than L1, x alone is not. 671 MB.
    .axes     = {{"k", {40960}}, {"m", {8192}}},
    .check_at = {{"k", {1, 3, 4, 5, 7, 8, 12, 61, 1000, 4092, 4096, 4100, 4104, 10007, 40960}},
                 {"m", {0, 1, 3, 4, 5, 7}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = on_gpu(plain),
             .techniques = {"read_only_path"},
             .idea       = "a block of 1024 threads to a row; both through L1",
             .prediction = predict::share(0.65)},
            {.id         = "no_allocate",
             .launch     = on_gpu(no_allocate),
             .techniques = {"read_only_path", "cache_hints", "inline_ptx"},
             .idea       = "the matrix by ld.global.nc.L1::no_allocate.L2::256B",
             .prediction = predict::ratio_at_least(1.2)},
            {.id         = "cache_global",
             .launch     = on_gpu(cache_global),
             .techniques = {"read_only_path", "cache_hints", "inline_ptx"},
             .idea       = "the matrix by ld.global.cg",
             .prediction = predict::ratio_at_least(1.2)},
            {.id         = "prefetched",
             .launch     = on_gpu(prefetched),
             .techniques = {"read_only_path", "cache_hints", "software_prefetch", "inline_ptx"},
             .idea       = "no_allocate, and cp.async.bulk.prefetch.L2 for the row of the next wave",
             .prediction = predict::ratio_at_least(1.2),
             .needs      = {machine::Feature::tma}},
            {.id         = "four_rows",
             .launch     = on_gpu(four_rows),
             .techniques = {"read_only_path", "register_blocking"},
             .idea       = "no hint: four rows share each element of x while it is in a register",
             .prediction = predict::ratio_at_least(1.2)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-020"},
};
FATHOM_REGISTER(gemv);

}  // namespace fathom::lab::cache_hint_loads
