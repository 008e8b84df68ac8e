// out(t) = sum_k g(t, k) relu(x(t) W1[e]) W2[e]         T x 256, 2 of 16 experts, fp32
//
// bytes   8.4 MB of weights, once; T * 2 rows of 1 KiB gathered, and as many results
// flops   T * 2 * 262,144, divided by the threads
// limit   FMA peak of all cores
// idea    groups are uneven, so threads take blocks of an expert's rows from a queue. Blocks of one expert
//         share its weights in L3
#include <algorithm>
#include <atomic>

#include "core/thread_pool.h"
#include "experiments/ch15_moe_inference/expert_steps.h"
#include "variants.h"

namespace fathom::lab::grouped_experts_cpu {

void threads(const ExpertLayer& p, Context& context) {
  constexpr int64_t kBlock = 8 * kTileRows;
  moe::group_by_expert(p);
  alignas(64) std::atomic<int64_t> next{0};
  context.pool.run([&](int) {
    int64_t block = next.fetch_add(1, std::memory_order_relaxed), first_block = 0;
    for (int64_t e = 0; e < moe::kExperts; ++e) {
      const int64_t begin = p.first_row(e), end = p.first_row(e + 1);
      const int64_t blocks = (end - begin + kBlock - 1) / kBlock;
      while (block < first_block + blocks) {
        const int64_t row = begin + (block - first_block) * kBlock;
        moe::run_group(p, e, row, std::min(end, row + kBlock));
        block = next.fetch_add(1, std::memory_order_relaxed);
      }
      first_block += blocks;
    }
  });
  // The end of run() ensures that both experts of a token are done.
  context.pool.parallel_for(p.x.extent(0), 1,
                            [&](int64_t begin, int64_t end) { moe::combine(p, begin, end); });
}

}  // namespace fathom::lab::grouped_experts_cpu
