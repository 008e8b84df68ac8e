#include "cli/offline_inference.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <stdexcept>
#include <utility>

#include "cli/model_folder.h"
#include "cli/number_check.h"
#include "cli/usage_error.h"
#include "engine/resolve_config.h"

namespace fathom::cli {
namespace {

using model::TokenId;

double seconds_between(engine::TimePoint from, engine::TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

// One sequence owns all pages, so paged_kv is off: it would free the pages behind a window, and the next
// prompt with the same prefix would miss them. On CPUs planning a step takes less time than waking another
// thread for it.
engine::EngineConfig config_of(const EngineFlags& flags, const model::Config& model) {
  auto config          = flags.chosen();
  config.max_context   = std::min(config.max_context, model.max_position_embeddings);
  config.max_sequences = flags.max_sequences.value_or(1);
  config.kv_tokens     = flags.kv_tokens.value_or(config.max_context);
  config.paged_kv      = false;
  config.async_scheduling &= config.gpu;
  return config;
}

}  // namespace

void add_offline_inference_flags(CLI::App& verb, OfflineInferenceFlags& flags) {
  engine::SamplingParameters& sampling = flags.sampling;
  verb.add_option("--model", flags.model, "Folder of a checkpoint; without it the bundled model");
  verb.add_option("--max-tokens", flags.max_tokens, "Most output tokens")
      ->check(whole_at_least(1, int64_t{1} << 30))
      ->capture_default_str();
  verb.add_flag("--ignore-eos", flags.ignore_eos, "Write --max-tokens tokens, whatever they say");
  verb.add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->capture_default_str();
  verb.add_option("--top-k", sampling.top_k, "Only the k most likely tokens; 0: all")->capture_default_str();
  verb.add_option("--top-p", sampling.top_p, "Only the fewest tokens that have this probability together")
      ->capture_default_str();
  verb.add_option("--min-p", sampling.min_p, "Only tokens this often as likely as the most likely one")
      ->capture_default_str();
  verb.add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Penalty on tokens of prompt and answer; 1: none")
      ->capture_default_str();
  verb.add_option("--presence-penalty", sampling.presence_penalty, "Penalty on tokens that are in the answer")
      ->capture_default_str();
  verb.add_option("--frequency-penalty", sampling.frequency_penalty, "The same, for each time")
      ->capture_default_str();
  verb.add_option("--seed", sampling.seed, "Another answer for each, where the temperature is not 0")
      ->capture_default_str();
  verb.add_option("--reasoning-effort", flags.effort, "In gpt-oss's own system message")
      ->check(CLI::IsMember({"low", "medium", "high"}))
      ->capture_default_str();
  verb.add_option("--current-date", flags.date, "For the system message, e.g. 2025-06-28; default: no date");
  add_engine_flags(verb, flags.engine);
  verb.get_option("--max-num-seqs")->description("Sequences running at once (1)");
  verb.get_option("--kv-tokens")->description("Tokens whose keys and values fit (those of --max-model-len)");
}

model::Checkpoint open_checkpoint(const OfflineInferenceFlags& flags) {
  return open_checkpoint(model_folder(flags.model), engine::weights_load(flags.engine.chosen()));
}

model::HarmonyMessage system_message(const model::Checkpoint& checkpoint,
                                     const OfflineInferenceFlags& flags) {
  std::string text = checkpoint.system_prompt;
  if (text.empty())
    text = model::harmony_system_text(flags.effort, flags.date, false);
  else if (!flags.date.empty())
    text += "\nCurrent date: " + flags.date;
  return {.role = "system", .content = std::move(text)};
}

const model::Tokenizer& tokenizer_of(const model::Checkpoint& checkpoint) {
  if (!checkpoint.tokenizer)
    throw UsageError(
        "the model's folder has no tokenizer.json: fetch it, or give token ids with "
        "`fathom generate --prompt-ids`");
  return *checkpoint.tokenizer;
}

const model::HarmonyTokens& harmony_of(const model::Checkpoint& checkpoint) {
  const auto tokens = model::HarmonyTokens::find(tokenizer_of(checkpoint));
  if (!tokens)
    throw UsageError(tokens.error().message + ", or leave out the template with `fathom generate --raw`");
  return *checkpoint.harmony;
}

double Answer::ttft_s() const { return seconds_between(times.received, times.first_token); }
double Answer::prompt_s() const { return seconds_between(times.scheduled, times.first_token); }
double Answer::decode_s() const { return seconds_between(times.first_token, times.finished); }

std::optional<double> Answer::prompt_tokens_per_s() const {
  if (ids.empty()) return std::nullopt;
  return static_cast<double>(prompt_tokens) / prompt_s();
}

std::optional<double> Answer::decode_tokens_per_s() const {
  if (ids.size() < 2) return std::nullopt;
  return static_cast<double>(ids.size() - 1) / decode_s();
}

OfflineEngine::OfflineEngine(const OfflineInferenceFlags& flags, const model::Checkpoint& checkpoint)
    : sampling_(flags.sampling),
      max_tokens_(flags.max_tokens),
      display_(stderr, terminal_columns(STDERR_FILENO)) {
  if (const Status good = engine::check(sampling_, checkpoint.config.vocab_size); !good)
    throw UsageError(good.error().message);
  if (!flags.ignore_eos) {
    stops_ = checkpoint.eos_ids;
    if (checkpoint.harmony)
      stops_.insert(stops_.end(), {checkpoint.harmony->return_, checkpoint.harmony->call});
  }
  auto config    = config_of(flags.engine, checkpoint.config);
  config.loading = loading_on(display_, model_folder(flags.model).string());
  engine_        = value_or_usage_error(engine::Engine::start(checkpoint, config));

  const auto footprint = model::footprint(checkpoint.config);
  roof_                = config.gpu ? gpu_decode_roof(footprint) : decode_roof(footprint, engine_->threads());
}

Answer OfflineEngine::answer(std::vector<TokenId> prompt, const std::function<void(TokenId)>& token,
                             const std::function<bool()>& interrupted) {
  const auto length  = static_cast<int64_t>(prompt.size());
  const int64_t room = engine_->max_context() - length;
  if (room < 1)
    throw UsageError(
        fmt::format("the prompt has {} tokens, which leaves no room for an answer in a context of {}: raise "
                    "--max-model-len or shorten the prompt",
                    length, engine_->max_context()));
  struct Asked {
    Answer answer;
    std::promise<Answer> promise;
    bool over = false;
  };
  const auto asked = std::make_shared<Asked>();
  // A listener must not throw, and is still called at the end after `token` has thrown.
  const auto listener = [asked, length, &token](const engine::RequestOutput& progress) {
    Answer& answer = asked->answer;
    if (asked->over) return;
    try {
      for (const engine::Sampled& sampled : progress.tokens) {
        answer.ids.push_back(sampled.id);
        token(sampled.id);
      }
      if (!progress.finish) return;
      if (!progress.error.empty()) throw std::runtime_error(std::string(progress.error));
      answer.finish        = *progress.finish;
      answer.prompt_tokens = length - progress.cached_tokens;
      answer.times         = *progress.times;
      asked->promise.set_value(std::move(answer));
    } catch (...) {
      asked->promise.set_exception(std::current_exception());
    }
    asked->over = true;
  };
  auto result      = asked->promise.get_future();
  const auto taken = engine_->submit({.prompt     = std::move(prompt),
                                      .sampling   = sampling_,
                                      .max_tokens = std::min(max_tokens_, room),
                                      .stop_ids   = stops_},
                                     listener);
  if (const auto* refusal = std::get_if<engine::Refusal>(&taken)) throw UsageError(refusal->message);
  while (result.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready)
    if (interrupted && interrupted()) engine_->cancel(std::get<engine::RequestId>(taken));
  return result.get();
}

std::string OfflineEngine::speed_text(const Answer& answer) const {
  if (answer.ids.empty())
    return fmt::format("the prompt's {} tokens were not all computed", answer.prompt_tokens);
  std::string text = fmt::format("prefill {} tokens", answer.prompt_tokens);
  if (const auto rate = answer.prompt_tokens_per_s()) text += fmt::format(", {:.4g} tok/s", *rate);
  text += fmt::format("; decode {} tokens", answer.ids.size());
  const auto rate = answer.decode_tokens_per_s();
  if (!rate) return text;
  text += fmt::format(", {:.4g} tok/s", *rate);
  return text + (roof_ ? fmt::format(" = {:.0f} % of the bandwidth bound ({})",
                                     100 * *rate / roof_->tokens_per_s, rate_text(*roof_))
                       : " (`fathom doctor` measures the bound to compare with)");
}

StreamDecoder::StreamDecoder(const model::Checkpoint& checkpoint, bool harmony) {
  if (harmony)
    parser_.emplace(tokenizer_of(checkpoint), harmony_of(checkpoint));
  else if (checkpoint.tokenizer)
    detokenizer_.emplace(*checkpoint.tokenizer);
}

StreamDecoder::Piece StreamDecoder::piece(std::string text) {
  Piece piece{.channel = "final", .text = std::move(text)};
  if (parser_ && !messages().empty()) piece.channel = messages().back().channel;
  if (piece.channel == "final") final_text_ += piece.text;
  return piece;
}

StreamDecoder::Piece StreamDecoder::add(TokenId id) {
  return piece(parser_ ? parser_->add(id) : detokenizer_ ? detokenizer_->add(id) : "");
}

StreamDecoder::Piece StreamDecoder::finish() {
  return piece(parser_ ? parser_->finish() : detokenizer_ ? detokenizer_->finish() : "");
}

}  // namespace fathom::cli
