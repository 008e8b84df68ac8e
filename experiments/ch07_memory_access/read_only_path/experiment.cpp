// A store through one pointer may change data behind another, unless the source promises that it does not.
// The promise helps the compiler more than the cache.
#include "lab/experiment.h"

#include <cmath>

#include "affine.h"

namespace fathom::lab::read_only_path {

Affine::Affine(const Point& at, Arena& arena)
    : x(arena.input<float>({at["tokens"], at["channels"]}, Uniform{-1, 1})),
      gain(arena.input<float>({at["channels"]}, Uniform{0.5, 2})),
      offset(arena.input<float>({at["channels"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["tokens"], at["channels"]})) {
  FATHOM_EXPECT(x.size() < int64_t{1} << 31, "elements are counted in 32 bits");
}

Cost Affine::cost() const {
  return {.read    = x.bytes() + gain.bytes() + offset.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * static_cast<double>(x.size())};
}

Sum Affine::expected(int64_t t, int64_t c) const {
  const double product = static_cast<double>(x(t, c)) * gain(c);
  return {.value = product + offset(c), .magnitude = std::abs(product) + std::abs(offset(c)), .length = 2};
}

namespace {

const Experiment<Affine> affine{
    .question = "What does it gain to tell the compiler that inputs are only read?",
    .limit    = Limit::memory,
    // 512 MiB to 512 MiB.
    .axes     = {{"tokens", {32768}}, {"channels", {4096}}},
    .check_at = {{"tokens", {0, 1, 15, 16, 17, 61}}, {"channels", {1, 255, 256, 257, 1000}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = on_gpu(plain),
             .techniques = {},
             .idea       = "three pointers that may overlap: every load waits behind the store before it",
             .prediction = predict::share(0.68)},
            {.id         = "ldg",
             .launch     = on_gpu(ldg),
             .techniques = {"read_only_path"},
             .idea       = "__ldg: these loads may move, and go by the read-only path",
             .prediction = predict::share_at_least(0.95)},
            {.id         = "restricted",
             .launch     = on_gpu(restricted),
             .techniques = {"read_only_path"},
             .idea       = "const __restrict__: the promise alone; the compiler finds the path itself",
             .prediction = predict::share_at_least(0.95)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-015"},
};
FATHOM_REGISTER(affine);

}  // namespace
}  // namespace fathom::lab::read_only_path
