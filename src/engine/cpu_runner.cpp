#include "engine/cpu_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include "core/cpus.h"
#include "core/expect.h"
#include "engine/row_choice.h"
#include "model/ops.h"

namespace fathom::engine {
namespace {

using model::TokenId;

constexpr int64_t kLogitRows = 64;  // made together, at most: 51 MB at gpt-oss's vocabulary

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CpuRunner::CpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                     const std::array<int64_t, kGroups>& pages)
    : vocab_size_(checkpoint.config.vocab_size),
      max_rows_(std::max({config.step_tokens, config.draft_tokens + 1})),
      logit_rows_(std::max(std::min(config.max_sequences, kLogitRows), config.draft_tokens + 1)),
      page_size_(config.page_size),
      threads_(config.threads > 0 ? config.threads : host_threads()),
      model_(checkpoint.config, checkpoint.weights, model::cpu_ops(), max_rows_, logit_rows_, threads_),
      kv_(checkpoint.config, pages[kFull], pages[kWindow], page_size_),
      samplers_(static_cast<size_t>(threads_.threads()), Sampler(vocab_size_)),
      logits_(logit_rows_ * vocab_size_) {
  for (size_t l = 0; l < checkpoint.config.layers.size(); ++l)
    for (const auto& half :
         {kv_.layer(static_cast<int64_t>(l)).keys, kv_.layer(static_cast<int64_t>(l)).values})
      threads_.parallel_for(half.size(), 1 << 16, [&](int64_t begin, int64_t end) {
        std::memset(half.data() + begin, 0, static_cast<size_t>(end - begin) * sizeof(float));
      });
  if (config.async_scheduling) worker_ = std::thread([this] { work(); });
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

std::string CpuRunner::where() const {
  return fmt::format("{} thread{}", threads_.threads(), threads_.threads() == 1 ? "" : "s");
}

void CpuRunner::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return state_ == State::launched || state_ == State::ending; });
    if (state_ == State::ending) return;
    lock.unlock();
    run();
    lock.lock();
    state_ = State::done;
    changed_.notify_all();
  }
}

void CpuRunner::launch(const StepPlan& plan) {
  FATHOM_EXPECT(state_ == State::idle && !plan.empty(), "one step at a time, and something in it");
  plan_ = &plan;
  tokens_.clear(), positions_.clear(), row_of_entry_.clear();
  outputs_.assign(plan.entries.size(), {});
  columns_ = 0;
  for (const StepEntry& entry : plan.entries)
    columns_ = std::max(columns_, (entry.first + entry.rows + page_size_ - 1) / page_size_);
  for (auto& table : tables_) table.resize(plan.entries.size() * static_cast<size_t>(columns_));

  for (size_t e = 0; e < plan.entries.size(); ++e) {
    const StepEntry& entry = plan.entries[e];
    row_of_entry_.push_back(static_cast<int64_t>(tokens_.size()));
    const auto own   = entry.rows - static_cast<int64_t>(entry.drafts.size());
    const auto& from = entry.sequence->tokens;
    FATHOM_EXPECT(entry.first + own <= entry.sequence->known(), "a row's token is not known yet");
    tokens_.insert(tokens_.end(), from.begin() + entry.first, from.begin() + entry.first + own);
    tokens_.insert(tokens_.end(), entry.drafts.begin(), entry.drafts.end());
    for (int64_t r = 0; r < entry.rows; ++r) positions_.push_back(static_cast<int32_t>(entry.first + r));
    for (int group = 0; group < kGroups; ++group) {
      const auto& pages = entry.sequence->pages.runs[group].pages;
      const auto count  = std::min(static_cast<int64_t>(pages.size()), columns_);
      std::copy_n(pages.begin(), count, tables_[group].begin() + static_cast<int64_t>(e) * columns_);
    }
  }
  row_of_entry_.push_back(static_cast<int64_t>(tokens_.size()));

  {
    const std::lock_guard lock(mutex_);
    state_ = State::launched;
  }
  changed_.notify_all();
}

