// config.json of gpt-oss: what a checkpoint says about itself, and the numbers that follow from it.
//
// Three spellings are read: the `original/` folder's (num_experts, rope_scaling_factor, ...), Hugging Face's
// (num_local_experts, rope_scaling {...} and rope_theta) and that of transformers 5 (rope_parameters {...}).
// A number that is given under two names must be the same under both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace fathom::model {

enum class Attention { sliding, full };

// Rotary embedding; YaRN where factor > 1.
struct Rope {
  double theta             = 0;
  double factor            = 1;
  double beta_fast         = 0;  // 0, as beta_slow, where factor is 1 and the file gives none
  double beta_slow         = 0;
  int64_t original_context = 0;      // tokens the model was trained on before YaRN
  bool truncate            = false;  // the ramp's ends are rounded to whole dimensions
};

struct Config {
  int64_t num_hidden_layers       = 0;
  int64_t num_local_experts       = 0;
  int64_t num_experts_per_tok     = 0;
  int64_t hidden_size             = 0;
  int64_t intermediate_size       = 0;  // of one expert
  int64_t vocab_size              = 0;
  int64_t head_dim                = 0;
  int64_t num_attention_heads     = 0;
  int64_t num_key_value_heads     = 0;
  int64_t sliding_window          = 0;  // keys, the query's own position among them
  int64_t max_position_embeddings = 0;
  double rms_norm_eps             = 0;
  double swiglu_limit             = 0;
  double swiglu_alpha             = 0;
  Rope rope;
  bool mxfp4_experts = false;          // else BF16
  std::vector<Attention> layers;       // one a layer
  std::vector<int64_t> eos_token_ids;  // may be empty: generation_config.json has them too
};

Result<Config> read_config(const std::filesystem::path& file);
Result<Config> parse_config(std::string_view text, const std::string& file);  // `file` is for messages

// Of a checkpoint with BF16 weights and the experts' format that the config names. "Read" is what one token
// alone makes a decode step read: all of attention and router, its own experts, the unembedding; not its row
// of the embedding.
struct Footprint {
  int64_t parameters        = 0;
  int64_t active_parameters = 0;  // that one token meets, without the embedding

  int64_t checkpoint_bytes    = 0;
  int64_t expert_bytes        = 0;  // one expert of one layer
  int64_t dense_layer_bytes   = 0;  // one layer without its experts
  int64_t bytes_read_by_token = 0;  // weights alone

  int64_t kv_bytes_per_token = 0;  // BF16 keys and values of the full layers, which grow with the context
  int64_t kv_window_bytes    = 0;  // of the sliding layers, once their window is full; then constant
};

Footprint footprint(const Config& config);

}  // namespace fathom::model
