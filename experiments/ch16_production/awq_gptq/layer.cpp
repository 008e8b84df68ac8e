#include "layer.h"

#include <vector>

namespace fathom::lab::awq_gptq {

void Layer::multiply(const model::QuantizedMatrix& q) const {
  const View<const float, 2> unseen = unseen_tokens();
  const int64_t K                   = w.extent(1);
  std::vector<float> row(static_cast<size_t>(K));
  for (int64_t n = 0; n < w.extent(0); ++n) {
    for (int64_t k = 0; k < K; ++k) row[static_cast<size_t>(k)] = static_cast<float>(q.weight(n, k));
    for (int64_t t = 0; t < kUnseen; ++t) {
      const float* of_x = unseen.data() + t * K;
      float sum[8]      = {};
      int64_t k         = 0;
      for (; k + 8 <= K; k += 8)
        for (int64_t i = 0; i < 8; ++i) sum[i] += row[static_cast<size_t>(k + i)] * of_x[k + i];
      for (; k < K; ++k) sum[k % 8] += row[static_cast<size_t>(k)] * of_x[k];
      out(t, n) = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    }
  }
}

}  // namespace fathom::lab::awq_gptq
