#include "model/prompt_logits.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/buffer.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"
#include "model/ops.h"

namespace fathom::model {
namespace {

constexpr int64_t kRows     = 64;  // of a chunk; their logits are 51 MB at gpt-oss's vocabulary
constexpr int64_t kPageSize = 64;  // positions

}  // namespace

void prompt_logits(const Checkpoint& checkpoint, std::span<const TokenId> tokens, ThreadPool& threads,
                   const std::function<void(std::span<const float>)>& each) {
  const auto T        = static_cast<int64_t>(tokens.size());
  const int64_t V     = checkpoint.config.vocab_size;
  const int64_t chunk = std::min(T, kRows);
  std::vector<int32_t> pages(static_cast<size_t>((T + kPageSize - 1) / kPageSize));
  std::vector<int32_t> positions(tokens.size());
  std::iota(pages.begin(), pages.end(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  const auto P = static_cast<int64_t>(pages.size());
  const View<const int32_t, 2> table(pages.data(), {1, P});

  GptOss model(checkpoint.config, checkpoint.weights, cpu_ops(), chunk, chunk, threads);
  const KvCache kv(checkpoint.config, P, P, kPageSize);
  Buffer<float> logits(chunk * V);
  for (int64_t from = 0; from < T; from += chunk) {
    const int64_t R           = std::min(chunk, T - from);
    const int32_t first_row[] = {0, static_cast<int32_t>(R)};
    model.forward({.tokens       = View<const int32_t, 1>(tokens.data() + from, {R}),
                   .rows         = {.first_row = View<const int32_t, 1>(first_row, {2}),
                                    .positions = View<const int32_t, 1>(positions.data() + from, {R}),
                                    .pages     = table},
                   .window_pages = table},
                  kv);
    // The row numbers 0 .. R are the first R positions.
    model.logits(View<const int32_t, 1>(positions.data(), {R}), logits.as({R, V}));
    for (int64_t r = 0; r < R; ++r) each({logits.data() + r * V, static_cast<size_t>(V)});
  }
}

}  // namespace fathom::model
