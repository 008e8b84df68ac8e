#include "serve/logprobs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/utf8.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

Json logprob_json(const model::Tokenizer& tokenizer, model::TokenId id, double logprob) {
  const std::string_view bytes = tokenizer.bytes(id);
  Json numbers                 = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return {{"token", well_formed(bytes)}, {"logprob", finite_logprob(logprob)}, {"bytes", std::move(numbers)}};
}

}  // namespace

double finite_logprob(double logprob) { return std::max(logprob, -9999.0); }

Json logprobs_json(const model::Tokenizer& tokenizer, std::span<const ContentToken> tokens) {
  Json all = Json::array();
  for (const auto& [sampled, offset] : tokens) {
    Json entry = logprob_json(tokenizer, sampled.id, sampled.logprob.value());
    Json top   = Json::array();
    for (const auto& [id, logprob] : sampled.top) top.push_back(logprob_json(tokenizer, id, logprob));
    entry["top_logprobs"] = std::move(top);
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace fathom::serve