std::vector<StepOutput> CpuRunner::collect(const StepPlan&) {
  if (worker_.joinable()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ == State::done; });
  } else {
    run();
  }
  state_ = State::idle;
  return std::move(outputs_);
}

void CpuRunner::run() {
  try {
    for (Piece piece = next_piece({}); piece.count > 0; piece = next_piece(piece)) {
      const TimePoint start = std::chrono::steady_clock::now();
      forward(piece);
      forward_s_ += seconds_since(start);
      sample(piece);
    }
  } catch (const std::exception& error) {
    for (StepOutput& output : outputs_) output = {.error = error.what()};
  }
}

// Rows that follow those of `before`, as many as a forward pass takes. Drafts and the row before them stay
// together.
CpuRunner::Piece CpuRunner::next_piece(const Piece& before) const {
  const auto rows = static_cast<int64_t>(tokens_.size());
  Piece piece{.first = before.first + before.count, .entry = before.entry};
  while (piece.entry < plan_->entries.size() && row_of_entry_[piece.entry + 1] <= piece.first) ++piece.entry;
  int64_t end = std::min(rows, piece.first + max_rows_);
  for (size_t e = piece.entry; e < plan_->entries.size() && row_of_entry_[e] < end; ++e) {
    if (!plan_->entries[e].drafts.empty() && row_of_entry_[e + 1] > end) {
      end = row_of_entry_[e];
      break;
    }
    ++piece.entries;
  }
  piece.count = end - piece.first;
  return piece;
}

void CpuRunner::forward(const Piece& piece) {
  first_row_.assign(1, 0);
  for (int64_t e = 0; e < piece.entries; ++e) {
    const int64_t end = row_of_entry_[piece.entry + static_cast<size_t>(e) + 1];
    first_row_.push_back(static_cast<int32_t>(std::min(end, piece.first + piece.count) - piece.first));
  }
  const auto table = [&](Group group) {
    return View<const int32_t, 2>(tables_[group].data() + static_cast<int64_t>(piece.entry) * columns_,
                                  {piece.entries, columns_});
  };
  model_.forward(
      {.tokens       = View<const int32_t, 1>(tokens_.data() + piece.first, {piece.count}),
       .rows         = {.first_row = View<const int32_t, 1>(first_row_.data(), {piece.entries + 1}),
                        .positions = View<const int32_t, 1>(positions_.data() + piece.first, {piece.count}),
                        .pages     = table(kFull)},
       .window_pages = table(kWindow)},
      kv_);
}

void CpuRunner::sample(const Piece& piece) {
  std::vector<RowsToChoose> asking;
  std::vector<int32_t> rows;
  const auto answer = [&] {
    const auto R    = static_cast<int64_t>(rows.size());
    TimePoint start = std::chrono::steady_clock::now();
    model_.logits(View<const int32_t, 1>(rows.data(), {R}), logits_.as({R, vocab_size_}));
    forward_s_ += seconds_since(start);
    start = std::chrono::steady_clock::now();
    choose_from_rows(asking, vocab_size_, threads_, samplers_);
    sample_s_ += seconds_since(start);
    asking.clear(), rows.clear();
  };
  for (size_t e = piece.entry; e < piece.entry + static_cast<size_t>(piece.entries); ++e) {
    const StepEntry& entry = plan_->entries[e];
    const int64_t last     = row_of_entry_[e + 1] - piece.first;  // one past
    if (!entry.samples || last > piece.count) continue;
    const int64_t wanted = 1 + static_cast<int64_t>(entry.drafts.size());
    if (static_cast<int64_t>(rows.size()) + wanted > logit_rows_) answer();
    asking.push_back({.entry  = &entry,
                      .logits = logits_.data() + static_cast<int64_t>(rows.size()) * vocab_size_,
                      .output = &outputs_[e]});
    for (int64_t r = last - wanted; r < last; ++r) rows.push_back(static_cast<int32_t>(r));
  }
  if (!asking.empty()) answer();
}

std::unique_ptr<ModelRunner> make_cpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kGroups>& pages) {
  return std::make_unique<CpuRunner>(checkpoint, config, pages);
}

}  // namespace fathom::engine
