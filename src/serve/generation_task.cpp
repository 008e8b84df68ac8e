#include "serve/generation_task.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "http/sse.h"

namespace fathom::serve {
namespace {

double ms_between(engine::TimePoint from, engine::TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

std::optional<engine::Refusal> GenerationTask::start(engine::Generator& generator,
                                                     const model::Tokenizer& tokenizer,
                                                     std::shared_ptr<http::Exchange> exchange,
                                                     std::unique_ptr<ResponseWriter> writer,
                                                     Delivery delivery, std::vector<Choice> choices,
                                                     ServeMetrics* metrics) {
  const std::shared_ptr<GenerationTask> generation(
      new GenerationTask(generator, std::move(exchange), std::move(writer), delivery.stream, metrics));
  if (auto refusal = generation->submit(tokenizer, std::move(choices))) return refusal;
  // Weak, because the exchange owns this function and the task owns the exchange.
  generation->exchange_->on_gone([weak = std::weak_ptr(generation)] {
    const auto self = weak.lock();
    if (!self) return;
    self->done_ = true;
    self->cancel_all();
  });
  if (delivery.stream) {
    generation->exchange_->begin_stream(200, http::event_stream_headers(),
                                        http::event_stream_ping(delivery.ping_interval));
    if (std::string begun = generation->writer_->begin(); !begun.empty())
      generation->exchange_->write(std::move(begun));
  }
  return std::nullopt;
}

std::optional<engine::Refusal> GenerationTask::submit(const model::Tokenizer& tokenizer,
                                                      std::vector<Choice> choices) {
  // Fills all vectors first: the engine's thread may report progress before submit() returns.
  choices_.reserve(choices.size());
  for (Choice& choice : choices) {
    choices_.push_back({.parser        = OutputParser(tokenizer, std::move(choice.parser)),
                        .prompt_tokens = static_cast<int64_t>(choice.request.prompt.size()),
                        .max_tokens    = choice.request.max_tokens,
                        .own_prompt    = choice.own_prompt});
    if (choice.own_prompt) usage_.prompt_tokens += choices_.back().prompt_tokens;
  }
  unfinished_ = choices_.size();
  gaps_.resize(choices_.size());
  arrivals_.resize(choices_.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    auto submitted = generator_.submit(std::move(choices[i].request),
                                       [self = shared_from_this(), i](const engine::RequestOutput& progress) {
                                         self->on_progress(i, progress);
                                       });
    if (auto* refusal = std::get_if<engine::Refusal>(&submitted)) {
      done_ = true;
      cancel_all();
      return std::move(*refusal);
    }
    choices_[i].id      = std::get<engine::RequestId>(submitted);
    choices_[i].running = true;
  }
  return std::nullopt;
}

void GenerationTask::on_progress(size_t choice, const engine::RequestOutput& progress) {
  if (metrics_ && !progress.tokens.empty()) gaps_[choice].arrived(std::chrono::steady_clock::now());
  {
    const std::lock_guard lock(mutex_);
    Arrival& arrival = arrivals_[choice];
    arrival.tokens.insert(arrival.tokens.end(), progress.tokens.begin(), progress.tokens.end());
    arrival.cached_tokens  = progress.cached_tokens;
    arrival.weight_version = progress.weight_version;
    if (progress.finish) {
      arrival.finish = progress.finish;
      arrival.error  = progress.error;
      if (progress.times) arrival.times = *progress.times;
    }
    if (std::exchange(posted_, true)) return;
  }
  exchange_->post([self = shared_from_this()] { self->deliver(); });
}

void GenerationTask::deliver() {
  std::vector<Arrival> arrivals(choices_.size());
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(arrivals_);
    posted_ = false;
  }
  std::string out;
  for (size_t i = 0; i < arrivals.size(); ++i) out += deliver(i, arrivals[i]);
  if (done_) return;
  if (failure_)
    out += writer_->fail({.status = 500, .type = "InternalServerError", .message = *failure_});
  else if (unfinished_ == 0)
    out += writer_->done(usage_);
  done_ = failure_ || unfinished_ == 0;
  if (stream_) {
    if (!out.empty()) exchange_->write(std::move(out));
    if (done_) exchange_->end();
  } else if (done_) {
    exchange_->respond(failure_ ? 500 : 200, {{"Content-Type", "application/json"}}, std::move(out));
  }
  if (failure_) cancel_all();
}

std::string GenerationTask::deliver(size_t index, Arrival& arrival) {
  if (arrival.tokens.empty() && !arrival.finish) return "";
  ActiveChoice& choice = choices_[index];
  choice.generated_tokens += static_cast<int64_t>(arrival.tokens.size());
  usage_.weight_version = arrival.weight_version;
  if (choice.own_prompt) usage_.cached_tokens += arrival.cached_tokens - choice.cached_tokens;
  choice.cached_tokens = arrival.cached_tokens;
  if (arrival.finish) on_finished(index, arrival);
  if (done_ || failure_) return "";

  OutputParser& parser = choice.parser;
  std::vector<OutputDelta> deltas;
  usage_.completion_tokens -= parser.tokens();
  usage_.reasoning_tokens -= parser.reasoning_tokens();
  for (const engine::Sampled& sampled : arrival.tokens) parser.add(sampled, deltas);
  usage_.completion_tokens += parser.tokens();
  usage_.reasoning_tokens += parser.reasoning_tokens();
  if (parser.stopped()) cancel(choice);
  if (!arrival.finish) return deltas.empty() ? "" : writer_->add(index, deltas, nullptr, usage_);

  if (arrival.finish == engine::FinishReason::error && !parser.stopped()) {
    failure_ = arrival.error;
    return "";
  }
  parser.finish(deltas);
  const ChoiceFinish finish{.reason = parser.stopped() ? engine::FinishReason::stop : *arrival.finish,
                            .stop   = parser.stop_reason()};
  return writer_->add(index, deltas, &finish, usage_);
}

void GenerationTask::on_finished(size_t index, const Arrival& arrival) {
  ActiveChoice& choice              = choices_[index];
  const engine::RequestTimes& times = arrival.times;
  choice.running                    = false;
  --unfinished_;
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
  if (unfinished_ == 0) metrics_->answered(static_cast<int64_t>(choices_.size()), longest_tokens_);
}

void GenerationTask::cancel(ActiveChoice& choice) {
  using enum engine::FinishReason;
  if (std::exchange(choice.running, false))
    generator_.cancel(choice.id, choice.parser.stopped() ? stop : cancelled);
}

void GenerationTask::cancel_all() {
  for (ActiveChoice& choice : choices_) cancel(choice);
}

}  // namespace fathom::serve
