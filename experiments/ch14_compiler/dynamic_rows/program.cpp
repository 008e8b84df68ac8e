#include "program.h"

namespace fathom::lab::dynamic_rows {

compile::Function norm(const compile::Options& options) {
  return {"norm",
          [](compile::Program& p, const std::vector<compile::Tensor>& in) {
            p.output("y", rms_norm(in[0], in[1], kEpsilon));
          },
          options};
}

void serve(compile::Function& function, const Rows& p, ThreadPool& pool) {
  const int64_t dim = p.x.extent(1);
  // Inputs are only read; an Array does not say so.
  const auto array = [&](const float* data, std::vector<int64_t> extents) {
    return compile::Array{DType::fp32, const_cast<float*>(data), std::move(extents)};
  };
  for (int64_t batch = 0; batch < p.batches; ++batch) {
    const int64_t first = Rows::first_row(batch) * dim, rows = Rows::rows(batch);
    function.run({array(p.x.data() + first, {rows, dim}), array(p.weight.data(), {dim})},
                 {array(p.out.data() + first, {rows, dim})}, pool);
  }
}

}  // namespace fathom::lab::dynamic_rows
