#include "serve/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "model/utf8.h"
#include "serve/sse.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

Json logprob_json(const model::Tokenizer& tokenizer, model::TokenId id, double logprob) {
  const std::string_view bytes = tokenizer.bytes(id);
  Json numbers                 = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return {{"token", model::well_formed(bytes)},
          {"logprob", finite_logprob(logprob)},
          {"bytes", std::move(numbers)}};
}

}  // namespace

uint64_t random_seed() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return random();
}

Json envelope(const ReplyHead& head, std::string_view object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

std::string end_of_stream(const ReplyHead& head, std::string_view object, bool include_usage,
                          const Usage& usage) {
  std::string events;
  if (include_usage) {
    Json last       = envelope(head, object);
    last["choices"] = Json::array();
    last["usage"]   = usage_json(usage);
    last["timings"] = timings_json(usage);
    events          = data_event(last);
  }
  return events.append(kDone);
}

std::string failure_of_stream(const ApiError& error) { return data_event(error_json(error)).append(kDone); }

std::string new_id(std::string_view prefix) {
  const uint64_t high = random_seed(), low = random_seed();
  return fmt::format("{}{:016x}{:016x}", prefix, high, low);
}

Json stop_reason_json(const StopReason& stop) {
  if (const auto* id = std::get_if<model::TokenId>(&stop)) return *id;
  if (const auto* text = std::get_if<std::string>(&stop)) return *text;
  return nullptr;
}

double finite_logprob(double logprob) { return std::max(logprob, -9999.0); }

Json logprobs_json(const model::Tokenizer& tokenizer, std::span<const ShownToken> tokens) {
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
