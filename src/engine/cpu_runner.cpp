#include "engine/cpu_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "core/cpus.h"
#include "core/expect.h"
#include "cuda/nvtx_range.h"
#include "engine/kv_format.h"
#include "engine/rejection_sampler.h"
#include "engine/resolve_config.h"
#include "model/kv_rounding.h"
#include "model/ops.h"

namespace fathom::engine {
namespace {

using model::TokenId;

constexpr int64_t kLogitRows = 64;  // computed at once: 51 MB at gpt-oss's vocabulary

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

const model::Ops& kv_ops_of(const EngineConfig& config) {
  if (config.kv_dtype == EngineConfig::KvDtype::automatic) return model::cpu_ops();
  return model::cpu_ops_rounding_kv(kv_format_of(config), config.emulate_kv_hadamard
                                                              ? model::KvRotation::hadamard
                                                              : model::KvRotation::none);
}

model::Ops ops_of(const EngineConfig& config) {
  const model::Ops& ops = kv_ops_of(config);
  return config.activation_dtype == EngineConfig::ActivationDtype::int8 ? model::with_int8_activations(ops)
                                                                        : ops;
}

int threads_of_rank(const EngineConfig& config) {
  const int threads = config.threads > 0 ? config.threads : host_threads();
  return std::max(1, threads / static_cast<int>(config.ranks()));
}

// Rows of a micro-batch for a step of so many. In M micro-batches a step of N stages takes M + N - 1 turns of
// a stage. A turn reads the stage's weights, which takes as long as computing some kRowsOfAPass rows, and
// computes rows / M of them, so that sqrt((N - 1) rows / kRowsOfAPass) micro-batches take least. Steps of 16
// and of 512 rows of gpt-oss-20b's layers on a Zen 4 (`fathom bench latency`) make it some 30.
int64_t rows_of_micro_batch(int64_t rows, int64_t stages) {
  constexpr double kRowsOfAPass = 30;
  const double best             = std::sqrt(static_cast<double>((stages - 1) * rows) / kRowsOfAPass);
  const auto batches            = std::clamp<int64_t>(std::llround(best), 1, rows);
  return (rows + batches - 1) / batches;
}

}  // namespace

CpuRunner::CpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                     const std::array<int64_t, kKvKinds>& pages, int64_t rank, const model::Weights* weights)
    : rank_(rank),
      cut_(shard_options(config)),
      samples_(rank == (cut_.stages - 1) * cut_.ranks),
      shard_(model::shard_of(checkpoint.config, weights ? *weights : checkpoint.weights, cut_, rank)),
      vocab_size_(checkpoint.config.vocab_size),
      max_rows_(std::max({config.step_tokens, config.draft_tokens + 1})),
      max_logit_rows_(std::max(std::min(config.max_sequences, kLogitRows), config.draft_tokens + 1)),
      page_size_(config.page_size),
      most_drafts_(config.draft_tokens),
      threads_(threads_of_rank(config)),
      model_(shard_.config, shard_.weights, ops_of(config), max_rows_, max_logit_rows_, threads_,
             has_screening(checkpoint.config, config)),
      kv_(shard_.config, pages[kFull], pages[kWindow], page_size_),
      samplers_(static_cast<size_t>(threads_.threads()), Sampler(vocab_size_)),
      logits_(last_stage() ? max_logit_rows_ * vocab_size_ : 0) {
  for (const auto& [name, tensor] : checkpoint.tensors.tensors())
    memory_.weights += static_cast<int64_t>(tensor.bytes.size());
  for (size_t l = 0; l < shard_.config.layers.size(); ++l)
    layers_[shard_.config.layers[l] == model::Attention::full ? kFull : kWindow].push_back(
        static_cast<int64_t>(l));
  for (size_t l = 0; l < shard_.config.layers.size(); ++l)
    for (const auto& half :
         {kv_.layer(static_cast<int64_t>(l)).keys, kv_.layer(static_cast<int64_t>(l)).values}) {
      memory_.kv_cache += half.size() * int64_t{sizeof(float)};
      threads_.parallel_for(half.size(), 1 << 16, [&](int64_t begin, int64_t end) {
        std::memset(half.data() + begin, 0, static_cast<size_t>(end - begin) * sizeof(float));
      });
    }
  if (rank == 0 && config.draft_tokens > 0 && config.draft_method == EngineConfig::DraftMethod::eagle3) {
    auto drafter = model::Eagle::open(config.draft_model, checkpoint, model::cpu_ops(), threads_);
    FATHOM_EXPECT(drafter, "resolve_config opened it before");
    drafter_ = std::make_unique<EagleProposer>(std::move(drafter).value());
    model_.tap(drafter_->taps());
    memory_.weights += drafter_->weight_bytes();
  }
  int64_t adapter_bytes = 0;  // they stay when the weights are replaced
  if (!config.lora_modules.empty()) {
    std::vector<model::LoraAdapter> adapters;
    for (const EngineConfig::LoraModule& module : config.lora_modules) {
      auto adapter = model::LoraAdapter::open(module.path, shard_.config);
      FATHOM_EXPECT(adapter, "resolve_config opened it before: " + adapter.error().message);
      adapter_bytes += adapter->bytes();
      adapters.push_back(std::move(adapter).value());
      adapter_names_.push_back(module.name);
    }
    model_.set_adapters(std::move(adapters));
  }
  memory_.workspace = model_.workspace_bytes() + adapter_bytes + logits_.size() * int64_t{sizeof(float)};
  if (config.async_scheduling || config.ranks() > 1) worker_ = std::thread([this] { work(); });
}

