// A checkpoint folder, opened and checked: config.json and *.safetensors, and what may lie beside them,
// tokenizer.json and generation_config.json. In the latter Fathom reads one key of its own, "system_prompt":
// the text that a model was trained to find in its system message.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "model/harmony.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"
#include "model/weights.h"

namespace fathom::model {

// What generation_config.json would have a sampler do where nobody says otherwise.
struct SamplingDefaults {
  double temperature = 1;  // 0 where it says do_sample: false
  double top_p       = 1;
  int64_t top_k      = 0;  // 0: all
};

struct Checkpoint {
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  Config config;
  Safetensors tensors;
  Weights weights;  // views of `tensors`, which may be moved
  std::optional<Tokenizer> tokenizer;
  std::optional<HarmonyTokens> harmony;  // where the tokenizer has such tokens
  std::string system_prompt;             // "" where there is none
  std::vector<TokenId> eos_ids;          // generation_config.json's, else config.json's
  SamplingDefaults sampling;
};

}  // namespace fathom::model
