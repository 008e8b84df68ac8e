#include "cli/answering.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "cli/usage.h"
#include "measure/clock.h"

namespace fathom::cli {
namespace {

using model::TokenId;

constexpr size_t kChunk = 512;  // tokens of a prompt between two looks at whether to stop

double seconds_since(int64_t start_ns) {
  return static_cast<double>(measure::now_ns(measure::Clock::wall) - start_ns) * 1e-9;
}

}  // namespace

void add_answering_flags(CLI::App& verb, AnsweringFlags& flags) {
  engine::SamplingParameters& sampling = flags.sampling;
  verb.add_option("--model", flags.model, "Folder of a checkpoint; without it the bundled model");
  verb.add_option("--max-tokens", flags.max_tokens, "Of an answer")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  verb.add_flag("--ignore-eos", flags.ignore_eos, "Write --max-tokens tokens, whatever they say");
  verb.add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->capture_default_str();
  verb.add_option("--top-k", sampling.top_k, "Only the k most likely tokens; 0: all")->capture_default_str();
  verb.add_option("--top-p", sampling.top_p, "Only the fewest tokens that have this probability together")
      ->capture_default_str();
  verb.add_option("--min-p", sampling.min_p, "Only tokens this often as likely as the most likely one")
      ->capture_default_str();
  verb.add_option("--repetition-penalty", sampling.repetition_penalty, "Of tokens that were there; 1: none")
      ->capture_default_str();
  verb.add_option("--presence-penalty", sampling.presence_penalty, "Of tokens in the answer")
      ->capture_default_str();
  verb.add_option("--frequency-penalty", sampling.frequency_penalty, "The same, for each time")
      ->capture_default_str();
  verb.add_option("--seed", sampling.seed, "Another answer for each, where the temperature is not 0")
      ->capture_default_str();
  verb.add_option("--reasoning-effort", flags.effort, "In gpt-oss's own system message")
      ->check(CLI::IsMember({"low", "medium", "high"}))
      ->capture_default_str();
  verb.add_option("--current-date", flags.date, "For the system message, e.g. 2025-06-28; default: no date");
  verb.add_option("--context", flags.context, "Tokens that there is room for")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  verb.add_option("--threads", flags.threads, "0: one for each CPU")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

model::HarmonyMessage system_message(const model::Checkpoint& checkpoint, const AnsweringFlags& flags) {
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

std::optional<double> Answer::prompt_tokens_per_s() const {
  if (prompt_tokens == 0 || prompt_s <= 0) return std::nullopt;
  return static_cast<double>(prompt_tokens) / prompt_s;
}

std::optional<double> Answer::decode_tokens_per_s() const {
  if (ids.size() < 2 || decode_s <= 0) return std::nullopt;
  return static_cast<double>(ids.size() - 1) / decode_s;
}

Answerer::Answerer(const AnsweringFlags& flags, engine::TextModel model)
    : model_(std::move(model)),
      sampler_(checkpoint().config.vocab_size),
      sampling_(flags.sampling),
      max_tokens_(flags.max_tokens),
      context_(std::min(model_.max_context(), checkpoint().config.max_position_embeddings)),
      roof_(model_roof(model::footprint(checkpoint().config), model_.threads())) {
  value_or_usage_error(engine::check(sampling_, checkpoint().config.vocab_size));
  if (flags.ignore_eos) return;
  stops_ = checkpoint().eos_ids;
  if (checkpoint().harmony) {
    stops_.push_back(checkpoint().harmony->return_);
    stops_.push_back(checkpoint().harmony->call);
  }
}

void Answerer::expect_prompt(std::span<const TokenId> prompt) const {
  if (prompt.empty()) throw UsageError("the prompt is empty: there is nothing to go on from");
  const int64_t vocab_size = checkpoint().config.vocab_size;
  for (const TokenId id : prompt)
    if (id < 0 || id >= vocab_size)
      throw UsageError(
          fmt::format("the prompt has token {}, but the model's are 0 to {}", id, vocab_size - 1));
  const auto length = static_cast<int64_t>(prompt.size());
  if (length + std::min<int64_t>(max_tokens_, 1) > context_)
    throw UsageError(
        fmt::format("the prompt has {} tokens, which leaves no room for an answer in a context of {}: {}",
                    length, context_,
                    context_ < checkpoint().config.max_position_embeddings
                        ? "raise --context"
                        : "the model has no more, shorten the prompt"));
}

std::span<const float> Answerer::append(std::span<const TokenId> tokens,
                                        const std::function<void(std::span<const float>)>& each) {
  const auto logits = model_.append(tokens, each);
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  return logits;
}

std::optional<std::span<const float>> Answerer::read(std::span<const TokenId> prompt,
                                                     const Listener& listener, Answer& answer) {
  // The last token is always read: its logits are wanted.
  size_t keep = 0;
  if (!listener.each_logits)
    while (keep + 1 < prompt.size() && keep < cached_.size() && cached_[keep] == prompt[keep]) ++keep;
  model_.reset(static_cast<int64_t>(keep));
  cached_.resize(keep);
  answer.prompt_tokens = static_cast<int64_t>(prompt.size() - keep);
  std::span<const float> logits;
  for (size_t from = keep; from < prompt.size(); from += kChunk) {
    if (listener.interrupted && listener.interrupted()) return std::nullopt;
    logits = append(prompt.subspan(from, std::min(kChunk, prompt.size() - from)), listener.each_logits);
  }
  return logits;
}

Answer Answerer::answer(std::span<const TokenId> prompt, const Listener& listener) {
  expect_prompt(prompt);
  Answer answer{.finish_reason = "length"};
  const int64_t start = measure::now_ns(measure::Clock::wall);
  auto logits         = read(prompt, listener, answer);
  answer.prompt_s     = seconds_since(start);
  const int64_t room  = std::min(max_tokens_, context_ - static_cast<int64_t>(prompt.size()));
  int64_t first_token = 0;
  while (true) {
    if (!logits || (listener.interrupted && listener.interrupted())) {
      answer.finish_reason = "interrupted";
      break;
    }
    if (static_cast<int64_t>(answer.ids.size()) == room) break;
    const auto sampled = sampler_.sample(*logits, sampling_, prompt, answer.ids);
    if (!sampled)
      throw std::runtime_error(
          fmt::format("at position {}: {}", prompt.size() + answer.ids.size(), sampled.error().message));
    answer.ids.push_back(sampled->id);
    if (answer.ids.size() == 1) {
      answer.ttft_s = seconds_since(start);
      first_token   = measure::now_ns(measure::Clock::wall);
    } else {
      answer.decode_s = seconds_since(first_token);
    }
    if (listener.token) listener.token(sampled->id);
    if (std::find(stops_.begin(), stops_.end(), sampled->id) != stops_.end()) {
      answer.finish_reason = "stop";
      break;
    }
    if (static_cast<int64_t>(answer.ids.size()) < room) logits = append({&answer.ids.back(), 1});
  }
  return answer;
}

std::string Answerer::speed_text(const Answer& answer) const {
  std::string text = fmt::format("{} tokens read", answer.prompt_tokens);
  if (const auto rate = answer.prompt_tokens_per_s()) text += fmt::format(" at {:.4g}/s", *rate);
  text += fmt::format("; {} written", answer.ids.size());
  const auto rate = answer.decode_tokens_per_s();
  if (!rate) return text;
  text += fmt::format(" at {:.4g}/s", *rate);
  return text + (roof_ ? fmt::format(", {:.0f} % of what {} allow", 100 * *rate / roof_->tokens_per_s,
                                     rate_text(*roof_))
                       : ", a share unknown until `fathom doctor` has measured this machine");
}

AnswerReader::AnswerReader(const model::Checkpoint& checkpoint, bool harmony) {
  if (harmony)
    parser_.emplace(tokenizer_of(checkpoint), harmony_of(checkpoint));
  else if (checkpoint.tokenizer)
    detokenizer_.emplace(*checkpoint.tokenizer);
}

AnswerReader::Piece AnswerReader::piece(std::string text) {
  Piece piece{.channel = "final", .text = std::move(text)};
  if (parser_ && !messages().empty()) piece.channel = messages().back().channel;
  if (piece.channel == "final") final_text_ += piece.text;
  return piece;
}

AnswerReader::Piece AnswerReader::add(TokenId id) {
  return piece(parser_ ? parser_->add(id) : detokenizer_ ? detokenizer_->add(id) : "");
}

AnswerReader::Piece AnswerReader::finish() {
  return piece(parser_ ? parser_->finish() : detokenizer_ ? detokenizer_->finish() : "");
}

}  // namespace fathom::cli
