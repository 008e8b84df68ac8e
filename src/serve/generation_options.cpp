#include "serve/generation_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "serve/request_fields.h"

namespace fathom::serve {
namespace {

using model::TokenId;

constexpr int64_t kMaxSaltBytes   = 1024;
constexpr int64_t kMaxPingSeconds = 86'400;

std::optional<TokenId> token_id(std::string_view text, int64_t vocab_size) {
  TokenId id               = 0;
  const auto [end, result] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (result != std::errc{} || end != text.data() + text.size() || id < 0 || id >= vocab_size) return {};
  return id;
}

engine::SamplingParameters read_sampling(const Field& body, const ServedModel& served) {
  const GenerationDefaults& defaults = served.defaults;
  engine::SamplingParameters sampling;
  sampling.temperature = body["temperature"].number(0, 100).value_or(defaults.temperature);
  sampling.top_p       = body["top_p"].number(0, 1).value_or(defaults.top_p);
  if (sampling.top_p == 0) body["top_p"].fail("is 0, but must be above 0 and at most 1");
  // In vLLM -1 means all tokens.
  sampling.top_k = body["top_k"].integer(-1, std::numeric_limits<int64_t>::max()).value_or(defaults.top_k);
  if (sampling.top_k < 0 || sampling.top_k >= served.vocab_size) sampling.top_k = 0;
  sampling.min_p = body["min_p"].number(0, 1).value_or(0);

  // Within these bounds no finite logit becomes infinite.
  const double repeat         = body["repeat_penalty"].number(0.01, 100).value_or(1);  // llama.cpp's name
  sampling.repetition_penalty = body["repetition_penalty"].number(0.01, 100).value_or(repeat);
  sampling.presence_penalty   = body["presence_penalty"].number(-2, 2).value_or(0);
  sampling.frequency_penalty  = body["frequency_penalty"].number(-2, 2).value_or(0);
  for (const auto& [name, bias] : body["logit_bias"].members(kMaxLogitBiases)) {
    const auto id = token_id(name, served.vocab_size);
    if (!id) bias.fail(fmt::format("names no token: ids are 0 to {}", served.vocab_size - 1));
    const auto value = bias.number(-100, 100);
    if (id && value) sampling.logit_bias[*id] = static_cast<float>(*value);
  }
  return sampling;
}

std::vector<std::string> read_stop(const Field& stop) {
  std::vector<std::string> found;
  if (stop.is_text()) {
    if (const auto text = stop.text(kMaxStopBytes)) found.push_back(*text);
    return found;
  }
  const int64_t count = stop.size(kMaxStops);
  for (int64_t i = 0; i < count; ++i) {
    if (!stop.at(i)) stop.at(i).fail("must be a string, not null");
    if (const auto text = stop.at(i).text(kMaxStopBytes)) found.push_back(*text);
  }
  return found;
}

}  // namespace

GenerationOptions read_generation_options(const Field& body, const ServedModel& served,
                                          const Field& max_tokens) {
  GenerationOptions options;
  options.sampling = read_sampling(body, served);
  // As in vLLM, -1 is no seed.
  const auto seed =
      body["seed"].integer(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (seed && *seed != -1) options.seed = static_cast<uint64_t>(*seed);

  options.max_tokens = max_tokens.integer(1, served.max_context);
  // n_predict is llama.cpp's name; -1 means as many as fit.
  const auto predict = body["n_predict"].integer(-1, served.max_context);
  if (predict == 0) body["n_predict"].fail("is 0, but must be at least 1, or -1");
  if (!max_tokens && predict != -1) options.max_tokens = predict;
  options.min_tokens =
      body["min_tokens"].integer(0, options.max_tokens.value_or(served.max_context)).value_or(0);
  // thinking_budget_tokens is llama.cpp's name. A budget beyond the context is none.
  constexpr int64_t kMaxBudget       = 1'000'000'000;
  const auto llama_budget            = body["thinking_budget_tokens"].integer(-1, kMaxBudget);
  const auto budget                  = body["thinking_token_budget"].integer(-1, kMaxBudget);
  options.thinking_token_budget      = budget ? budget : llama_budget;
  options.n                          = body["n"].integer(1, kMaxChoices).value_or(1);
  options.stop                       = read_stop(body["stop"]);
  options.stop_token_ids             = body["stop_token_ids"].token_ids(kMaxStopTokenIds, served.vocab_size);
  options.ignore_eos                 = body["ignore_eos"].boolean().value_or(false);
  options.include_stop_str_in_output = body["include_stop_str_in_output"].boolean().value_or(false);
  options.skip_special_tokens        = body["skip_special_tokens"].boolean().value_or(true);

  options.stream                 = body["stream"].boolean().value_or(false);
  const Field streaming          = body["stream_options"];
  options.include_usage          = streaming["include_usage"].boolean().value_or(false);
  options.continuous_usage_stats = streaming["continuous_usage_stats"].boolean().value_or(false);
  if (streaming && !options.stream) streaming.fail("needs \"stream\": true");
  // sse_ping_interval is llama.cpp's name; -1 means never.
  if (const auto seconds = body["sse_ping_interval"].integer(-1, kMaxPingSeconds))
    options.ping_interval = std::chrono::seconds(std::max<int64_t>(0, *seconds));

  constexpr int64_t kMaxPriority = std::numeric_limits<int>::max();
  options.priority   = static_cast<int>(body["priority"].integer(-kMaxPriority, kMaxPriority).value_or(0));
  options.cache_salt = body["cache_salt"].text(kMaxSaltBytes).value_or("");
  options.request_id = body["request_id"].text(kMaxNameBytes).value_or("");
  options.model      = body["model"].text().value_or("");
  if (!std::all_of(options.request_id.begin(), options.request_id.end(),
                   [](char c) { return c > 32 && c < 127; }))
    body["request_id"].fail("may have visible ASCII characters only");

  refuse_unsupported(body, {"prompt_logprobs", "allowed_token_ids", "bad_words", "truncate_prompt_tokens",
                            "use_beam_search", "logits_processors", "kv_transfer_params", "guided_regex",
                            "guided_choice", "guided_grammar", "grammar"});
  return options;
}

}  // namespace fathom::serve
