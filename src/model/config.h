// Reads config.json of gpt-oss and derives a model's sizes from it.
//
// Three spellings are read: that of the `original/` folder (num_experts, rope_scaling_factor, ...), Hugging
// Face's (num_local_experts, rope_scaling {...} and rope_theta) and that of transformers 5 (rope_parameters
// {...}). A number given under two names must have the same value under both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace fathom::model {

enum class Attention { sliding, full };

// Rotary embedding; with YaRN if factor > 1.
struct Rope {
  double theta             = 0;
  double factor            = 1;
  double beta_fast         = 0;  // both betas are 0 if factor is 1 and the file has none
  double beta_slow         = 0;
  int64_t original_context = 0;      // context length before YaRN, in tokens
  bool truncate            = false;  // rounds the ramp's ends to whole dimensions
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
  int64_t sliding_window          = 0;  // keys, the query's own position included
  int64_t max_position_embeddings = 0;
  double rms_norm_eps             = 0;
  double swiglu_limit             = 0;
  double swiglu_alpha             = 0;
  Rope rope;
  bool mxfp4_experts = false;          // else BF16
  bool int8_dense    = false;          // matrices of attention and of the (un)embedding; else BF16
  std::vector<Attention> layers;       // by layer
  std::vector<int64_t> eos_token_ids;  // may be empty: generation_config.json has precedence
};

Result<Config> read_config(const std::filesystem::path& file);
Result<Config> parse_config(std::string_view text, const std::string& file);  // `file` is for messages

// The first difference in what the forward pass reads of a config, "'hidden_size' is 64, not 32"; none where
// weights of one fit the other. Tokens that end an answer do not count.
std::optional<std::string> first_difference(const Config& config, const Config& wanted);

// Sizes of a checkpoint with experts, attention and (un)embedding in the config's formats, the rest in BF16.
// "Read" counts what a decode step of one token reads: attention, router, the token's experts and the
// unembedding, without the token's row of the embedding.
struct Footprint {
  int64_t parameters        = 0;
  int64_t active_parameters = 0;  // used by one token, without the embedding

  int64_t checkpoint_bytes    = 0;
  int64_t expert_bytes        = 0;  // one expert of one layer
  int64_t dense_layer_bytes   = 0;  // one layer without its experts
  int64_t bytes_read_by_token = 0;  // weights alone

  int64_t kv_bytes_per_token = 0;  // BF16, full-attention layers, which grow with the context
  int64_t kv_window_bytes    = 0;  // sliding-window layers once the window is full; constant
};

Footprint footprint(const Config& config);

}  // namespace fathom::model
