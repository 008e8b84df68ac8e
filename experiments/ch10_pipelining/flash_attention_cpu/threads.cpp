// out = softmax(q k' / sqrt(64)) v           T x 64, fp32, one head
//
// bytes   1024 T   keys and values pass T / 96 times, from L2 or L3, which the threads share
// flops   256 T^2  divided by the threads
// limit   FMA peak of all cores
// idea    blocks of queries are independent: each thread has an equal part
#include "attention.h"
#include "core/thread_pool.h"
#include "flash_block.h"

namespace fathom::lab::flash_attention_cpu {

void threads(const Attention& p, Context& context) {
  const int64_t tokens = p.q.extent(0);
  transpose_keys(p);
  context.pool.parallel_for(tokens, kTileRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kRows) flash_block(p, i, std::min(kRows, end - i));
  });
}

}  // namespace fathom::lab::flash_attention_cpu
