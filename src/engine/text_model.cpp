#include "engine/text_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/buffer.h"
#include "core/cpus.h"
#include "core/expect.h"
#include "core/thread_pool.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"
#include "model/ops.h"

namespace fathom::engine {
namespace {

using model::TokenId;

constexpr int64_t kChunk     = 512;  // rows of a prefill step
constexpr int64_t kLogitRows = 16;   // whose logits are made together when all are wanted
constexpr int64_t kPageSize  = 64;   // positions

}  // namespace

struct TextModel::State {
  State(model::Checkpoint opened, const TextModelOptions& options)
      : checkpoint(std::move(opened)),
        threads(options.threads > 0 ? options.threads : static_cast<int>(allowed_cpus().size())),
        rows(std::min(kChunk, options.max_context)),
        logit_rows(std::min(kLogitRows, options.max_context)),
        model(checkpoint.config, checkpoint.weights, model::cpu_ops(), rows, logit_rows, threads),
        max_context(options.max_context),
        pages((options.max_context + kPageSize - 1) / kPageSize),
        kv(checkpoint.config, static_cast<int64_t>(pages.size()), static_cast<int64_t>(pages.size()),
           kPageSize),
        logits(logit_rows * checkpoint.config.vocab_size),
        positions(rows) {
    std::iota(pages.begin(), pages.end(), 0);  // page p of the sequence is page p of the cache
  }

  const model::Checkpoint checkpoint;
  ThreadPool threads;
  const int64_t rows, logit_rows;  // of a step, at most
  model::GptOss model;
  const int64_t max_context;
  int64_t context = 0;
  std::vector<int32_t> pages;
  model::KvCache kv;
  Buffer<float> logits;
  Buffer<int32_t> positions;
};

TextModel::TextModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
TextModel::~TextModel()                               = default;
TextModel::TextModel(TextModel&&) noexcept            = default;
TextModel& TextModel::operator=(TextModel&&) noexcept = default;

Result<TextModel> TextModel::open(const std::filesystem::path& folder, const TextModelOptions& options) {
  FATHOM_EXPECT(options.max_context > 0, "the context needs room for a token");
  auto checkpoint = model::Checkpoint::open(folder);
  if (!checkpoint) return checkpoint.error();
  return TextModel(std::make_unique<State>(std::move(checkpoint).value(), options));
}

const model::Checkpoint& TextModel::checkpoint() const { return state_->checkpoint; }
int TextModel::threads() const { return state_->threads.threads(); }
int64_t TextModel::context() const { return state_->context; }
int64_t TextModel::max_context() const { return state_->max_context; }

void TextModel::reset(int64_t keep) {
  FATHOM_EXPECT(keep >= 0 && keep <= state_->context, "only positions that there are can be kept");
  state_->context = keep;
}

std::span<const float> TextModel::append(std::span<const TokenId> tokens,
                                         const std::function<void(std::span<const float>)>& each) {
  State& s         = *state_;
  const int64_t V  = s.checkpoint.config.vocab_size;
  const auto count = static_cast<int64_t>(tokens.size());
  FATHOM_EXPECT(count > 0, "append needs a token");
  FATHOM_EXPECT(count <= s.max_context - s.context, "the tokens do not fit in the context");
  const View<const int32_t, 2> pages(s.pages.data(), {1, static_cast<int64_t>(s.pages.size())});
  const auto logits_of = [&](int64_t r) {
    return std::span<const float>(s.logits.data() + r * V, static_cast<size_t>(V));
  };
  for (int64_t done = 0;;) {
    const int64_t T       = std::min(count - done, s.rows);
    const int32_t first[] = {0, static_cast<int32_t>(T)};
    for (int64_t t = 0; t < T; ++t) s.positions.data()[t] = static_cast<int32_t>(s.context + t);
    s.model.forward({.tokens       = View<const int32_t, 1>(tokens.data() + done, {T}),
                     .rows         = {.first_row = View<const int32_t, 1>(first, {2}),
                                      .positions = View<const int32_t, 1>(s.positions.data(), {T}),
                                      .pages     = pages},
                     .window_pages = pages},
                    s.kv);
    done += T;
    s.context += T;
    if (!each && done < count) continue;
    int32_t wanted[kLogitRows];
    for (int64_t row = each ? 0 : T - 1; row < T;) {
      const int64_t R = std::min(T - row, s.logit_rows);
      std::iota(wanted, wanted + R, static_cast<int32_t>(row));
      s.model.logits(View<const int32_t, 1>(wanted, {R}), s.logits.as({R, V}));
      for (int64_t r = 0; each && r < R; ++r) each(logits_of(r));
      row += R;
      if (row == T && done == count) return logits_of(R - 1);
    }
  }
}

}  // namespace fathom::engine
