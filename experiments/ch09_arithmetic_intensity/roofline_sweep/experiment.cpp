// The same chain of multiply-adds on every element, longer from point to point: at first memory is the limit
// and arithmetic is free. roofline_compute is the other side of the ridge, with the same kernels.
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>

#include "sweep.h"

namespace fathom::lab::roofline_sweep {

Sweep::Sweep(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})),
      fmas(static_cast<int>(at["fmas"])) {}

Cost Sweep::cost() const {
  return {.read = in.bytes(), .written = out.bytes(), .flops = 2.0 * fmas * static_cast<double>(in.size())};
}

Sum Sweep::expected(int64_t i) const {
  double x = in(i), largest = std::abs(x);
  for (int k = 0; k < fmas; ++k) {
    x       = x * kFactor + kSummand;
    largest = std::max(largest, std::abs(x));
  }
  return {.value = x, .magnitude = largest, .length = fmas};
}

const Experiment<Sweep> sweep{
    .question = "How much arithmetic is free beside the memory traffic of an element?",
    .limit    = Limit::memory,
    // 2^27: 1 GiB. 67 multiply-adds would take as long as 8 bytes: 33.5e12 a second against 3.98 TB/s.
    .axes     = {{"fmas", {8, 1, 32, 64}}, {"n", {1 << 27}}},
    .check_at = {{"fmas", {1, 7, 8, 9, 64, 100}}, {"n", {0, 1, 3, 4, 5, 61, 1023, 2047, 2048, 2049, 10007}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = on_gpu(plain),
             .techniques = {"roofline"},
             .idea       = "an element a thread: 4 bytes a load, one chain",
             .prediction = predict::share(0.82)},
            {.id         = "blocked",
             .launch     = on_gpu(blocked),
             .techniques = {"roofline", "vectorization", "instruction_level_parallelism",
                            "register_blocking"},
             .idea       = "8 elements a thread: 2 loads of 16 bytes, 8 chains side by side",
             .prediction = predict::share_at_least(0.88)},
        },
    .backend = Backend::cuda,
    .group   = "roofline",
};
FATHOM_REGISTER(sweep);

}  // namespace fathom::lab::roofline_sweep
