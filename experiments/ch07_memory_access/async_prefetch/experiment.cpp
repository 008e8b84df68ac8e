// Each sample of a filter's input is used by 32 outputs, so a block takes a tile of them into shared memory.
// While it waits for the tile it computes nothing, and while it computes no load is in flight. Other resident
// blocks fill the gaps; what can asynchronous copies still add?
#include "lab/experiment.h"

#include <cmath>

#include "filter.h"

namespace fathom::lab::async_prefetch {

Filter::Filter(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"] + kTaps - 1}, Uniform{-1, 1})),
      taps(arena.input<float>({kTaps}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})) {}

Cost Filter::cost() const {
  return {.read    = in.bytes() + taps.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * kTaps * static_cast<double>(out.size())};
}

Sum Filter::expected(int64_t i) const {
  Sum sum{.length = kTaps};
  for (int64_t t = 0; t < kTaps; ++t) {
    const double product = static_cast<double>(taps(t)) * in(i + t);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

namespace {

const Experiment<Filter> filter{
    .question = "What do asynchronous copies add to a kernel that computes on tiles in shared memory?",
    .limit    = Limit::memory,
    .axes     = {{"n", {int64_t{1} << 27}}},  // 1.07 GB in all
    // A tile has 2048 outputs; the four-stage pipeline of a block is full from its fourth tile on.
    .check_at = {{"n", {0, 1, 3, 4, 31, 2047, 2048, 2049, 4099, 1000003, 5000011}}},
    .variants = {{.id         = "plain",
                  .launch     = on_gpu(plain),
                  .techniques = {},
                  .idea       = "a block loads its tile through registers, waits, computes",
                  .prediction = predict::share(0.75)},
                 {.id         = "double_buffered",
                  .launch     = on_gpu(double_buffered),
                  .techniques = {"async_copy"},
                  .idea       = "the next tile is copied by cp.async while this one is computed",
                  .prediction = predict::ratio(1.15)},
                 {.id         = "four_stages",
                  .launch     = on_gpu(four_stages),
                  .techniques = {"async_copy"},
                  .idea       = "three tiles are in flight at any time",
                  .prediction = predict::share_at_least(0.9)}},
    .backend  = Backend::cuda,
    .catalog  = {"pipeline-006"},
};
FATHOM_REGISTER(filter);

}  // namespace
}  // namespace fathom::lab::async_prefetch
