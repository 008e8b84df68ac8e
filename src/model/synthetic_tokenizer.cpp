#include "model/synthetic_tokenizer.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/expect.h"
#include "model/byte_level_tokenizer.h"

namespace fathom::model {

std::string synthetic_tokenizer_json(int64_t vocab_size) {
  FATHOM_EXPECT(vocab_size >= 256, "each byte is a token");
  // The ids of o200k_harmony (github.com/openai/harmony).
  static const std::map<int64_t, std::string_view> kControls = {
      {199998, "<|startoftext|>"}, {199999, "<|endoftext|>"}, {200002, "<|return|>"},
      {200003, "<|constrain|>"},   {200005, "<|channel|>"},   {200006, "<|start|>"},
      {200007, "<|end|>"},         {200008, "<|message|>"},   {200012, "<|call|>"}};
  nlohmann::json tokenizer = byte_level_tokenizer_json({});
  for (int64_t id = 256; id < vocab_size; ++id) {
    const auto control = kControls.find(id);
    if (control == kControls.end() || vocab_size != 201088)
      tokenizer["model"]["vocab"][byte_level(fmt::format(" w{}", id))] = id;
    else
      tokenizer["added_tokens"].push_back({{"id", id},
                                           {"content", control->second},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}});
  }
  return tokenizer.dump() + "\n";
}

}  // namespace fathom::model
