// A checkpoint folder, opened and checked: config.json and *.safetensors, and what may lie beside them,
// tokenizer.json and generation_config.json. In the latter Fathom reads one key of its own, "system_prompt":
// the text that a model was trained to find in its system message.
#pragma once

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

struct Checkpoint {
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  Config config;
  Safetensors tensors;
  Weights weights;  // views of `tensors`, which may be moved
  std::optional<Tokenizer> tokenizer;
  std::optional<HarmonyTokens> harmony;  // where the tokenizer has such tokens
  std::string system_prompt;             // "" where there is none
  std::vector<TokenId> eos_ids;          // generation_config.json's, else config.json's
};

}  // namespace fathom::model
