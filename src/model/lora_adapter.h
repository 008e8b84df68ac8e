// Low-rank adapters of attention's matrices beside a model's own: y = W x + scale B A x. They are read as
// PEFT writes them, and `fathom train --lora-rank`: a folder with adapter_config.json and
// adapter_model.safetensors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/dtype.h"

#include "core/result.h"
#include "core/view.h"
#include "model/config.h"

namespace fathom::model {

enum AttentionMatrix { kQuery, kKey, kValue, kOutput };
inline constexpr int kAttentionMatrices = 4;

class LoraAdapter {
 public:
  struct Pair {
    View<const bf16, 2> a, b;  // [rank, in], [out, rank]; the latter times the scale. Empty: not adapted
  };

  // An error where the folder has no adapter for a model of this shape, or one of something else than
  // attention's matrices.
  static Result<LoraAdapter> open(const std::string& folder, const Config& config);

  const Pair& pair(int64_t layer, AttentionMatrix matrix) const {
    return pairs_[static_cast<size_t>(layer)][matrix];
  }
  int64_t rank() const { return rank_; }
  int64_t bytes() const { return numbers_.size() * int64_t{sizeof(bf16)}; }

 private:
  int64_t rank_ = 0;
  Buffer<bf16> numbers_;
  std::vector<std::array<Pair, kAttentionMatrices>> pairs_;  // by layer
};

}  // namespace fathom::model