CpuRunner::~CpuRunner() {
  if (!worker_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ != State::launched; });
    state_ = State::ending;
  }
  changed_.notify_all();
  worker_.join();
}

void CpuRunner::join(RankGroups groups) {
  groups_ = std::move(groups);
  model_.join(groups_.tensor.get());
}

Status CpuRunner::swap_weights(std::vector<model::ProcessedWeights>& ranks) {
  model_.swap(ranks[static_cast<size_t>(rank_)]);
  return Ok{};
}

bool CpuRunner::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return state_ == State::done; });
}

void CpuRunner::give_up_step() {
  const std::lock_guard lock(step_is_read_);
  step_ = nullptr;
}

std::unique_lock<std::mutex> CpuRunner::step_to_read() {
  std::unique_lock lock(step_is_read_);
  if (!step_) throw std::runtime_error("came late: the step had been given up");
  return lock;
}

std::string CpuRunner::device_name() const {
  return fmt::format("{} thread{}", threads_.threads(), threads_.threads() == 1 ? "" : "s");
}

std::vector<std::span<std::byte>> CpuRunner::kv_block(KvKind kind, Page page) const {
  std::vector<std::span<std::byte>> pieces;
  for (const int64_t l : layers_[kind])
    for (const View<float, 4>& half : {kv_.layer(l).keys, kv_.layer(l).values}) {
      const int64_t numbers = half.extent(1) * half.extent(2) * half.extent(3);
      pieces.push_back(
          std::as_writable_bytes(std::span(half.data() + page * numbers, static_cast<size_t>(numbers))));
    }
  return pieces;
}

int64_t CpuRunner::kv_block_bytes(KvKind kind) const {
  if (layers_[kind].empty()) return 0;
  const View<float, 4> keys = kv_.layer(layers_[kind].front()).keys;
  return 2 * static_cast<int64_t>(layers_[kind].size()) * keys.extent(1) * keys.extent(2) * keys.extent(3) *
         int64_t{sizeof(float)};
}

void CpuRunner::read_kv_block(KvKind kind, Page page, std::span<std::byte> to) const {
  for (const auto piece : kv_block(kind, page)) {
    std::memcpy(to.data(), piece.data(), piece.size());
    to = to.subspan(piece.size());
  }
}

void CpuRunner::write_kv_block(KvKind kind, Page page, std::span<const std::byte> from) {
  for (const auto piece : kv_block(kind, page)) {
    std::memcpy(piece.data(), from.data(), piece.size());
    from = from.subspan(piece.size());
  }
}

void CpuRunner::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return state_ == State::launched || state_ == State::ending; });
    if (state_ == State::ending) return;
    lock.unlock();
    run_step();
    lock.lock();
    state_ = State::done;
    changed_.notify_all();
  }
}

// Engine::submit refuses other names.
int32_t CpuRunner::adapter_of(const std::string& name) const {
  const auto found = std::ranges::find(adapter_names_, name);
  return found == adapter_names_.end() ? -1 : static_cast<int32_t>(found - adapter_names_.begin());
}

