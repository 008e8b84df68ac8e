// Two elementwise functions in a row do hardly any arithmetic for the bytes they move: each kernel runs at
// the speed of memory, and the second one reads back what the first one wrote.
#include "lab/experiment.h"

#include <cmath>

#include "elementwise.h"

namespace fathom::lab::fused_elementwise_gpu {

// The largest float below pi. Beyond pi the sine is negative and has no root; pi rounded to float lies beyond
// it.
constexpr double kLargest = 0x1.921fb4p+1;

Elementwise::Elementwise(const Point& at, Arena& arena)
    : x(arena.input<float>({at["n"]}, Uniform{0, kLargest})), out(arena.output<float>({at["n"]})) {}

// For each element: 3 to fold x into [0, pi/2], 10 for the polynomial, the root.
Cost Elementwise::cost() const {
  return {.read = x.bytes(), .written = out.bytes(), .flops = 14.0 * static_cast<double>(x.size())};
}

Sum Elementwise::expected(int64_t i) const {
  const double angle = x(i), value = std::sqrt(std::sin(angle));
  // Eight roundings in a row: fold, square, three steps of the polynomial, two to finish the sine, the root.
  // None is amplified: x is exact, and pi - x is right to within a rounding of itself.
  return {.value = value, .magnitude = value, .length = 8};
}

const Experiment<Elementwise> elementwise{
    .question = "What does a separate kernel cost an elementwise function, in DRAM and in L2?",
    .limit    = Limit::memory,
    // 2^27: 1 GiB, in DRAM. 2^21: 16 MiB a set and three sets, in L2.
    .axes     = {{"n", {1 << 27, 1 << 21}}},
    .check_at = {{"n", {0, 1, 3, 4, 5, 31, 61, 1023, 1024, 1025, 4095, 4096, 4097, 4099, 10007}}},
    .variants =
        {
            {.id         = "two_kernels",
             .launch     = on_gpu(two_kernels),
             .techniques = {},
             .idea       = "a kernel for the sine, a kernel for the root, 16 bytes a load",
             .prediction = predict::share(0.46)},
            {.id         = "fused",
             .launch     = on_gpu(fused),
             .techniques = {"kernel_fusion"},
             .idea       = "one kernel: the sine never leaves its register",
             .prediction = predict::ratio(2)},
            {.id         = "several_loads",
             .launch     = on_gpu(several_loads),
             .techniques = {"kernel_fusion", "instruction_level_parallelism", "cache_hints"},
             .idea       = "four independent loads a thread, past L1",
             .prediction = predict::share_at_least(0.9)},
            {.id         = "torch_compile",
             .idea       = "PyTorch's two functions, fused by torch.compile into a kernel of Triton's",
             .prediction = predict::share(0.88),
             .kind       = Kind::library,
             .python     = {.script = "torch_compile.py",
                            .arguments =
                                [](const Elementwise& p) {
                              return PythonArguments{{"x", p.x}, {"out", p.out}};
                            }}},
        },
    .backend = Backend::cuda,
    .catalog = {"tiling-007"},
    .group   = "elementwise",
};
FATHOM_REGISTER(elementwise);

}  // namespace fathom::lab::fused_elementwise_gpu
