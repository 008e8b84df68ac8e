// out(t, h) = softmax(scale q(t, h) k' + bias) v over the token's document up to itself        bf16
//
// bytes   as lists_each_call
// flops   as lists_each_call
// limit   the tensor cores
// idea    the two launches of lists_each_call captured once; a call launches the graph. Tiles and grids
// depend
//         on the number of tokens alone, so the graph serves any documents
#include <memory>

#include "core/expect.h"
#include "cuda/graph.h"
#include "lists_each_call.h"

namespace fathom::lab::flexattention {

Call graph(const PackedDocuments& p, StreamRef stream) {
  if (p.tokens() == 0) return lists_each_call;  // nothing to capture
  lists_each_call(p, stream);                   // loads the kernels, which is not allowed during capture
  const auto captured = std::make_shared<const CudaGraph>(stream, [&] { lists_each_call(p, stream); });
  return [captured, of = p.out.data()](const PackedDocuments& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    captured->launch(into);
  };
}

}  // namespace fathom::lab::flexattention
