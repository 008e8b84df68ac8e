#include "experiments/ch19_adaptive/rounded_forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <stdexcept>
#include <utility>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "core/thread_pool.h"
#include "engine/likelihood_eval.h"
#include "experiments/engine_session.h"
#include "lab/metric.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"
#include "model/ops.h"

namespace fathom::lab::rounded_forward {
namespace {

using engine_session::bundled;
using model::TokenId;

constexpr int64_t kMostRows = 512, kPageSize = 16;

const model::Config& config() { return bundled().checkpoint.config; }

// Ops are function pointers, so the pass of a thread finds what it rounds with here.
struct Pass {
  const Round& round;
  int64_t products = 0, expert_layers = 0;
  View<const float, 2> input = {};  // of the latest product, rounded
  std::vector<float> numbers = {};

  View<const float, 2> rounded(int64_t site, View<const float, 2> x) {
    numbers.assign(x.data(), x.data() + x.size());
    const View<float, 2> copy(numbers.data(), {x.extent(0), x.extent(1)});
    round(site, copy);
    return input = copy;
  }
};
thread_local Pass* pass = nullptr;

// A layer has five: q, k, v, the output projection, the router. The unembedding comes after the last layer.
void linear(View<const float, 2> x, const kernels::DenseMatrix& w, View<const bf16, 1> bias,
            kernels::Output output, View<float, 2> y, const Execution& on) {
  const int64_t layer = pass->products / 5, which = pass->products % 5;
  ++pass->products;
  if (layer < config().num_hidden_layers && which < 4)
    x = which == 0 ? pass->rounded(3 * layer, x) : which == 3 ? pass->rounded(3 * layer + 1, x) : pass->input;
  model::cpu_ops().linear(x, w, bias, output, y, on);
}

void experts(View<const float, 2> x, View<const int32_t, 2> ids, View<const float, 2> weights,
             const kernels::ExpertWeights& w, View<float, 2> y, const Execution& on) {
  x = pass->rounded(3 * pass->expert_layers++ + 2, x);
  model::cpu_ops().experts(x, ids, weights, w, y, on);
}

// A model and a cache, used by one call at a time.
class Model {
 public:
  Model()
      : threads_(1),
        plain_(config(), bundled().checkpoint.weights, model::cpu_ops(), kMostRows, kMostRows, threads_),
        rounding_(config(), bundled().checkpoint.weights, rounding_ops(), kMostRows, kMostRows, threads_),
        kv_(config(), kMostRows, kMostRows, kPageSize) {}

  void forward(View<const int32_t, 2> rows, const Round& round, View<float, 2> logits) {
    const int64_t T = rows.extent(0);
    FATHOM_EXPECT(T <= kMostRows, "more rows than the model was made for");
    if (T == 0) return;
    std::vector<int32_t> tokens, positions, first, all;
    for (int64_t t = 0; t < T; ++t) {
      if (rows(t, 1) == 0) first.push_back(static_cast<int32_t>(t));
      tokens.push_back(rows(t, 0)), positions.push_back(rows(t, 1)), all.push_back(static_cast<int32_t>(t));
    }
    const auto S = static_cast<int64_t>(first.size());
    first.push_back(static_cast<int32_t>(T));
    const int64_t P = *std::max_element(positions.begin(), positions.end()) / kPageSize + 1;
    std::vector<int32_t> pages(static_cast<size_t>(S * P), -1);
    int32_t page = 0;
    for (int64_t s = 0; s < S; ++s)
      for (int64_t p = 0; p * kPageSize < first[static_cast<size_t>(s + 1)] - first[static_cast<size_t>(s)];
           ++p)
        pages[static_cast<size_t>(s * P + p)] = page++;
    const View<const int32_t, 2> table(pages.data(), {S, P});
    Pass own{.round = round};
    pass                 = &own;
    model::GptOss& model = round ? rounding_ : plain_;
    model.forward(
        {.tokens = {tokens.data(), {T}},
         .rows = {.first_row = {first.data(), {S + 1}}, .positions = {positions.data(), {T}}, .pages = table},
         .window_pages = table},
        kv_);
    model.logits({all.data(), {T}}, logits);
    pass = nullptr;
  }

 private:
  static model::Ops rounding_ops() {
    model::Ops ops = model::cpu_ops();
    ops.linear     = linear;
    ops.experts    = experts;
    return ops;
  }

