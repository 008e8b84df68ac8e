#include "model/numerics.h"

#include <array>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/buffer.h"
#include "core/expect.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"

namespace fathom::model {
namespace {

// What GptOss calls between the embedding and the last norm, in each layer. Ops without floats to look at
// (the table of RoPE, the store into the cache) are left out.
struct LayerOp {
  std::string_view name;
  bool residual = false;
};
constexpr std::array<LayerOp, 12> kLayerOps = {{{"attention norm"},
                                                {"q"},
                                                {"k"},
                                                {"v"},
                                                {"q after RoPE"},
                                                {"k after RoPE"},
                                                {"attention"},
                                                {"residual after attention", true},
                                                {"MLP norm"},
                                                {"router logits"},
                                                {"router weights"},
                                                {"residual after experts", true}}};

// Calls the ops of a pass and keeps what each has written.
struct Recorder {
  Ops ops;
  std::vector<std::vector<float>> written;
};
thread_local Recorder* recorder = nullptr;  // ops are plain functions: they cannot carry it

struct Recording {
  explicit Recording(Recorder& here) { recorder = &here; }
  ~Recording() { recorder = nullptr; }
};

template <auto kOp, size_t kOutput, class... Args>
void recorded(Args... args) {
  (recorder->ops.*kOp)(args...);
  const auto& output = std::get<kOutput>(std::tie(args...));
  FATHOM_EXPECT(output.contiguous(), "an op's output is contiguous");
  recorder->written.emplace_back(output.data(), output.data() + output.size());
}
template <auto kOp, size_t kOutput, class... Args>
auto recording(void (*)(Args...)) -> void (*)(Args...) {
  return &recorded<kOp, kOutput, Args...>;
}
template <auto kOp, size_t kOutput>
void record(Ops& ops) {
  ops.*kOp = recording<kOp, kOutput>(ops.*kOp);
}

// The outputs of all ops of a pass, in the order of kLayerOps; the last is one row of logits.
std::vector<std::vector<float>> outputs_of_pass(const Checkpoint& checkpoint, std::span<const TokenId> tokens,
                                                const Ops& ops, ThreadPool& threads) {
  Recorder here{.ops = ops, .written = {}};
  Ops recording_ops = ops;
  record<&Ops::embedding, 2>(recording_ops);
  record<&Ops::rmsnorm, 3>(recording_ops);
  record<&Ops::linear, 4>(recording_ops);
  record<&Ops::rope, 0>(recording_ops);
  record<&Ops::attention, 5>(recording_ops);
  record<&Ops::router, 2>(recording_ops);
  record<&Ops::experts, 4>(recording_ops);

  const auto T = static_cast<int64_t>(tokens.size());
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const int32_t first_row[] = {0, static_cast<int32_t>(T)}, page = 0, last = static_cast<int32_t>(T - 1);
  const View<const int32_t, 2> pages(&page, {1, 1});
  GptOss model(checkpoint.config, checkpoint.weights, recording_ops, T, 1, threads);
  const KvCache kv(checkpoint.config, 1, 1, kMostNumericsTokens);  // a page for all tokens
  Buffer<float> logits(checkpoint.config.vocab_size);

  const Recording to_here(here);
  model.forward({.tokens       = View<const int32_t, 1>(tokens.data(), {T}),
                 .rows         = {.first_row = View<const int32_t, 1>(first_row, {2}),
                                  .positions = View<const int32_t, 1>(positions.data(), {T}),
                                  .pages     = pages},
                 .window_pages = pages},
                kv);
  model.logits(View<const int32_t, 1>(&last, {1}), logits.as({1, checkpoint.config.vocab_size}));
  return std::move(here.written);
}

OpNumerics numerics_of(std::span<const float> values, std::span<const float> reference) {
  OpNumerics seen{.values = static_cast<int64_t>(values.size())};
  double squares = 0, errors = 0, reference_squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    if (!std::isfinite(x)) {
      ++seen.not_finite;
      continue;
    }
    seen.largest = std::max(seen.largest, std::abs(x));
    squares += x * x;
    if (reference.empty()) continue;
    errors += (x - reference[i]) * (x - reference[i]);
    reference_squares += static_cast<double>(reference[i]) * reference[i];
  }
  if (const int64_t finite = seen.values - seen.not_finite; finite > 0)
    seen.rms = std::sqrt(squares / static_cast<double>(finite));
  if (reference_squares > 0) seen.reference_error = std::sqrt(errors / reference_squares);
  return seen;
}

}  // namespace

std::vector<OpNumerics> trace_numerics(const Checkpoint& checkpoint, std::span<const TokenId> tokens,
                                       const Ops& ops, const Ops* reference, ThreadPool& threads) {
  FATHOM_EXPECT(!tokens.empty() && std::ssize(tokens) <= kMostNumericsTokens, "a trace is of 1 to 64 tokens");
  std::vector<std::vector<float>> expected;
  if (reference) expected = outputs_of_pass(checkpoint, tokens, *reference, threads);
  const auto written = outputs_of_pass(checkpoint, tokens, ops, threads);

  const int64_t layers = checkpoint.config.num_hidden_layers;
  constexpr auto kOps  = static_cast<int64_t>(kLayerOps.size());
  FATHOM_EXPECT(std::ssize(written) == 1 + layers * kOps + 2, "a pass calls the ops that a trace names");
  std::vector<OpNumerics> trace;
  for (int64_t i = 0; i < std::ssize(written); ++i) {
    const auto at = static_cast<size_t>(i);
    OpNumerics seen =
        numerics_of(written[at], reference ? std::span<const float>(expected[at]) : std::span<const float>());
    const int64_t place = i - 1;
    if (i == 0) {
      seen.op       = "embedding";
      seen.residual = true;
    } else if (place < layers * kOps) {
      const LayerOp& op = kLayerOps[static_cast<size_t>(place % kOps)];
      seen.layer        = place / kOps;
      seen.op           = op.name;
      seen.residual     = op.residual;
    } else {
      seen.layer = layers;
      seen.op    = place == layers * kOps ? "last norm" : "logits";
    }
    trace.push_back(seen);
  }
  return trace;
}

}  // namespace fathom::model
