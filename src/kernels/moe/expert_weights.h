// The weights of a layer's experts, in either of the formats that checkpoints have.
#pragma once

#include <cstdint>
#include <variant>

#include "core/dtype.h"
#include "core/view.h"

namespace fathom::kernels {

// In the list of a token's experts: none, left out of the sum.
inline constexpr int32_t kNoExpert = -1;

// Blocks of 32 along `in`, G = in / 32: 16 bytes of E2M1 values each, the first in the low nibble
// (core/mxfp4_nvfp4.h), and an E8M0 scale. Rows are contiguous. Those of a rank's part of the matrices
// (model/shard.h) lie further apart, with as many scales between two rows as blocks.
struct Mxfp4Matrices {
  View<const uint8_t, 4> blocks;  // [E, out, G, 16]
  View<const uint8_t, 3> scales;  // [E, out, G], none of them 255, the NaN
};

using ExpertMatrices =
    std::variant<Mxfp4Matrices, View<const bf16, 3>>;  // bf16: [E, out, in], rows contiguous

struct ExpertWeights {
  ExpertMatrices mlp1;            // [E, 2I, H]
  View<const bf16, 2> mlp1_bias;  // [E, 2I]
  ExpertMatrices mlp2;            // [E, H, I]
  View<const bf16, 2> mlp2_bias;  // [E, H]
  float limit = 0, alpha = 0;
};

}  // namespace fathom::kernels
