// A scheduler hides the latency of one warp's instruction behind those of its other warps. If a kernel gives
// it a single warp, the other instructions must come from that warp and be independent.
#include <cmath>

#include "balances.h"
#include "lab/experiment.h"

namespace fathom::lab::ilp {

// Below 1, so that balances stay finite, and so near to it that the first deposits still count in the last
// period.
Balances::Balances(const Point& at, Arena& arena)
    : growth(arena.input<float>({at["n"]}, Uniform{0.999, 0.99975})),
      deposit(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})) {}

Cost Balances::cost() const {
  return {.read    = growth.bytes() + deposit.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * kPeriods * static_cast<double>(out.extent(0))};
}

// All deposits of an account have one sign, so the magnitude is that of the balance.
Sum Balances::expected(int64_t i) const {
  double balance = 0;
  for (int period = 0; period < kPeriods; ++period) balance = balance * growth(i) + deposit(i);
  return {.value = balance, .magnitude = std::abs(balance), .length = kPeriods};
}

const Experiment<Balances> balances{
    .question = "How many independent chains does one warp need to keep a scheduler of the GPU busy?",
    // FMAs of three different registers stop at two thirds of the FMA peak, and no control measures that
    // (notes.md).
    .limit = Limit::none,
    // 32 accounts for each of 132 x 128 threads.
    .axes     = {{"n", {540672}}},
    .check_at = {{"n", {0, 1, 31, 127, 128, 129, 1009, 16897, 40009}}},
    .variants =
        {
            {.id         = "one_chain",
             .launch     = on_gpu(one_chain),
             .techniques = {},
             .idea       = "one account a thread: each FMA waits for the one before",
             .prediction = predict::nothing()},
            {.id         = "two_chains",
             .launch     = on_gpu(two_chains),
             .techniques = {"instruction_level_parallelism"},
             .idea       = "two accounts side by side in each thread",
             .prediction = predict::ratio(2)},
            {.id         = "four_chains",
             .launch     = on_gpu(four_chains),
             .techniques = {"instruction_level_parallelism"},
             .idea       = "four: the latency of an FMA in cycles",
             .prediction = predict::ratio(2.6)},
            {.id         = "eight_chains",
             .launch     = on_gpu(eight_chains),
             .techniques = {"instruction_level_parallelism"},
             .idea       = "eight: some to spare",
             .prediction = predict::ratio(2.6)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-003"},
};
FATHOM_REGISTER(balances);

}  // namespace fathom::lab::ilp
