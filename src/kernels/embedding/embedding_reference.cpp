#include "core/expect.h"
#include "kernels/embedding/embedding.h"

namespace fathom::kernels {

void embedding_reference(View<const int32_t, 1> tokens, View<const bf16, 2> table, View<float, 2> x,
                         const Execution&) {
  FATHOM_EXPECT(x.extent(0) == tokens.extent(0) && x.extent(1) == table.extent(1),
                "embedding: x must be [tokens, hidden]");
  for (int64_t t = 0; t < x.extent(0); ++t) {
    const int32_t token = tokens(t);
    FATHOM_EXPECT(token >= 0 && token < table.extent(0), "embedding: a token is outside the vocabulary");
    for (int64_t h = 0; h < x.extent(1); ++h) x(t, h) = static_cast<float>(table(token, h));
  }
}

}  // namespace fathom::kernels
