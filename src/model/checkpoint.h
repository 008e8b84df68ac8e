// A checkpoint folder, opened and checked: config.json, *.safetensors, and optionally tokenizer.json and
// generation_config.json. In the latter, Fathom also reads a key of its own, "system_prompt": the system
// message that the model was trained with.
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

// The sampling defaults of generation_config.json.
struct SamplingDefaults {
  double temperature = 1;  // 0 for do_sample: false
  double top_p       = 1;
  int64_t top_k      = 0;  // 0: all
};

struct Checkpoint {
  static Result<Checkpoint> open(const std::filesystem::path& folder,
                                 Safetensors::Load load = Safetensors::Load::mapped);

  Config config;
  Safetensors tensors;
  Weights weights;  // views into `tensors`; moving it keeps them valid
  std::optional<Tokenizer> tokenizer;
  std::optional<HarmonyTokens> harmony;  // if the tokenizer has harmony's control tokens
  std::string system_prompt;             // "" for none
  std::vector<TokenId> eos_ids;          // generation_config.json's, else config.json's
  SamplingDefaults sampling;
};

}  // namespace fathom::model