void CpuRunner::execute_model(const SchedulerOutput& step) {
  FATHOM_EXPECT(state_ == State::idle && !step.empty(), "one step at a time, and something in it");
  step_    = &step;
  failure_ = nullptr;
  tokens_.clear(), positions_.clear(), first_row_of_sequence_.clear(), sampled_rows_.clear(),
      adapters_.clear();
  outputs_.assign(step.sequences.size(), {});
  pages_per_sequence_ = 0;
  for (const ScheduledSequence& scheduled : step.sequences)
    pages_per_sequence_ =
        std::max(pages_per_sequence_, (scheduled.first + scheduled.rows + page_size_ - 1) / page_size_);
  for (auto& table : block_tables_)
    table.resize(step.sequences.size() * static_cast<size_t>(pages_per_sequence_));

  for (size_t e = 0; e < step.sequences.size(); ++e) {
    const ScheduledSequence& scheduled = step.sequences[e];
    first_row_of_sequence_.push_back(static_cast<int64_t>(tokens_.size()));
    sampled_rows_.push_back({.drafts = std::ssize(scheduled.drafts), .samples = scheduled.samples});
    adapters_.push_back(adapter_of(scheduled.sequence->request.adapter));
    const auto own   = scheduled.rows - sampled_rows_.back().drafts;
    const auto& from = scheduled.sequence->tokens;
    FATHOM_EXPECT(scheduled.first + own <= scheduled.sequence->num_tokens(),
                  "a row's token is not known yet");
    tokens_.insert(tokens_.end(), from.begin() + scheduled.first, from.begin() + scheduled.first + own);
    tokens_.insert(tokens_.end(), scheduled.drafts.begin(), scheduled.drafts.end());
    for (int64_t r = 0; r < scheduled.rows; ++r)
      positions_.push_back(static_cast<int32_t>(scheduled.first + r));
    for (int kind = 0; kind < kKvKinds; ++kind) {
      const auto& pages = scheduled.sequence->pages.block_tables[kind].pages;
      const auto count  = std::min(static_cast<int64_t>(pages.size()), pages_per_sequence_);
      std::copy_n(pages.begin(), count,
                  block_tables_[kind].begin() + static_cast<int64_t>(e) * pages_per_sequence_);
    }
  }
  first_row_of_sequence_.push_back(static_cast<int64_t>(tokens_.size()));
  micro_batch_rows_ = max_rows_;
  if (cut_.stages > 1)  // a sequence with drafts is not split
    micro_batch_rows_ =
        std::clamp(rows_of_micro_batch(std::ssize(tokens_), cut_.stages), most_drafts_ + 1, max_rows_);

  {
    const std::lock_guard lock(mutex_);
    state_ = State::launched;
  }
  changed_.notify_all();
}

std::vector<SequenceOutput> CpuRunner::get_output(const SchedulerOutput&) {
  if (worker_.joinable()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ == State::done; });
  } else {
    run_step();
  }
  state_ = State::idle;
  return std::move(outputs_);
}

void CpuRunner::run_step() {
  try {
    for (MicroBatch batch = next_micro_batch({}); batch.rows > 0; batch = next_micro_batch(batch)) {
      const TimePoint start = std::chrono::steady_clock::now();
      forward(batch);
      forward_s_ += seconds_since(start);
      compute_logits(batch);
    }
  } catch (const std::exception& error) {
    for (SequenceOutput& output : outputs_) output = {.error = error.what()};
    failure_ = std::current_exception();
    join({});
  }
}

// The rows after those of `before`, as many as a micro-batch has. A sequence with drafts is not split. The
// same on all ranks.
CpuRunner::MicroBatch CpuRunner::next_micro_batch(const MicroBatch& before) const {
  const auto rows = static_cast<int64_t>(tokens_.size());
  MicroBatch batch{.first_row = before.first_row + before.rows, .first_sequence = before.first_sequence};
  while (batch.first_sequence < sampled_rows_.size() &&
         first_row_of_sequence_[batch.first_sequence + 1] <= batch.first_row)
    ++batch.first_sequence;
  int64_t end = std::min(rows, batch.first_row + micro_batch_rows_);
  for (size_t e = batch.first_sequence; e < sampled_rows_.size() && first_row_of_sequence_[e] < end; ++e) {
    if (sampled_rows_[e].drafts > 0 && first_row_of_sequence_[e + 1] > end) {
      end = first_row_of_sequence_[e];
      break;
    }
    ++batch.sequences;
  }
  batch.rows = end - batch.first_row;
  return batch;
}

