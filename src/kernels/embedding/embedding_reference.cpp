#include "core/expect.h"
#include "kernels/embedding/embedding.h"

namespace fathom::kernels {

void embedding_reference(View<const int32_t, 1> tokens, const DenseMatrix& table, View<float, 2> x,
                         const Execution&) {
  FATHOM_EXPECT(x.extent(0) == tokens.extent(0) && x.extent(1) == columns_of(table),
                "embedding: x must be [tokens, hidden]");
  for (int64_t t = 0; t < x.extent(0); ++t) {
    const int32_t token = tokens(t);
    FATHOM_EXPECT(token >= 0 && token < rows_of(table), "embedding: a token is outside the vocabulary");
    std::visit(
        [&](const auto& weights) {
          for (int64_t h = 0; h < x.extent(1); ++h) x(t, h) = weight_at(weights, token, h);
        },
        table);
  }
}

}  // namespace fathom::kernels
