#include "program.h"

#include "compile/programs.h"

namespace fathom::lab::regional_compilation {

compile::Function model(const compile::Options& options) {
  return {"model",
          [](compile::Program& p, const std::vector<compile::Tensor>& in) {
            compile::Tensor x = in[0];
            for (size_t i = 1; i < in.size(); i += 4)
              x = p.region([&] {
                return mlp(x, {.norm = in[i], .up = in[i + 1], .up_bias = in[i + 2], .down = in[i + 3]});
              });
            p.output("y", x);
          },
          options};
}

void serve(compile::Function& function, const Stack& p, ThreadPool& pool) {
  // Inputs are only read; an Array does not say so.
  const auto fp32 = [](const float* data, std::vector<int64_t> extents) {
    return compile::Array{DType::fp32, const_cast<float*>(data), std::move(extents)};
  };
  const auto weights = [](const bf16* data, std::vector<int64_t> extents) {
    return compile::Array{DType::bf16, const_cast<bf16*>(data), std::move(extents)};
  };
  int64_t first = 0;
  for (const int64_t tokens : kSteps) {
    std::vector<compile::Array> inputs = {fp32(&p.x(first, 0), {tokens, kHidden})};
    for (int64_t layer = 0; layer < p.layers(); ++layer) {
      const mlp_layer::Weights w = p.weights(layer);
      inputs.push_back(fp32(w.norm.data(), {kHidden}));
      inputs.push_back(weights(w.up.data(), {2 * kIntermediate, kHidden}));
      inputs.push_back(weights(w.up_bias.data(), {2 * kIntermediate}));
      inputs.push_back(weights(w.down.data(), {kHidden, kIntermediate}));
    }
    function.run(inputs, {{DType::fp32, &p.out(first, 0), {tokens, kHidden}}}, pool);
    first += tokens;
  }
}

}  // namespace fathom::lab::regional_compilation
