#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "core/expect.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using Clock = std::chrono::steady_clock;

int64_t blocks(int64_t tokens, const EngineConfig& config) {
  return (tokens + config.page_size - 1) / config.page_size;
}

// Layers that see a window get what running sequences need, and a quarter of the other pages for prefixes.
// Prompts that are read whole need all their pages at once.
std::array<int64_t, kGroups> pages_of(const model::Config& model, const EngineConfig& config) {
  const int64_t full = blocks(config.kv_tokens, config);
  const int64_t live =
      config.max_sequences * (blocks(model.sliding_window, config) + 2) + blocks(config.step_tokens, config);
  const bool cut = config.paged_kv && config.chunked_prefill;
  const bool sliding =
      std::find(model.layers.begin(), model.layers.end(), model::Attention::sliding) != model.layers.end();
  return {full, !sliding ? 0 : cut ? std::min(full, live + full / 4) : full};
}

Status check(const EngineConfig& c) {
  for (const auto& [value, name] : {std::pair{c.max_context, "max_context"},
                                    {c.max_sequences, "max_sequences"},
                                    {c.kv_tokens, "kv_tokens"},
                                    {c.page_size, "page_size"},
                                    {c.step_tokens, "step_tokens"},
                                    {c.max_queued_requests, "max_queued_requests"},
                                    {c.max_queued_tokens, "max_queued_tokens"},
                                    {c.static_batch, "static_batch"}})
    if (value < 1) return Error{fmt::format("{} is {}, but must be at least 1", name, value)};
  if (c.kv_tokens < c.max_context)
    return Error{
        fmt::format("kv_tokens is {}, but one sequence may have max_context = {} tokens: give more of "
                    "the one or less of the other",
                    c.kv_tokens, c.max_context)};
  if (c.draft_tokens < 0 || c.draft_tokens > 15)
    return Error{fmt::format("draft_tokens is {}, but must be 0 to 15", c.draft_tokens)};
  if (c.gpu && c.page_size != kGpuPageSize)
    return Error{fmt::format("a page has {} tokens, but on a GPU it has {}", c.page_size, kGpuPageSize)};
  if (!c.gpu && c.kv_dtype != EngineConfig::KvDtype::automatic)
    return Error{
        "on CPUs keys and values are kept in fp32: --kv-cache-dtype bf16 and fp8 are for --device cuda"};
  if (!(c.gpu_memory > 0 && c.gpu_memory <= 1))
    return Error{fmt::format("gpu_memory is {}, but must be above 0 and at most 1", c.gpu_memory)};
  return Ok{};
}

// Of the keys and values of all layers on a GPU, with so many tokens.
double gpu_kv_bytes_of(int64_t kv_tokens, const model::Config& model, EngineConfig config) {
  config.kv_tokens = kv_tokens;
  const auto pages = pages_of(model, config);
  double bytes     = 0;
  for (const model::Attention kind : model.layers)
    bytes += static_cast<double>(pages[kind == model::Attention::sliding ? kWindow : kFull]) *
             static_cast<double>(gpu_page_bytes(model, config));
  return bytes;
}

// The most tokens that take no more than `bytes` there.
int64_t kv_tokens_in(int64_t bytes, const model::Config& model, const EngineConfig& config) {
  int64_t fits = 0, too_many = bytes / config.page_size + 1;  // pages
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    const bool fit = gpu_kv_bytes_of(middle * config.page_size, model, config) <= static_cast<double>(bytes);
    (fit ? fits : too_many) = middle;
  }
  return fits * config.page_size;
}

// The configuration with what it leaves open decided, and checked.
Result<EngineConfig> settle(const model::Checkpoint& checkpoint, EngineConfig c) {
  if (c.gpu)
    if (const Status can = gpu_can_run(checkpoint); !can) return can.error();
  if (c.gpu) {
    EngineConfig known = c;
    if (c.kv_tokens == 0) known.kv_tokens = c.max_context;
    if (const Status good = check(known); !good) return good.error();
    const int64_t bytes = std::max<int64_t>(gpu_kv_bytes(checkpoint.config, c), 0);
    if (c.kv_tokens == 0) c.kv_tokens = kv_tokens_in(bytes, checkpoint.config, c);
    const int64_t wanted = std::max(c.kv_tokens, c.max_context);
    const double needed  = gpu_kv_bytes_of(wanted, checkpoint.config, c);
    if (c.kv_tokens < c.max_context || needed > static_cast<double>(bytes))
      return Error{fmt::format(
          "beside weights and workspace, {:.2f} GB of the GPU's memory are left for keys and values, and {} "
          "tokens need {:.2f} GB: give less of --kv-tokens, --max-model-len or --max-num-batched-tokens, or "
          "more of --gpu-memory-utilization",
          static_cast<double>(bytes) * 1e-9, wanted, needed * 1e-9)};
  }
  if (const Status good = check(c); !good) return good.error();
  return c;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const std::filesystem::path& folder,
                                             const EngineConfig& config) {
  auto checkpoint = model::Checkpoint::open(folder);
  if (!checkpoint) return checkpoint.error();
  auto owned       = std::make_unique<const model::Checkpoint>(std::move(checkpoint).value());
  const auto& kept = *owned;
  return start(std::move(owned), kept, config, {});
}

