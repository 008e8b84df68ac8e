#include "engine/engine.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <random>

#include "comm/tcp_group.h"
#include "core/expect.h"
#include "cuda/nvtx_range.h"
#include "engine/queue_limit.h"
#include "engine/ranked_runner.h"
#include "engine/resolve_config.h"
#include "engine/router_imbalance.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using Clock = std::chrono::steady_clock;

// Keys and values are an adapter's own: its requests share none with others, whatever salt a client chose.
std::string salt_of(const Request& request) {
  if (!request.adapter.empty()) return "adapter " + request.adapter + "\n" + request.cache_salt;
  return request.cache_salt.empty() ? "" : "salt " + request.cache_salt;
}

// In the order of kSettingNames.
std::array<SchedulerSetting, kSettingNames.size()> settings_of(const EngineConfig& config) {
  return {{{.draft_tokens = 0, .step_tokens = config.step_tokens},
           {.draft_tokens = config.draft_tokens / 2, .step_tokens = config.step_tokens},
           {.draft_tokens = config.draft_tokens, .step_tokens = config.step_tokens},
           {.draft_tokens = 0, .step_tokens = std::max<int64_t>(config.step_tokens / 4, 1)}}};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const std::filesystem::path& folder,
                                             const EngineConfig& config) {
  auto checkpoint = model::Checkpoint::open(folder, weights_load(config));
  if (!checkpoint) return checkpoint.error();
  auto owned       = std::make_unique<model::Checkpoint>(std::move(checkpoint).value());
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

Result<std::unique_ptr<Engine>> Engine::start(std::unique_ptr<model::Checkpoint> owned,
                                              const model::Checkpoint& checkpoint, const EngineConfig& config,
                                              const MakeRunner& make_runner) {
  const auto resolved = resolve_config(checkpoint, config);
  if (!resolved) return resolved.error();
  const auto group        = comm::group_options_from_environment();
  const bool ranks_on_cpu = resolved->ranks() > 1 && !resolved->gpu;
  if (!group && ranks_on_cpu) return group.error();
  const auto ours = [&](const std::array<int64_t, kKvKinds>& pages) -> std::unique_ptr<ModelRunner> {
    if (ranks_on_cpu) return std::make_unique<RankedRunner>(checkpoint, *resolved, pages, *group);
    return (resolved->gpu ? make_gpu_runner : make_cpu_runner)(checkpoint, *resolved, pages);
  };
  return std::unique_ptr<Engine>(
      new Engine(std::move(owned), checkpoint, *resolved, make_runner ? make_runner : ours));
}

Engine::Engine(std::unique_ptr<model::Checkpoint> owned, const model::Checkpoint& checkpoint,
               const EngineConfig& config, const MakeRunner& make_runner)
    : owned_(std::move(owned)),
      checkpoint_(checkpoint),
      config_(config),
      blocks_({.pages              = kv_cache_pages(checkpoint.config, config),
               .page_size          = config.page_size,
               .window             = checkpoint.config.sliding_window,
               .prefix_cache       = config.prefix_cache,
               .free_out_of_window = config.paged_kv,
               // Random, so that a client cannot construct colliding prefixes.
               .hash_seed = std::random_device()() | uint64_t{std::random_device()()} << 32,
               .eviction  = config.eviction}),
      scheduler_(config, blocks_),
      runner_(make_runner({blocks_.pool(kFull).pages(), blocks_.pool(kWindow).pages()})),
      updater_([this] {
        { const std::lock_guard lock(mutex_); }  // the engine's thread waits, or will look before it does
        changed_.notify_all();
      }),
      tuner_({.settings = config.adaptive ? static_cast<int64_t>(kSettingNames.size()) : 1}) {
  weight_version_ = config_.weight_version;
  if (config_.adaptive) scheduler_.set(settings_of(config_)[0]);
  if (Proposer* proposer = runner_->proposer()) scheduler_.draft_with(*proposer);
  stats_.pages = counters_.pages = blocks_.pages();
  stats_.memory = counters_.memory = runner_->memory();
  thread_                          = std::thread([this] { loop(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  updater_.end();
}

std::optional<Refusal> Engine::refusal(const Request& request) const {
  using enum Refusal::Reason;
  const int64_t V = checkpoint_.config.vocab_size;
  if (request.prompt.empty()) return Refusal{invalid, "the prompt is empty: it needs at least one token"};
  for (const TokenId id : request.prompt)
    if (id < 0 || id >= V)
      return Refusal{invalid, fmt::format("the prompt has token {}, but ids are 0 to {}", id, V - 1)};
  for (const TokenId id : request.resumed)
    if (id < 0 || id >= V)
      return Refusal{invalid, fmt::format("the answer so far has token {}, but ids are 0 to {}", id, V - 1)};
  if (static_cast<int64_t>(request.resumed.size()) >= std::max<int64_t>(request.max_tokens, 1))
    return Refusal{invalid, fmt::format("the answer so far has {} tokens already, and max_tokens is {}",
                                        request.resumed.size(), request.max_tokens)};
  for (const TokenId id : request.stop_ids)
    if (id < 0 || id >= V)
      return Refusal{invalid, fmt::format("a stop token is {}, but ids are 0 to {}", id, V - 1)};
  if (!request.adapter.empty() &&
      std::ranges::find(config_.lora_modules, request.adapter, &EngineConfig::LoraModule::name) ==
          config_.lora_modules.end())
    return Refusal{invalid, fmt::format("there is no adapter '{}' (--lora-modules)", request.adapter)};
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
  if (!config_.lora_modules.empty()) request.cache_salt = salt_of(request);
  const auto prompt   = static_cast<int64_t>(request.prompt.size());
  const TimePoint now = Clock::now();
  RequestId id        = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return Refusal{stopping, "the engine is stopping and takes no more requests"};
    if (auto full = full_queue(config_, queued_, queued_tokens_, prompt)) return *full;
    id = next_id_++;
    if (!has_work()) progressed_ = now;
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

void Engine::with_kv(std::function<void(KvStore&)> work) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_work()) progressed_ = Clock::now();
    kv_work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

GeneratorStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  GeneratorStats now = stats_;
  now.weight_version = weight_version_;
  now.waiting        = queued_;
  now.waiting_tokens = queued_tokens_;
  if (has_work()) now.stalled_s = std::chrono::duration<double>(Clock::now() - progressed_).count();
  return now;
}

bool Engine::drain(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return changed_.wait_for(lock, timeout, [&] { return unfinished_ == 0; });
}

// With async scheduling, the next step is scheduled while a step is in flight; tokens not sampled yet count
// as placeholders. A runner that can overlap steps executes the next one at once, and its output is dropped
// for sequences that finish meanwhile. Otherwise the next step waits for the tokens, loses the sequences that
// have finished, and then executes.
void Engine::loop() {
  pthread_setname_np(pthread_self(), "fathom-engine");  // for top -H, perf and debuggers
  SchedulerOutput in_flight, next;
  while (receive_requests(!in_flight.empty())) {
    next            = {};
    bool overlapped = false;
    const bool swap = swap_is_due();
    if (!in_flight.empty()) {
      // Drafts need the last token.
      const bool async = config_.async_scheduling && !scheduler_.may_draft() && !swap;
      if (async) {
        const TimePoint start = Clock::now();
        next                  = schedule();
        counters_.schedule_s += std::chrono::duration<double>(Clock::now() - start).count();
        overlapped = !next.empty() && runner_->can_overlap(next);
        if (overlapped) execute(next);
      }
      auto outputs          = get_output(in_flight);
      const TimePoint start = Clock::now();
      const StepYield yield = yield_of(in_flight);
      time_step(in_flight, outputs);
      const bool failed = process_output(in_flight, std::move(outputs));
      tune(yield);
      finish_cancelled();
      drop_finished(next, overlapped, failed);
      run_kv_work();  // also where steps always overlap, or it would wait for all requests to end
      if (!async && !swap) next = schedule();
      counters_.schedule_s += std::chrono::duration<double>(Clock::now() - start).count();
    } else {
      last_output_ = {};
      finish_cancelled();
      run_kv_work();
      if (swap || swap_is_due()) swap_weights();  // what it waited for may just have been cancelled
      next        = schedule();
      step_began_ = Clock::now();
      FATHOM_EXPECT(!next.empty() || scheduler_.idle(), "requests wait, and nothing runs that they wait for");
    }
    in_flight = std::move(next);
    if (!in_flight.empty() && !overlapped) execute(in_flight);
    update_stats(in_flight);
    notify_listeners();
  }
}

SchedulerOutput Engine::schedule() {
  const NvtxRange range("schedule");
  return scheduler_.schedule();
}

// Launches a step; with a log, notes what is in it, because sequences may be gone when it is done.
void Engine::execute(const SchedulerOutput& step) {
  StepRecord record{.launched = Clock::now()};
  for (const ScheduledSequence& scheduled : step.sequences) {
    const int64_t prompt = scheduled.sequence->num_prompt_tokens() - scheduled.first;
    record.prompt_rows += std::clamp<int64_t>(prompt, 0, scheduled.rows);
    record.decodes += prompt <= 0;
  }
  if (config_.on_step) steps_in_flight_.push_back(record);
  const NvtxRange range(record.prompt_rows > 0 ? "prefill" : "decode");
  runner_->execute_model(step);
}

std::vector<SequenceOutput> Engine::get_output(const SchedulerOutput& step) {
  const NvtxRange range("wait");
  auto outputs = runner_->get_output(step);
  if (!config_.on_step) return outputs;
  StepRecord record = steps_in_flight_.front();
  steps_in_flight_.pop_front();
  record.done = Clock::now();
  for (const SequenceOutput& output : outputs) record.tokens += static_cast<int64_t>(output.tokens.size());
  const View<const int64_t, 2> load = runner_->expert_load();
  const std::vector<int64_t> now(load.data(), load.data() + load.size());
  last_expert_load_.resize(now.size());
  for (size_t i = 0; i < now.size(); ++i) last_expert_load_[i] = now[i] - last_expert_load_[i];
  record.router_imbalance =
      router_imbalance(View<const int64_t, 2>(last_expert_load_.data(), {load.extent(0), load.extent(1)}));
  last_expert_load_ = now;
  config_.on_step(record);
  return outputs;
}

// The pages of a finished sequence are free although an overlapped step still writes to them: any step that
// allocates them runs later on the same stream. An overlapped step computes the rows of those who have
// finished too, so others may find their blocks; but not those of a step before it that `failed`.
void Engine::drop_finished(SchedulerOutput& step, bool overlapped, bool failed) {
  const auto has_finished = [&](const ScheduledSequence& scheduled) {
    return !sequences_.contains(scheduled.sequence->id);
  };
  if (!overlapped) {
    std::erase_if(step.sequences, has_finished);
    scheduler_.preempt_holders_of_lost_blocks(step);
    return;
  }
  if (failed)
    for (Sequence* sequence : scheduler_.sequences())
      if (sequence->pages.holds_planned)
        finish(*sequence, FinishReason::error, {}, "the step that was to compute its prefix failed");
  for (ScheduledSequence& scheduled : step.sequences)
    if (has_finished(scheduled)) scheduled.sequence = nullptr;
}

// Blocks while there is nothing to do. Returns false when the engine ends and no step is in flight.
bool Engine::receive_requests(bool in_flight) {
  std::vector<std::unique_ptr<Sequence>> arrived;
  {
    std::unique_lock lock(mutex_);
    if (!in_flight && scheduler_.idle())
      changed_.wait(lock, [&] {
        return ending_ || !inbox_.empty() || !cancel_inbox_.empty() || !kv_work_.empty() || updater_.loaded();
      });
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

// Tells the draft budget how long a step took, if it only decoded and all its sequences are still here.
void Engine::time_step(const SchedulerOutput& step, std::span<const SequenceOutput> outputs) {
  const TimePoint now = Clock::now(), before = std::exchange(last_output_, now);
  if (!config_.draft_budget || before == TimePoint()) return;
  int64_t accepted = 0;
  for (size_t e = 0; e < step.sequences.size(); ++e) {
    const ScheduledSequence& scheduled = step.sequences[e];
    const int64_t drafted              = std::ssize(scheduled.drafts);
    if (!scheduled.sequence || scheduled.first < scheduled.sequence->num_prompt_tokens() ||
        scheduled.rows > 1 + drafted)
      return;
    accepted += drafted - outputs[e].rejected;
  }
  scheduler_.took(step, accepted, std::chrono::duration<double>(now - before).count());
}

// Whether the step failed.
bool Engine::process_output(SchedulerOutput& step, std::vector<SequenceOutput> outputs) {
  counters_.forward_s       = runner_->forward_s();
  counters_.sample_s        = runner_->sample_s();
  counters_.graphs          = runner_->graphs();
  counters_.graph_fallbacks = runner_->graph_fallbacks();
  if (const auto imbalance = router_imbalance(runner_->expert_load())) counters_.router_imbalance = imbalance;
  if (config_.expert_parallel) counters_.rank_imbalance = router_imbalance(runner_->rank_load());
  if (const EplbStats* eplb = runner_->eplb()) counters_.eplb = *eplb;
  for (size_t e = 0; e < step.sequences.size(); ++e)
    if (step.sequences[e].sequence) process_output(step.sequences[e], outputs[e]);
  return std::all_of(outputs.begin(), outputs.end(),
                     [](const auto& output) { return !output.error.empty(); });
}

void Engine::process_output(const ScheduledSequence& scheduled, SequenceOutput& output) {
  Sequence& sequence     = *scheduled.sequence;
  const Request& request = sequence.request;
  const bool first       = sequence.times.first_token == TimePoint() && !output.tokens.empty();
  if (!output.error.empty())
    return finish(sequence, FinishReason::error, std::move(output.tokens), output.error);

  if (request.on_kv_block) report_kv_blocks(scheduled);
  std::vector<TokenId> ids;
  for (const Sampled& sampled : output.tokens) ids.push_back(sampled.id);
  scheduler_.commit(scheduled, output.rejected, ids);
  if (!scheduled.drafts.empty()) {
    const auto accepted = static_cast<size_t>(scheduled.drafts.size()) - static_cast<size_t>(output.rejected);
    ++counters_.drafts;
    counters_.drafted_tokens += static_cast<int64_t>(scheduled.drafts.size());
    counters_.accepted_tokens += static_cast<int64_t>(accepted);
    for (size_t place = 0; place < accepted; ++place) ++counters_.accepted_at[place];
  }
  if (ids.empty()) return;
  counters_.generated_tokens += static_cast<int64_t>(ids.size());
  if (first) sequence.times.first_token = Clock::now();
  const bool stop =
      std::find(request.stop_ids.begin(), request.stop_ids.end(), ids.back()) != request.stop_ids.end();
  if (stop) return finish(sequence, FinishReason::stop, std::move(output.tokens));
  if (sequence.num_output_tokens() >= request.max_tokens)
    return finish(sequence, FinishReason::length, std::move(output.tokens));
  notifications_.push_back({.sequence = &sequence, .tokens = std::move(output.tokens)});
}

// Blocks of the prompt that the step has completed, before commit() frees those behind the window.
void Engine::report_kv_blocks(const ScheduledSequence& scheduled) {
  Sequence& sequence = *scheduled.sequence;
  if (!sequence.running || sequence.admissions != scheduled.admission) return;  // preempted meanwhile
  const int64_t prefix = blocks_.prefix_blocks(sequence.num_prompt_tokens());
  const int64_t end    = std::min(prefix, (scheduled.first + scheduled.rows) / blocks_.page_size());
  std::vector<KvPage> pages;
  std::vector<int64_t> blocks;
  for (int64_t& block = sequence.reported_kv_blocks; block < end; ++block)
    for (const KvKind kind : {kFull, kWindow}) {
      if (!blocks_.prefix_needs(kind, block, prefix) || runner_->kv_block_bytes(kind) == 0) continue;
      pages.push_back(
          {.kind = kind, .page = sequence.pages.block_tables[kind].pages[static_cast<size_t>(block)]});
      blocks.push_back(block);
    }
  runner_->read_kv_blocks(
      pages, [&](size_t i, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
        sequence.request.on_kv_block(
            {.kind = pages[i].kind, .block = blocks[i], .bytes = bytes, .owner = std::move(owner)});
      });
}

void Engine::run_kv_work() {
  std::vector<std::function<void(KvStore&)>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(kv_work_);
  }
  KvStore store(blocks_, *runner_);
  for (const auto& one : work) one(store);
}

// Of a step whose output is not processed yet.
StepYield Engine::yield_of(const SchedulerOutput& step) const {
  StepYield yield{.tokens = -counters_.generated_tokens,
                  .demand = scheduler_.running() + scheduler_.waiting()};
  for (const ScheduledSequence& scheduled : step.sequences)
    if (scheduled.sequence && scheduled.admission == 1)
      yield.prompt_tokens +=
          std::clamp<int64_t>(scheduled.sequence->num_prompt_tokens() - scheduled.first, 0, scheduled.rows);
  return yield;
}

void Engine::tune(StepYield yield) {
  if (!config_.adaptive) return;
  const TimePoint now  = Clock::now();
  const int64_t before = tuner_.setting();
  yield.seconds        = std::chrono::duration<double>(now - step_began_).count();
  yield.tokens += counters_.generated_tokens;
  step_began_ = now;
  tuner_.record(yield);
  const int64_t setting = tuner_.setting();
  if (setting != before) scheduler_.set(settings_of(config_)[static_cast<size_t>(setting)]);
  counters_.setting_changes = tuner_.changes();
  for (size_t i = 0; i < counters_.setting_s.size(); ++i)
    counters_.setting_s[i] = tuner_.seconds(static_cast<int64_t>(i));
}

Status Engine::update_weights(WeightUpdate update, WeightUpdater::Done done) {
  if (config_.gpu)
    return Error{
        "weights cannot be replaced on a GPU while it serves: start another process with the new ones, and "
        "send it the requests"};
  if (config_.draft_tokens > 0 && config_.draft_method == EngineConfig::DraftMethod::eagle3)
    return Error{
        "weights cannot be replaced beside a draft model, which reads them: draft by \"ngram\" or "
        "\"suffix\""};
  auto load = [this, folder = update.folder] { return load_weights(folder, checkpoint_.config, config_); };
  return updater_.start(std::move(update), std::move(load), std::move(done));
}

// Whether to swap before the next step. Of Mode::wait, lets only those go on that have begun.
bool Engine::swap_is_due() {
  if (!updater_.loaded()) return false;
  if (updater_.update().mode != WeightUpdate::Mode::wait) return true;
  scheduler_.hold_admission(true);
  return scheduler_.begun().empty();
}

// Precondition: no step is planned or in flight.
void Engine::swap_weights() {
  using enum WeightUpdate::Mode;
  LoadedWeights& weights     = updater_.weights();
  const WeightUpdate& update = updater_.update();
  scheduler_.hold_admission(false);
  const Status swapped = runner_->swap_weights(weights.ranks);
  if (!swapped) return updater_.swapped(swapped);

  if (update.mode == abort)
    for (Sequence* sequence : scheduler_.begun()) finish(*sequence, FinishReason::cancelled);
  if (update.mode == retract) scheduler_.retract();
  scheduler_.reset_prefix_cache();
  notify_listeners();  // the tokens so far are of the old version
  ++counters_.weight_updates;
  counters_.memory.weights = weights.bytes;
  {
    // Whoever is told of the update below may ask at once.
    const std::lock_guard lock(mutex_);
    weight_version_       = update.version;
    stats_.weight_updates = counters_.weight_updates;
    stats_.memory.weights = counters_.memory.weights;
  }
  std::swap(tensors_, weights.tensors);
  if (owned_ && counters_.weight_updates == 1) {
    weights.tensors = std::move(owned_->tensors);
    owned_->weights = {};
  }
  updater_.swapped(Ok{});
}

void Engine::finish_cancelled() {
  for (const auto& [id, reason] : cancels_)
    if (const auto found = sequences_.find(id); found != sequences_.end()) finish(*found->second, reason);
  cancels_.clear();
}

void Engine::finish(Sequence& sequence, FinishReason reason, std::vector<Sampled> tokens, std::string error) {
  sequences_.erase(sequence.id);
  ++counters_.finished[static_cast<size_t>(reason)];
  RequestTimes& times = sequence.times;
  times.finished      = Clock::now();
  for (TimePoint* reached : {&times.scheduled, &times.first_token})
    if (*reached == TimePoint()) *reached = times.finished;
  Notification notification{
      .sequence = &sequence, .tokens = std::move(tokens), .reason = reason, .error = std::move(error)};
  // An earlier notification in the list may still need the sequence.
  notification.finished = scheduler_.finish(sequence);
  notifications_.push_back(std::move(notification));
}

void Engine::notify_listeners() {
  const NvtxRange range("notify");
  int64_t ended = 0;
  for (const Notification& notification : notifications_) {
    const Sequence& sequence = *notification.sequence;
    sequence.listener({.tokens         = notification.tokens,
                       .finish         = notification.reason,
                       .error          = notification.error,
                       .cached_tokens  = sequence.cached_tokens,
                       .drafted        = sequence.drafted,
                       .accepted       = sequence.accepted,
                       .times          = notification.reason ? &sequence.times : nullptr,
                       .weight_version = weight_version_});
    if (notification.reason) ++ended;
  }
  notifications_.clear();
  if (ended == 0) return;
  {
    const std::lock_guard lock(mutex_);
    unfinished_ -= ended;
  }
  changed_.notify_all();
}

void Engine::update_stats(const SchedulerOutput& step) {
  const TimePoint now = Clock::now();
  for (const ScheduledSequence& scheduled : step.sequences)
    if (scheduled.sequence && scheduled.sequence->times.scheduled == TimePoint())
      scheduled.sequence->times.scheduled = now;
  if (!step.empty()) {
    const auto bound = std::lower_bound(kStepRowBounds.begin(), kStepRowBounds.end(), step.rows());
    ++counters_.steps, counters_.step_rows += step.rows();
    ++counters_.steps_by_rows[static_cast<size_t>(bound - kStepRowBounds.begin())];
  }
  counters_.running                 = scheduler_.running();
  counters_.pages_in_use            = blocks_.pages_in_use();
  const SchedulerCounters& counters = scheduler_.counters();
  counters_.prompt_tokens           = counters.prompt_tokens;
  counters_.preemptions             = counters.preemptions;
  counters_.admission_holds         = scheduler_.admission_holds();
  counters_.held_steps              = counters.held_steps;
  counters_.forgotten_pages         = blocks_.forgotten();
  counters_.prefix_queried_tokens   = counters.prefix_queried_tokens;
  counters_.prefix_hit_tokens       = counters.prefix_hit_tokens;
  counters_.received_hit_tokens     = counters.received_hit_tokens;

  const std::lock_guard lock(mutex_);
  queued_        = scheduler_.waiting();
  queued_tokens_ = scheduler_.waiting_tokens();
  for (const auto& sequence : inbox_) ++queued_, queued_tokens_ += sequence->num_prompt_tokens();
  stats_      = counters_;
  progressed_ = now;
}

}  // namespace fathom::engine
