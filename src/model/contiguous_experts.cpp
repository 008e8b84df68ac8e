#include "model/contiguous_experts.h"

#include <memory>
#include <utility>
#include <variant>

namespace fathom::model {

Buffer<bf16> contiguous_experts(View<const bf16, 3> from, ThreadPool& threads) {
  const int64_t E = from.extent(0), out = from.extent(1), in = from.extent(2);
  Buffer<bf16> to(from.size());
  threads.parallel_for(E, 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e)
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i) to.data()[(e * out + o) * in + i] = from(e, o, i);
  });
  return to;
}

ContiguousExperts with_contiguous_experts(Weights weights, ThreadPool& threads) {
  int64_t copied_bytes = 0;
  for (LayerWeights& layer : weights.layers)
    for (ExpertMatrices* matrices : {&layer.mlp1, &layer.mlp2}) {
      auto* plain = std::get_if<View<const bf16, 3>>(matrices);
      if (!plain || plain->contiguous()) continue;
      const auto copy = std::make_shared<const Buffer<bf16>>(contiguous_experts(*plain, threads));
      *plain          = copy->as({plain->extent(0), plain->extent(1), plain->extent(2)});
      copied_bytes += copy->size() * int64_t{sizeof(bf16)};
      weights.converted.push_back(copy);
    }
  return {std::move(weights), copied_bytes};
}

}  // namespace fathom::model