Result<std::unique_ptr<Engine>> Engine::start(const model::Checkpoint& checkpoint,
                                              const EngineConfig& config) {
  return start(nullptr, checkpoint, config, {});
}

Result<std::unique_ptr<Engine>> Engine::start(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                              const MakeRunner& make_runner) {
  return start(nullptr, checkpoint, config, make_runner);
}

Result<std::unique_ptr<Engine>> Engine::start(std::unique_ptr<const model::Checkpoint> owned,
                                              const model::Checkpoint& checkpoint, const EngineConfig& config,
                                              const MakeRunner& make_runner) {
  const auto settled = settle(checkpoint, config);
  if (!settled) return settled.error();
  const auto ours = [&](const std::array<int64_t, kGroups>& pages) {
    return (settled->gpu ? make_gpu_runner : make_cpu_runner)(checkpoint, *settled, pages);
  };
  return std::unique_ptr<Engine>(
      new Engine(std::move(owned), checkpoint, *settled, make_runner ? make_runner : ours));
}

Engine::Engine(std::unique_ptr<const model::Checkpoint> owned, const model::Checkpoint& checkpoint,
               const EngineConfig& config, const MakeRunner& make_runner)
    : owned_(std::move(owned)),
      checkpoint_(checkpoint),
      config_(config),
      blocks_({.pages        = pages_of(checkpoint.config, config),
               .page_size    = config.page_size,
               .window       = checkpoint.config.sliding_window,
               .prefix_cache = config.prefix_cache,
               .give_back    = config.paged_kv,
               // Nobody outside can make two prefixes that hash to the same.
               .hash_seed = std::random_device()() | uint64_t{std::random_device()()} << 32}),
      scheduler_(config, blocks_),
      runner_(make_runner({blocks_.pool(kFull).pages(), blocks_.pool(kWindow).pages()})) {
  stats_.pages = counted_.pages = blocks_.pages();
  thread_                       = std::thread([this] { loop(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<Refusal> Engine::refusal(const Request& request) const {
  using enum Refusal::Reason;
  const int64_t V = checkpoint_.config.vocab_size;
  if (request.prompt.empty()) return Refusal{invalid, "the prompt is empty: it needs at least one token"};
  for (const TokenId id : request.prompt)
    if (id < 0 || id >= V)
      return Refusal{invalid, fmt::format("the prompt has token {}, but ids are 0 to {}", id, V - 1)};
  for (const TokenId id : request.stop_ids)
    if (id < 0 || id >= V)
      return Refusal{invalid, fmt::format("a stop token is {}, but ids are 0 to {}", id, V - 1)};
  if (request.max_tokens < 1)
    return Refusal{invalid, fmt::format("max_tokens is {}, but must be at least 1", request.max_tokens)};
  if (request.constraint && request.min_tokens > 0)
    return Refusal{invalid,
                   "min_tokens can't be kept where a grammar may end the answer before: drop either"};
  if (const Status good = engine::check(request.sampling, V); !good)
    return Refusal{invalid, good.error().message};
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (request.max_tokens > config_.max_context - prompt)
    return Refusal{too_long,
                   fmt::format("the prompt has {} tokens and {} more are asked for, but the context is {} "
                               "tokens: shorten the prompt or lower max_tokens",
                               prompt, request.max_tokens, config_.max_context)};
  return {};
}

std::variant<RequestId, Refusal> Engine::submit(Request request, Listener listener) {
  using enum Refusal::Reason;
  if (auto refused = refusal(request)) return *refused;
  const auto prompt   = static_cast<int64_t>(request.prompt.size());
  const TimePoint now = Clock::now();
  RequestId id        = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return Refusal{stopping, "the engine is stopping and takes no more requests"};
    if (queued_ >= config_.max_queued_requests || queued_tokens_ + prompt > config_.max_queued_tokens)
      return Refusal{queue_full,
                     fmt::format("{} requests with {} prompt tokens are waiting already: try again later",
                                 queued_, queued_tokens_)};
    id = next_id_++;
    inbox_.push_back(std::make_unique<Sequence>(id, std::move(request), std::move(listener), now));
    ++unfinished_;
    ++queued_;
    queued_tokens_ += prompt;
  }
  changed_.notify_all();
  return id;
}

void Engine::cancel(RequestId id, FinishReason reason) {
  {
    const std::lock_guard lock(mutex_);
    cancel_inbox_.push_back({id, reason});
  }
  changed_.notify_all();
}

GeneratorStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  GeneratorStats now = stats_;
  now.waiting        = queued_;
  now.waiting_tokens = queued_tokens_;
  return now;
}

bool Engine::drain(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return changed_.wait_for(lock, timeout, [&] { return unfinished_ == 0; });
}

// A step runs while the next one is planned: with its tokens still to come, a sequence's next row has its
// place already. A runner that needs no tokens from here gets the next step at once, and what it yields for
// those who turn out to have ended is dropped. Else, when the tokens have come, the plan loses those who have
// ended, and starts.
void Engine::loop() {
  const bool ahead = config_.async_scheduling && config_.draft_tokens == 0;
  StepPlan flying, next;
  while (take_inbox(!flying.empty())) {
    next          = {};
    bool launched = false;
    if (!flying.empty()) {
      if (ahead) {
        const TimePoint start = Clock::now();
        next                  = scheduler_.plan();
        counted_.schedule_s += std::chrono::duration<double>(Clock::now() - start).count();
        launched = !next.empty() && runner_->can_follow(next);
        if (launched) runner_->launch(next);
      }
      auto outputs          = runner_->collect(flying);
      const TimePoint start = Clock::now();
      land(flying, std::move(outputs));
      end_cancelled();
      forget_ended(next, launched);
      if (!ahead) next = scheduler_.plan();
      counted_.schedule_s += std::chrono::duration<double>(Clock::now() - start).count();
    } else {
      end_cancelled();
      next = scheduler_.plan();
      FATHOM_EXPECT(!next.empty() || scheduler_.idle(), "requests wait, and nothing runs that they wait for");
    }
    flying = std::move(next);
    if (!flying.empty() && !launched) runner_->launch(flying);
    count(flying);
    tell();
  }
}

// Their pages are free, though a launched step still writes to them: a step that gets those pages runs after
// it.
void Engine::forget_ended(StepPlan& plan, bool launched) const {
  const auto ended = [&](const StepEntry& entry) { return !sequences_.contains(entry.sequence->id); };
  if (!launched) {
    std::erase_if(plan.entries, ended);
    return;
  }
  for (StepEntry& entry : plan.entries)
    if (ended(entry)) entry.sequence = nullptr;
}

// Waits until there is something to do. False at the end, when nothing is in flight.
bool Engine::take_inbox(bool in_flight) {
  std::vector<std::unique_ptr<Sequence>> arrived;
  {
    std::unique_lock lock(mutex_);
    if (!in_flight && scheduler_.idle())
      changed_.wait(lock, [&] { return ending_ || !inbox_.empty() || !cancel_inbox_.empty(); });
    if (ending_) {
      for (const auto& [id, sequence] : sequences_) cancel_inbox_.push_back({id, FinishReason::cancelled});
      for (const auto& sequence : inbox_) cancel_inbox_.push_back({sequence->id, FinishReason::cancelled});
      if (!in_flight && cancel_inbox_.empty()) return false;
    }
    arrived.swap(inbox_);
    cancels_.insert(cancels_.end(), cancel_inbox_.begin(), cancel_inbox_.end());
    cancel_inbox_.clear();
  }
  for (auto& sequence : arrived) {
    sequences_.emplace(sequence->id, sequence.get());
    scheduler_.add(std::move(sequence));
  }
  return true;
}

void Engine::land(StepPlan& flown, std::vector<StepOutput> outputs) {
  counted_.forward_s = runner_->forward_s();
  counted_.sample_s  = runner_->sample_s();
  counted_.graphs    = runner_->graphs();
  for (size_t e = 0; e < flown.entries.size(); ++e)
    if (flown.entries[e].sequence) land(flown.entries[e], outputs[e]);
}

void Engine::land(const StepEntry& entry, StepOutput& output) {
  Sequence& sequence     = *entry.sequence;
  const Request& request = sequence.request;
  const bool first       = sequence.answered() == 0 && !output.tokens.empty();
  if (!output.error.empty())
    return end(sequence, FinishReason::error, std::move(output.tokens), output.error);

  std::vector<TokenId> ids;
  for (const Sampled& sampled : output.tokens) ids.push_back(sampled.id);
  scheduler_.commit(entry, output.rejected, ids);
  if (!entry.drafts.empty()) {
    const auto accepted = static_cast<size_t>(entry.drafts.size()) - static_cast<size_t>(output.rejected);
    ++counted_.drafts;
    counted_.drafted_tokens += static_cast<int64_t>(entry.drafts.size());
    counted_.accepted_tokens += static_cast<int64_t>(accepted);
    for (size_t place = 0; place < accepted; ++place) ++counted_.accepted_at[place];
  }
  if (ids.empty()) return;
  counted_.generated_tokens += static_cast<int64_t>(ids.size());
  if (first) sequence.times.first_token = Clock::now();
  const bool stop =
      std::find(request.stop_ids.begin(), request.stop_ids.end(), ids.back()) != request.stop_ids.end();
  if (stop) return end(sequence, FinishReason::stop, std::move(output.tokens));
  if (sequence.answered() >= request.max_tokens)
    return end(sequence, FinishReason::length, std::move(output.tokens));
  notes_.push_back({.sequence = &sequence, .tokens = std::move(output.tokens)});
}

void Engine::end_cancelled() {
  for (const auto& [id, reason] : cancels_)
    if (const auto found = sequences_.find(id); found != sequences_.end()) end(*found->second, reason);
  cancels_.clear();
}

void Engine::end(Sequence& sequence, FinishReason reason, std::vector<Sampled> tokens, std::string error) {
  sequences_.erase(sequence.id);
  ++counted_.finished[static_cast<size_t>(reason)];
  RequestTimes& times = sequence.times;
  times.finished      = Clock::now();
  for (TimePoint* reached : {&times.scheduled, &times.first_token})
    if (*reached == TimePoint()) *reached = times.finished;
  Note note{.sequence = &sequence, .tokens = std::move(tokens), .reason = reason, .error = std::move(error)};
  // Its listener may have an earlier note in the list, which needs the sequence as long.
  note.finished = scheduler_.finish(sequence);
  notes_.push_back(std::move(note));
}

void Engine::tell() {
  int64_t ended = 0;
  for (const Note& note : notes_) {
    const Sequence& sequence = *note.sequence;
    sequence.listener({.tokens        = note.tokens,
                       .finish        = note.reason,
                       .error         = note.error,
                       .cached_tokens = sequence.cached_tokens,
                       .drafted       = sequence.drafted,
                       .accepted      = sequence.accepted,
                       .times         = note.reason ? &sequence.times : nullptr});
    if (note.reason) ++ended;
  }
  notes_.clear();
  if (ended == 0) return;
  {
    const std::lock_guard lock(mutex_);
    unfinished_ -= ended;
  }
  changed_.notify_all();
}

void Engine::count(const StepPlan& plan) {
  const TimePoint now = Clock::now();
  for (const StepEntry& entry : plan.entries)
    if (entry.sequence && entry.sequence->times.scheduled == TimePoint())
      entry.sequence->times.scheduled = now;
  if (!plan.empty()) {
    const auto bound = std::lower_bound(kStepRowBounds.begin(), kStepRowBounds.end(), plan.rows());
    ++counted_.steps, counted_.step_rows += plan.rows();
    ++counted_.steps_by_rows[static_cast<size_t>(bound - kStepRowBounds.begin())];
  }
  counted_.running                  = scheduler_.running();
  counted_.pages_in_use             = blocks_.pages_in_use();
  const SchedulerCounters& counters = scheduler_.counters();
  counted_.prompt_tokens            = counters.prompt_tokens;
  counted_.preemptions              = counters.preemptions;
  counted_.prefix_queried_tokens    = counters.prefix_queried_tokens;
  counted_.prefix_hit_tokens        = counters.prefix_hit_tokens;

  const std::lock_guard lock(mutex_);
  queued_        = scheduler_.waiting();
  queued_tokens_ = scheduler_.waiting_tokens();
  for (const auto& sequence : inbox_) ++queued_, queued_tokens_ += sequence->prompt_tokens();
  stats_ = counted_;
}

}  // namespace fathom::engine