  ThreadPool threads_;
  model::GptOss plain_, rounding_;
  model::KvCache kv_;
};

Model& the_model() {
  static Model model;
  return model;
}

// Held-out cases with their right answers, one after the other.
void make_texts(int32_t* to, int64_t count, uint64_t seed) {
  const int64_t T = count / 3;
  for (int64_t row = 0; row < T; ++seed) {
    const auto texts = engine::held_out_answers(bundled().checkpoint, bundled().grammar, 1, seed);
    if (!texts) throw std::runtime_error(texts.error().message);
    for (const engine::ForcedAnswer& text : *texts) {
      std::vector<TokenId> tokens = text.prompt;
      tokens.insert(tokens.end(), text.answer.begin(), text.answer.end());
      for (size_t i = 0; i < tokens.size() && row < T; ++i, ++row) {
        const bool answered = i + 1 >= text.prompt.size() && i + 1 < tokens.size();
        to[3 * row]         = tokens[i];
        to[3 * row + 1]     = static_cast<int32_t>(i);
        to[3 * row + 2]     = answered ? tokens[i + 1] : -1;
      }
    }
  }
}

// log p of all tokens, from the logits of a row.
std::vector<double> log_probabilities(View<const float, 2> logits, int64_t row) {
  const int64_t V = logits.extent(1);
  double most = -INFINITY, sum = 0;
  for (int64_t v = 0; v < V; ++v) most = std::max(most, static_cast<double>(logits(row, v)));
  for (int64_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(logits(row, v)) - most);
  std::vector<double> log_p(static_cast<size_t>(V));
  for (int64_t v = 0; v < V; ++v)
    log_p[static_cast<size_t>(v)] = static_cast<double>(logits(row, v)) - most - std::log(sum);
  return log_p;
}

Buffer<float> exact_logits(const RoundedForward& p) {
  Buffer<float> exact(p.logits.size());
  forward(p.rows, {}, exact.as({p.logits.extent(0), p.logits.extent(1)}));
  return exact;
}

}  // namespace

double bits_of(Format format, int64_t columns) {
  const double row_scale = 32.0 / static_cast<double>(columns);
  return format == Format::bf16 ? 16 : row_scale + (format == Format::fp8 ? 8 : 4 + 8.0 / kNvfp4Block);
}

void round_row(Format format, float* row, int64_t columns) {
  const std::span<float> x(row, static_cast<size_t>(columns));
  if (format == Format::bf16) {
    for (float& number : x) number = static_cast<float>(bf16(number));
  } else if (format == Format::fp8) {
    float largest = 0;
    for (const float number : x) largest = std::max(largest, std::abs(number));
    const float scale = std::max(largest / fp8_e4m3::max(), 0x1p-64f);
    for (float& number : x) number = static_cast<float>(fp8_e4m3(number / scale)) * scale;
  } else {
    const float scale = nvfp4_tensor_scale(x);
    std::vector<uint8_t> codes(x.size() / 2), scales(x.size() / kNvfp4Block);
    encode_nvfp4(x, scale, codes, scales);
    decode_nvfp4(codes, scales, scale, x);
  }
}

double Squares::relative_error() const { return numbers > 0 ? std::sqrt(errors / numbers) : 0; }

Squares squares_of(Format format, const float* row, int64_t columns) {
  std::vector<float> rounded(row, row + columns);
  round_row(format, rounded.data(), columns);
  Squares sum;
  for (int64_t c = 0; c < columns; ++c) {
    const double number = static_cast<double>(row[c]),
                 error  = static_cast<double>(rounded[static_cast<size_t>(c)]) - number;
    sum.numbers += number * number;
    sum.errors += error * error;
  }
  return sum;
}

RoundedForward::RoundedForward(const Point& at, Arena& arena)
    : rows(arena.input<int32_t>({at["tokens"], 3}, generate<int32_t>(make_texts))),
      logits(arena.output<float>({at["tokens"], config().vocab_size})),
      chosen(arena.output<float>({kFormats + 2})) {}

Cost RoundedForward::cost() const {
  int64_t weights = 0;
  for (const auto& [name, tensor] : bundled().checkpoint.tensors.tensors())
    weights += static_cast<int64_t>(tensor.bytes.size());
  return {.read = rows.bytes() + weights, .written = logits.bytes()};
}

void RoundedForward::check(Checker& checker) const {
  const Buffer<float> exact = exact_logits(*this);
  const int64_t V           = logits.extent(1);
  // u of FP4 is 1/4, so that the tolerance of a Sum of length 1 is its magnitude.
  checker.values("logits", logits, [&](int64_t t, int64_t v) {
    const float* row         = exact.data() + t * V;
    const auto [least, most] = std::minmax_element(row, row + V);
    return Sum{.value      = static_cast<double>(row[v]),
               .magnitude  = static_cast<double>(std::max(-*least, *most)),
               .length     = 1,
               .accumulate = DType::fp4_e2m1};
  });
}

void RoundedForward::metrics(CallMetrics& metrics) const {
  const int64_t T = tokens();
  if (T == 0) return;
  const Buffer<float> exact = exact_logits(*this);
  const auto want           = exact.as({T, logits.extent(1)});
  double kl = 0, nll = 0;
  int64_t answered = 0, changed = 0;
  for (int64_t t = 0; t < T; ++t) {
    const std::vector<double> p = log_probabilities(want, t), q = log_probabilities(logits, t);
    for (size_t v = 0; v < p.size(); ++v) kl += std::exp(p[v]) * (p[v] - q[v]);
    changed +=
        std::max_element(p.begin(), p.end()) - p.begin() != std::max_element(q.begin(), q.end()) - q.begin();
    if (rows(t, 2) < 0) continue;
    ++answered;
    nll += p[static_cast<size_t>(rows(t, 2))] - q[static_cast<size_t>(rows(t, 2))];
  }
  metrics["kl"]            = {kl / static_cast<double>(T), "lower"};
  metrics["changed_share"] = {static_cast<double>(changed) / static_cast<double>(T), "lower"};
  if (answered > 0) metrics["nll_increase"] = {nll / static_cast<double>(answered), "lower"};
  metrics["share_fp4"]       = {static_cast<double>(chosen(0)), "higher"};
  metrics["share_fp8"]       = {static_cast<double>(chosen(1)), "higher"};
  metrics["bits_per_number"] = {static_cast<double>(chosen(3)), "lower"};
  metrics["relative_error"]  = {static_cast<double>(chosen(4)), "lower"};
}

int64_t sites() { return 3 * config().num_hidden_layers; }

void forward(View<const int32_t, 2> rows, const Round& round, View<float, 2> logits) {
  the_model().forward(rows, round, logits);
}

void forward_in(const RoundedForward& p, const FormatOf& format_of) {
  double bits = 0, numbers = 0;
  std::array<double, kFormats> in{};
  Squares all;
  forward(
      p.rows,
      [&](int64_t site, View<float, 2> x) {
        const int64_t columns = x.extent(1);
        for (int64_t t = 0; t < x.extent(0); ++t) {
          float* row           = &x(t, 0);
          const Format format  = format_of(site, t, row);
          const Squares of_row = squares_of(format, row, columns);
          round_row(format, row, columns);
          // Each row counts alike, whatever the size of its numbers.
          if (of_row.numbers > 0) all.numbers += 1, all.errors += of_row.errors / of_row.numbers;
          in[static_cast<size_t>(format)] += static_cast<double>(columns);
          bits += bits_of(format, columns) * static_cast<double>(columns);
          numbers += static_cast<double>(columns);
        }
      },
      p.logits);
  if (numbers == 0) numbers = 1;
  for (size_t f = 0; f < in.size(); ++f)
    p.chosen(static_cast<int64_t>(f)) = static_cast<float>(in[f] / numbers);
  p.chosen(kFormats)     = static_cast<float>(bits / numbers);
  p.chosen(kFormats + 1) = static_cast<float>(all.relative_error());
}

std::vector<double> entropies(const RoundedForward& p) {
  const Buffer<float> exact = exact_logits(p);
  const auto logits         = exact.as({p.tokens(), p.logits.extent(1)});
  std::vector<double> found;
  for (int64_t t = 0; t < p.tokens(); ++t) {
    double sum = 0;
    for (const double log_p : log_probabilities(logits, t)) sum -= std::exp(log_p) * log_p;
    found.push_back(sum);
  }
  return found;
}

}  // namespace fathom::lab::rounded_forward