void CpuRunner::forward(const MicroBatch& batch) {
  const NvtxRange range("forward");
  first_row_.assign(1, 0);
  for (int64_t e = 0; e < batch.sequences; ++e) {
    const int64_t end = first_row_of_sequence_[batch.first_sequence + static_cast<size_t>(e) + 1];
    first_row_.push_back(static_cast<int32_t>(std::min(end, batch.first_row + batch.rows) - batch.first_row));
  }
  const auto table = [&](KvKind kind) {
    return View<const int32_t, 2>(
        block_tables_[kind].data() + static_cast<int64_t>(batch.first_sequence) * pages_per_sequence_,
        {batch.sequences, pages_per_sequence_});
  };
  const View<float, 2> x = model_.hidden_states(batch.rows);
  const std::span stream(x.data(), static_cast<size_t>(x.size()));
  const auto before = static_cast<int>(stage() - 1), after = static_cast<int>(stage() + 1);
  if (before >= 0) groups_.pipeline->receive(stream, before);
  model_.forward(
      {.tokens       = View<const int32_t, 1>(tokens_.data() + batch.first_row, {batch.rows}),
       .rows         = {.first_row = View<const int32_t, 1>(first_row_.data(), {batch.sequences + 1}),
                        .positions = View<const int32_t, 1>(positions_.data() + batch.first_row, {batch.rows}),
                        .pages     = table(kFull)},
       .window_pages = table(kWindow),
       .adapters     = adapter_names_.empty() ? std::span<const int32_t>()
                                              : std::span(adapters_).subspan(
                                                    batch.first_sequence, static_cast<size_t>(batch.sequences)),
       .embed        = before < 0},
      kv_);
  if (after < cut_.stages) groups_.pipeline->send(std::span<const float>(stream), after);
  if (!drafter_) return;
  const auto reading                  = step_to_read();
  const View<const float, 2> features = model_.features();
  for (int64_t e = 0; e < batch.sequences; ++e) {
    const Sequence& sequence = *step_->sequences[batch.first_sequence + static_cast<size_t>(e)].sequence;
    const int64_t begin      = first_row_[static_cast<size_t>(e)],
                  rows       = first_row_[static_cast<size_t>(e) + 1] - begin;
    drafter_->computed(sequence.id, positions_[static_cast<size_t>(batch.first_row + begin)],
                       {&features(begin, 0), {rows, features.extent(1)}});
  }
}

void CpuRunner::compute_logits(const MicroBatch& micro) {
  if (!last_stage()) return;
  const NvtxRange range("sample");
  std::vector<size_t> sequences;  // of the step, whose logits are computed next
  std::vector<int32_t> rows;
  const auto flush = [&] {
    const auto R    = static_cast<int64_t>(rows.size());
    TimePoint start = std::chrono::steady_clock::now();
    const View<const int32_t, 1> of_batch(rows.data(), {R});
    if (const auto rules = draw_rules(sequences); std::ssize(rules) == R)
      model_.screened_logits(of_batch, rules, logits_.as({R, vocab_size_}));
    else
      model_.logits(of_batch, logits_.as({R, vocab_size_}));
    forward_s_ += seconds_since(start);
    start = std::chrono::steady_clock::now();
    if (samples_) sample(sequences);
    sample_s_ += seconds_since(start);
    sequences.clear(), rows.clear();
  };
  for (size_t e = micro.first_sequence; e < micro.first_sequence + static_cast<size_t>(micro.sequences);
       ++e) {
    const int64_t end = first_row_of_sequence_[e + 1] - micro.first_row;
    if (!sampled_rows_[e].samples || end > micro.rows) continue;
    const int64_t sampled_rows = 1 + sampled_rows_[e].drafts;
    if (static_cast<int64_t>(rows.size()) + sampled_rows > max_logit_rows_) flush();
    sequences.push_back(e);
    for (int64_t r = end - sampled_rows; r < end; ++r) rows.push_back(static_cast<int32_t>(r));
  }
  if (!rows.empty()) flush();
}

// Of the rows of sequences of the step that are sampled. None where some need all logits, where there are too
// many, or where there is no screen.
std::vector<model::DrawRule> CpuRunner::draw_rules(const std::vector<size_t>& sequences) {
  std::vector<model::DrawRule> rules;
  if (!model_.has_screen()) return rules;
  const auto reading = step_to_read();
  for (const size_t e : sequences) {
    const ScheduledSequence& scheduled = step_->sequences[e];
    const SamplingParameters& p        = scheduled.sequence->request.sampling;
    const int64_t sampled_rows         = 1 + sampled_rows_[e].drafts;
    if (needs_raw_logits(scheduled) ||
        (p.temperature > 0 &&
         (!draws_from_all(p, vocab_size_) || p.temperature < model::UnembeddingScreen::kLeastTemperature)) ||
        std::ssize(rules) + sampled_rows > kernels::kMaxGemvRows)
      return {};
    for (int64_t r = 1; r <= sampled_rows; ++r)
      rules.push_back({.temperature = p.temperature,
                       .seed        = p.seed,
                       .position    = scheduled.first + scheduled.rows - sampled_rows + r});
  }
  return rules;
}

// Of sequences of the step whose logits lie one behind another.
void CpuRunner::sample(const std::vector<size_t>& sequences) {
  const auto reading = step_to_read();
  std::vector<SequenceLogits> batch;
  const float* logits = logits_.data();
  for (const size_t e : sequences) {
    batch.push_back({.scheduled = &step_->sequences[e], .logits = logits, .output = &outputs_[e]});
    logits += (1 + sampled_rows_[e].drafts) * vocab_size_;
  }
  sample_and_verify(batch, vocab_size_, threads_, samplers_);
}

std::unique_ptr<ModelRunner> make_cpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kKvKinds>& pages) {
  return std::make_unique<CpuRunner>(checkpoint, config, pages);
}

}  // namespace fathom::engine
