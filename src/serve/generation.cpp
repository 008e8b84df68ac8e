#include "serve/generation.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "serve/sse.h"

namespace fathom::serve {
namespace {

double ms_between(engine::TimePoint from, engine::TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

std::optional<engine::Refusal> Generation::start(engine::Generator& generator,
                                                 const model::Tokenizer& tokenizer,
                                                 std::shared_ptr<HttpExchange> exchange,
                                                 std::unique_ptr<Reply> reply, Delivery delivery,
                                                 std::vector<Choice> choices, ServeMetrics* metrics) {
  const std::shared_ptr<Generation> generation(
      new Generation(generator, std::move(exchange), std::move(reply), delivery.stream, metrics));
  if (auto refusal = generation->submit(tokenizer, std::move(choices))) return refusal;
  // Weak: the exchange, which keeps this, is kept by the generation.
  generation->exchange_->on_gone([weak = std::weak_ptr(generation)] {
    const auto self = weak.lock();
    if (!self) return;
    self->silent_ = true;
    self->cancel_all();
  });
  if (delivery.stream) {
    generation->exchange_->begin_stream(200, event_stream_headers(),
                                        event_stream_ping(delivery.ping_interval));
    if (std::string begun = generation->reply_->begin(); !begun.empty())
      generation->exchange_->write(std::move(begun));
  }
  return std::nullopt;
}

std::optional<engine::Refusal> Generation::submit(const model::Tokenizer& tokenizer,
                                                  std::vector<Choice> choices) {
  // All places first: the engine's thread may speak before submit() returns.
  choices_.reserve(choices.size());
  for (Choice& choice : choices) {
    choices_.push_back({.text          = AnswerText(tokenizer, std::move(choice.text)),
                        .prompt_tokens = static_cast<int64_t>(choice.request.prompt.size()),
                        .max_tokens    = choice.request.max_tokens,
                        .own_prompt    = choice.own_prompt});
    if (choice.own_prompt) usage_.prompt_tokens += choices_.back().prompt_tokens;
  }
  left_ = choices_.size();
  gaps_.resize(choices_.size());
  arrivals_.resize(choices_.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    auto submitted = generator_.submit(
        std::move(choices[i].request),
        [self = shared_from_this(), i](const engine::Progress& progress) { self->heard(i, progress); });
    if (auto* refusal = std::get_if<engine::Refusal>(&submitted)) {
      silent_ = true;
      cancel_all();
      return std::move(*refusal);
    }
    choices_[i].id      = std::get<engine::RequestId>(submitted);
    choices_[i].running = true;
  }
  return std::nullopt;
}

void Generation::heard(size_t choice, const engine::Progress& progress) {
  if (metrics_ && !progress.tokens.empty()) gaps_[choice].arrived(std::chrono::steady_clock::now());
  {
    const std::lock_guard lock(mutex_);
    Arrival& arrival = arrivals_[choice];
    arrival.tokens.insert(arrival.tokens.end(), progress.tokens.begin(), progress.tokens.end());
    arrival.cached_tokens = progress.cached_tokens;
    if (progress.finish) {
      arrival.finish = progress.finish;
      arrival.error  = progress.error;
      if (progress.times) arrival.times = *progress.times;
    }
    if (std::exchange(posted_, true)) return;
  }
  exchange_->post([self = shared_from_this()] { self->deliver(); });
}

void Generation::deliver() {
  std::vector<Arrival> arrivals(choices_.size());
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(arrivals_);
    posted_ = false;
  }
  std::string out;
  for (size_t i = 0; i < arrivals.size(); ++i) out += deliver(i, arrivals[i]);
  if (silent_) return;
  if (failure_)
    out += reply_->fail({.status = 500, .type = "InternalServerError", .message = *failure_});
  else if (left_ == 0)
    out += reply_->done(usage_);
  silent_ = failure_ || left_ == 0;
  if (stream_) {
    if (!out.empty()) exchange_->write(std::move(out));
    if (silent_) exchange_->end();
  } else if (silent_) {
    exchange_->respond(failure_ ? 500 : 200, {{"Content-Type", "application/json"}}, std::move(out));
  }
  if (failure_) cancel_all();
}

std::string Generation::deliver(size_t index, Arrival& arrival) {
  if (arrival.tokens.empty() && !arrival.finish) return "";
  Running& choice = choices_[index];
  choice.generated_tokens += static_cast<int64_t>(arrival.tokens.size());
  if (choice.own_prompt) usage_.cached_tokens += arrival.cached_tokens - choice.cached_tokens;
  choice.cached_tokens = arrival.cached_tokens;
  if (arrival.finish) ended(index, arrival);
  if (silent_ || failure_) return "";

  AnswerText& text = choice.text;
  std::vector<Piece> pieces;
  usage_.completion_tokens -= text.tokens();
  usage_.reasoning_tokens -= text.reasoning_tokens();
  for (const engine::Sampled& sampled : arrival.tokens) text.add(sampled, pieces);
  usage_.completion_tokens += text.tokens();
  usage_.reasoning_tokens += text.reasoning_tokens();
  if (text.stopped()) cancel(choice);
  if (!arrival.finish) return pieces.empty() ? "" : reply_->add(index, pieces, nullptr, usage_);

  if (arrival.finish == engine::FinishReason::error && !text.stopped()) {
    failure_ = arrival.error;
    return "";
  }
  text.finish(pieces);
  const ChoiceEnd end{.reason = text.stopped() ? engine::FinishReason::stop : *arrival.finish,
                      .stop   = text.stop_reason()};
  return reply_->add(index, pieces, &end, usage_);
}

void Generation::ended(size_t index, const Arrival& arrival) {
  Running& choice                   = choices_[index];
  const engine::RequestTimes& times = arrival.times;
  choice.running                    = false;
  --left_;
  ++usage_.choices;
  scheduled_          = std::min(scheduled_, times.scheduled);
  first_token_        = std::min(first_token_, times.first_token);
  prefilled_          = std::max(prefilled_, times.first_token);
  finished_           = std::max(finished_, times.finished);
  usage_.prompt_ms    = ms_between(scheduled_, prefilled_);
  usage_.predicted_ms = ms_between(first_token_, finished_);
  longest_tokens_     = std::max(longest_tokens_, choice.generated_tokens);
  if (!metrics_) return;
  metrics_->finished({.times            = times,
                      .prompt_tokens    = choice.prompt_tokens,
                      .cached_tokens    = choice.cached_tokens,
                      .generated_tokens = choice.generated_tokens,
                      .max_tokens       = choice.max_tokens,
                      .gaps             = gaps_[index]});
  if (left_ == 0) metrics_->answered(static_cast<int64_t>(choices_.size()), longest_tokens_);
}

void Generation::cancel(Running& choice) {
  using enum engine::FinishReason;
  if (std::exchange(choice.running, false))
    generator_.cancel(choice.id, choice.text.stopped() ? stop : cancelled);
}

void Generation::cancel_all() {
  for (Running& choice : choices_) cancel(choice);
}

}  // namespace fathom::serve
