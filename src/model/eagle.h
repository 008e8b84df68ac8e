// A draft model of EAGLE-3's shape (Li et al., 2025): one decoder layer that reads the target's residual
// stream after some of its layers and the embedding of the token sampled there, and predicts the token after
// that one. From the second drafted token on, its own output stands for the residual stream.
//
//   g = fc [f_1; f_2; f_3]                      f_i: residuals, each with a root mean square of 1
//   (norm_before_fc) z = [norm_e(embedding(token)); norm_g(g)]   [2 H] x = g + W_o attention(q(z), k(z),
//   v(z))     RoPE, a window of the last positions y = x + W_down (silu(W_gate norm(x)) * W_up norm(x))
//   logits = unembedding norm(y); the next g is y
//
// Embedding and unembedding are the target's. Tensor names are those of published EAGLE-3 checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/result.h"
#include "core/view.h"
#include "kernels/execution.h"
#include "model/checkpoint.h"
#include "model/ops.h"
#include "model/safetensors.h"

namespace fathom::model {

class Eagle {
 public:
  static constexpr int64_t kWindow = 256;  // positions that attention reads
  static constexpr int64_t kAhead  = 16;   // tokens that can be drafted after the last position read

  // Fails where the folder has no such model, or one that does not fit the target. `target` and `threads`
  // must outlive it.
  static Result<std::unique_ptr<Eagle>> open(const std::filesystem::path& folder, const Checkpoint& target,
                                             const Ops& ops, ThreadPool& threads);

  // The target's layers, from 0, whose outputs it reads, and the numbers of a position: taps x H.
  const std::vector<int64_t>& taps() const { return taps_; }
  int64_t feature_size() const { return static_cast<int64_t>(taps_.size()) * hidden_; }

  // What it knows of one sequence: keys and values of positions [first, end).
  struct State {
    int64_t first = 0, end = 0;
    std::vector<float> keys, values;  // [kWindow + kAhead, kv heads Dh]; a position's row is position % rows
    std::vector<float> output;        // y of position end - 1, [H]
  };
  // Forgets all and goes on at `position`.
  void restart(State& state, int64_t position) const;
  // Reads positions end, end + 1, ..: the target's residuals [T, feature_size] there, and the token after
  // each.
  void read(State& state, View<const float, 2> features, std::span<const TokenId> next_tokens);

  struct Drafted {
    TokenId token;
    double probability;
  };
  // At most `count` (at most kAhead) tokens after the last token read, the likeliest each, until the
  // product of their probabilities falls below `least`. The state stays as it is.
  std::vector<Drafted> draft(State& state, int64_t count, double least);
  // The same with the `width` likeliest tokens for each place, the likeliest first: what trees are made of. A
  // place follows the likeliest token of the place before.
  std::vector<std::vector<Drafted>> draft_places(State& state, int64_t count, int64_t width, double least);

  int64_t weight_bytes() const;

 private:
  Eagle(const Checkpoint& target, const Ops& ops, ThreadPool& threads) : target_(target), ops_(ops) {
    on_.threads = &threads;
  }
  Status load(const std::filesystem::path& folder);
  // One layer on rows whose g is in g_, at positions from `first`; y replaces g_.
  void layer(State& state, int64_t first, std::span<const TokenId> tokens);
  void rotate(float* heads, int64_t count, int64_t position) const;
  void attend(const State& state, int64_t position, const float* q, float* out) const;

  const Checkpoint& target_;
  const Ops& ops_;
  Safetensors tensors_;
  std::vector<int64_t> taps_;
  int64_t hidden_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, intermediate_ = 0;
  double eps_ = 1e-5, theta_ = 10000;
  bool norm_before_fc_ = false;

  struct Matrices {
    View<const bf16, 2> fc, q, k, v, o, gate, up, down;
  } w_;
  Buffer<float> embedding_norm_, hidden_norm_, mlp_norm_, norm_;
  // Of at most kRows rows.
  Buffer<float> taps_in_, g_, z_, part_, q_, k_, v_, attended_, gate_, up_, logits_;
  Buffer<std::byte> scratch_;
  Execution on_;
};

}  // namespace fathom::model
