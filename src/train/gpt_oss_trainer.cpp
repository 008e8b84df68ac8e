#include "train/gpt_oss_trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "kernels/gemm/sgemm.h"
#include "model/yarn.h"

namespace fathom::train {
namespace {

using kernels::Output;
using kernels::transposed;
using Numbers = std::vector<float>;

constexpr int64_t kQueries   = 64;   // of a block of attention
constexpr int64_t kLogitRows = 256;  // of a piece of the loss

View<float, 2> as(Numbers& numbers, int64_t rows, int64_t columns) {
  numbers.resize(static_cast<size_t>(rows * columns));
  return {numbers.data(), {rows, columns}};
}
View<float, 2> zeros(Numbers& numbers, int64_t rows, int64_t columns) {
  numbers.assign(static_cast<size_t>(rows * columns), 0.0f);
  return {numbers.data(), {rows, columns}};
}
// Columns [first, first + count).
View<float, 2> columns_of(View<float, 2> x, int64_t first, int64_t count) {
  return {x.data() + first, {x.extent(0), count}, {x.stride(0), 1}};
}
View<float, 2> rows_of(View<float, 2> x, int64_t begin, int64_t end) {
  return {x.data() + begin * x.stride(0), {end - begin, x.extent(1)}, {x.stride(0), x.stride(1)}};
}
View<float, 2> matrix_of(View<float, 3> w, int64_t e) { return {&w(e, 0, 0), {w.extent(1), w.extent(2)}}; }
View<float, 1> row_of(View<float, 2> w, int64_t e) { return {&w(e, 0), {w.extent(1)}}; }

// What the backward pass of a layer reads.
struct Kept {
  Numbers attn_in, attn_normed;          // [T, H]: the residual stream, and after the norm
  Numbers q, k, v;                       // after rope
  Numbers attended, lse;                 // [T, heads Dh], [heads, T]
  Numbers q_low, k_low, v_low, out_low;  // [T, rank]: x A^T of the adapters
  Numbers mlp_in, mlp_normed;
  Numbers expert_weights;           // [T, top_k]
  std::vector<int32_t> expert_ids;  // [T, top_k]
  std::vector<int64_t> first;       // [E + 1]: the experts' first places
  std::vector<int64_t> slots;       // by place: token top_k + k
  Numbers units, outputs;           // by place: [2I] before the activation, [H]
};

}  // namespace

int64_t TokenBatch::counted() const {
  return std::ranges::count_if(targets, [](int32_t target) { return target >= 0; });
}

class GptOssTrainer::Pass {
 public:
  Pass(const model::Config& config, const Recipe& recipe, uint64_t seed, ThreadPool& threads)
      : c_(config),
        rope_(model::rope_frequencies(config.rope, config.head_dim)),
        threads_(threads),
        rounder_(recipe, seed, threads),
        scratch_(kernels::sgemm_cpu_scratch_bytes(threads.threads())),
        on_{.threads = &threads, .scratch = scratch_.view()},
        kept_(static_cast<size_t>(config.num_hidden_layers)) {
    for (int i = 0; i < threads.threads(); ++i)
      own_scratch_.emplace_back(kernels::sgemm_cpu_scratch_bytes(1));
    shares_.resize(own_scratch_.size());
  }

  void skip_steps(int64_t steps) { rounder_.skip_steps(steps); }

  double run(const Parameters& p, const TokenBatch& batch, Parameters* gradients, const Lora* lora,
             Lora* lora_gradients) {
    check(batch);
    batch_ = &batch, lora_ = lora, lora_gradients_ = lora_gradients;
    T_                = static_cast<int64_t>(batch.tokens.size());
    const int64_t H   = c_.hidden_size;
    const bool learns = gradients || lora_gradients;
    fill_rope_table();
    rounder_.next_step();
    const auto x = as(x_, T_, H);
    for (int64_t t = 0; t < T_; ++t)
      std::copy_n(&p.embedding(batch.tokens[static_cast<size_t>(t)], 0), H, &x(t, 0));
    for (size_t l = 0; l < kept_.size(); ++l) {
      attention(p, l, x);
      experts(p, l, x);
    }
    const auto dx     = zeros(dx_, T_, H);
    const double loss = head(p, x, gradients, learns ? &dx : nullptr);
    if (!learns) return loss;
    for (size_t l = kept_.size(); l-- > 0;) {
      experts_backward(p, l, dx, gradients);
      attention_backward(p, l, dx, gradients);
    }
    if (gradients)
      for (int64_t t = 0; t < T_; ++t)
        for (int64_t h = 0; h < H; ++h)
          gradients->embedding(batch.tokens[static_cast<size_t>(t)], h) += dx(t, h);
    return loss;
  }

 private:
  void check(const TokenBatch& batch) const {
    const auto in_vocabulary = [&](int32_t token) { return token < c_.vocab_size; };
    FATHOM_EXPECT(batch.tokens.size() == batch.targets.size() && !batch.first_row.empty() &&
                      batch.first_row.front() == 0 &&
                      batch.first_row.back() == static_cast<int64_t>(batch.tokens.size()) &&
                      std::ranges::is_sorted(batch.first_row),
                  "a batch has a target for each token, and sequences one after another");
    FATHOM_EXPECT(std::ranges::all_of(batch.tokens, [&](int32_t t) { return t >= 0 && in_vocabulary(t); }) &&
                      std::ranges::all_of(batch.targets, in_vocabulary),
                  "a token of a batch is not in the vocabulary");
    FATHOM_EXPECT(batch.counted() > 0, "a batch without targets has no loss");
  }

  // Linear layers.

  struct Linear {
    View<float, 2> w, dw;  // dw, db: without data where they are frozen
    View<float, 1> b, db;
    const LoraPair* lora = nullptr;
    LoraPair* dlora      = nullptr;
    bool rounded         = true;
  };

  void forward(const Linear& f, View<const float, 2> x, View<float, 2> y, Numbers* low = nullptr) {
    const auto X = f.rounded ? rounder_.over_columns(x, Operand::activation, copy_a_) : x;
    const auto W =
        f.rounded ? rounder_.over_columns(f.w, Operand::weight, copy_b_) : View<const float, 2>(f.w);
    kernels::sgemm_cpu(X, transposed(W), Output::overwrite, y, on_);
    if (f.b.data())
      for (int64_t t = 0; t < y.extent(0); ++t)
        for (int64_t n = 0; n < y.extent(1); ++n) y(t, n) += f.b(n);
    if (!f.lora) return;
    const auto of_low = as(*low, x.extent(0), f.lora->a.extent(0));
    kernels::sgemm_cpu(x, transposed(f.lora->a), Output::overwrite, of_low, on_);
    for (float& number : *low) number *= lora_->scale();
    kernels::sgemm_cpu(of_low, transposed(f.lora->b), Output::add, y, on_);
  }

  // Adds to dx, and to the layer's gradients.
  void backward(const Linear& f, View<const float, 2> x, View<const float, 2> dy, View<float, 2> dx,
                Numbers* low = nullptr) {
    {
      const auto DY = f.rounded ? rounder_.over_columns(dy, Operand::gradient, copy_a_) : dy;
      const auto W =
          f.rounded ? rounder_.over_rows(f.w, Operand::weight, false, copy_b_) : View<const float, 2>(f.w);
      kernels::sgemm_cpu(DY, W, Output::add, dx, on_);
    }
    if (f.dw.data()) {
      const auto DY = f.rounded ? rounder_.over_rows(dy, Operand::gradient, true, copy_a_) : dy;
      const auto X  = f.rounded ? rounder_.over_rows(x, Operand::activation, true, copy_b_) : x;
      kernels::sgemm_cpu(transposed(DY), X, Output::add, f.dw, on_);
    }
    if (f.db.data())
      for (int64_t t = 0; t < dy.extent(0); ++t)
        for (int64_t n = 0; n < dy.extent(1); ++n) f.db(n) += dy(t, n);
    if (!f.lora) return;
    const View<float, 2> of_low(low->data(), {x.extent(0), f.lora->a.extent(0)});
    const auto dlow = as(dlow_, x.extent(0), f.lora->a.extent(0));
    kernels::sgemm_cpu(dy, f.lora->b, Output::overwrite, dlow, on_);
    for (float& number : dlow_) number *= lora_->scale();
    if (f.dlora) {
      kernels::sgemm_cpu(transposed(dy), of_low, Output::add, f.dlora->b, on_);
      kernels::sgemm_cpu(transposed(dlow), x, Output::add, f.dlora->a, on_);
    }
    kernels::sgemm_cpu(dlow, f.lora->a, Output::add, dx, on_);
  }

  struct AttentionLinears {
    Linear q, k, v, out;
  };
  AttentionLinears linears(const Parameters& p, size_t l, Parameters* gradients) const {
    const LayerParameters& w = p.layers[l];
    const LayerParameters d  = gradients ? gradients->layers[l] : LayerParameters();
    AttentionLinears all{.q   = {.w = w.q, .dw = d.q, .b = w.q_bias, .db = d.q_bias},
                         .k   = {.w = w.k, .dw = d.k, .b = w.k_bias, .db = d.k_bias},
                         .v   = {.w = w.v, .dw = d.v, .b = w.v_bias, .db = d.v_bias},
                         .out = {.w = w.out, .dw = d.out, .b = w.out_bias, .db = d.out_bias}};
    if (lora_) {
      const Lora::Layer& a = lora_->layers[l];
      all.q.lora = &a.q, all.k.lora = &a.k, all.v.lora = &a.v, all.out.lora = &a.out;
    }
    if (lora_gradients_) {
      Lora::Layer& a = lora_gradients_->layers[l];
      all.q.dlora = &a.q, all.k.dlora = &a.k, all.v.dlora = &a.v, all.out.dlora = &a.out;
    }
    return all;
  }

  // Norms.

  void rmsnorm(View<const float, 2> x, View<const float, 1> gain, View<float, 2> y) const {
    const int64_t H = x.extent(1);
    threads_.parallel_for(x.extent(0), 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const float r = inverse_rms(&x(t, 0), H);
        for (int64_t h = 0; h < H; ++h) y(t, h) = x(t, h) * r * gain(h);
      }
    });
  }
  float inverse_rms(const float* x, int64_t H) const {
    double squares = 0;
    for (int64_t h = 0; h < H; ++h) squares += static_cast<double>(x[h]) * x[h];
    return static_cast<float>(1 / std::sqrt(squares / static_cast<double>(H) + c_.rms_norm_eps));
  }
  // dx(t) += r (g dy - x r^2 mean(x g dy)), with r = 1 / rms(x)
  void rmsnorm_backward(View<const float, 2> x, View<const float, 1> gain, View<const float, 2> dy,
                        View<float, 2> dx, View<float, 1> dgain) const {
    const int64_t H = x.extent(1);
    for (int64_t t = 0; t < x.extent(0); ++t) {
      const float r = inverse_rms(&x(t, 0), H);
      double dot    = 0;
      for (int64_t h = 0; h < H; ++h) dot += static_cast<double>(x(t, h)) * gain(h) * dy(t, h);
      const float factor = static_cast<float>(dot / static_cast<double>(H)) * r * r;
      for (int64_t h = 0; h < H; ++h) dx(t, h) += r * (gain(h) * dy(t, h) - x(t, h) * factor);
      if (dgain.data())
        for (int64_t h = 0; h < H; ++h) dgain(h) += dy(t, h) * x(t, h) * r;
    }
  }

  // Attention.

  void fill_rope_table() {
    const int64_t half = c_.head_dim / 2;
    const auto table   = as(rope_table_, T_, c_.head_dim);
    for (size_t s = 0; s + 1 < batch_->first_row.size(); ++s)
      for (int64_t t = batch_->first_row[s]; t < batch_->first_row[s + 1]; ++t)
        for (int64_t i = 0; i < half; ++i) {
          const float angle =
              static_cast<float>(t - batch_->first_row[s]) * rope_.inv_freq[static_cast<size_t>(i)];
          table(t, i)        = rope_.concentration * std::cos(angle);
          table(t, half + i) = rope_.concentration * std::sin(angle);
        }
  }
  // Rotates pairs of x [T, heads Dh]; backwards, by the opposite angle.
  void rope(View<float, 2> x, bool backwards) {
    const int64_t Dh = c_.head_dim, half = Dh / 2;
    const View<float, 2> table(rope_table_.data(), {T_, Dh});
    for (int64_t t = 0; t < T_; ++t)
      for (int64_t first = 0; first < x.extent(1); first += Dh)
        for (int64_t i = 0; i < half; ++i) {
          const float cos = table(t, i), sin = backwards ? -table(t, half + i) : table(t, half + i);
          float &a = x(t, first + i), &b = x(t, first + half + i);
          const float rotated = a * cos - b * sin;
          b                   = b * cos + a * sin;
          a                   = rotated;
        }
  }

  // Scratch of a share of the pool.
  struct Share {
    Numbers scores, d_scores;
  };

  // Calls f(share, first row, end row, key-value head) for each head of each sequence.
  template <class F>
  void for_each_kv_head(const F& f) {
    const int64_t heads = c_.num_key_value_heads;
    const auto tasks    = static_cast<int64_t>(batch_->first_row.size() - 1) * heads;
    std::atomic<int64_t> next{0};
    threads_.run_shares([&](int64_t share) {
      for (int64_t task = next++; task < tasks; task = next++) {
        const auto s = static_cast<size_t>(task / heads);
        f(static_cast<size_t>(share), batch_->first_row[s], batch_->first_row[s + 1], task % heads);
      }
    });
  }

  // The scores of queries [i0, i1) with keys [j0, i1), scaled, -infinity where a query does not see a key.
  void score_block(View<const float, 2> q, View<const float, 2> k, int64_t i0, int64_t j0, int64_t window,
                   View<float, 2> scores, const Execution& alone) const {
    kernels::sgemm_cpu(q, transposed(k), Output::overwrite, scores, alone);
    const float scale = 1 / std::sqrt(static_cast<float>(c_.head_dim));
    for (int64_t i = 0; i < scores.extent(0); ++i)
      for (int64_t j = 0; j < scores.extent(1); ++j) {
        const int64_t distance = i0 + i - (j0 + j);
        scores(i, j) = distance < 0 || (window > 0 && distance >= window) ? -INFINITY : scores(i, j) * scale;
      }
  }

  // Calls f(i0, i1, j0) for blocks of queries of a sequence of rows [begin, end): keys from j0 on are in
  // reach.
  template <class F>
  static void for_each_block(int64_t begin, int64_t end, int64_t window, const F& f) {
    for (int64_t i0 = begin; i0 < end; i0 += kQueries)
      f(i0, std::min(i0 + kQueries, end), window > 0 ? std::max(begin, i0 - window + 1) : begin);
  }

  void attention(const Parameters& p, size_t l, View<float, 2> x) {
    const int64_t H = c_.hidden_size, Dh = c_.head_dim, heads = c_.num_attention_heads,
                  kv  = c_.num_key_value_heads;
    Kept& kept        = kept_[l];
    kept.attn_in      = x_;
    const auto normed = as(kept.attn_normed, T_, H);
    const auto q = as(kept.q, T_, heads * Dh), k = as(kept.k, T_, kv * Dh), v = as(kept.v, T_, kv * Dh);
    const auto attended = as(kept.attended, T_, heads * Dh), lse = as(kept.lse, heads, T_);
    const auto f         = linears(p, l, nullptr);
    const int64_t window = c_.layers[l] == model::Attention::sliding ? c_.sliding_window : 0;
    rmsnorm(x, p.layers[l].attn_norm, normed);
    forward(f.q, normed, q, &kept.q_low), forward(f.k, normed, k, &kept.k_low),
        forward(f.v, normed, v, &kept.v_low);
    rope(q, false), rope(k, false);
    for_each_kv_head([&](size_t share, int64_t begin, int64_t end, int64_t kv_head) {
      const Execution alone{.scratch = own_scratch_[share].view()};
      for (int64_t head = kv_head * heads / kv; head < (kv_head + 1) * heads / kv; ++head)
        for_each_block(begin, end, window, [&](int64_t i0, int64_t i1, int64_t j0) {
          const auto scores = as(shares_[share].scores, i1 - i0, i1 - j0);
          score_block(rows_of(columns_of(q, head * Dh, Dh), i0, i1),
                      rows_of(columns_of(k, kv_head * Dh, Dh), j0, i1), i0, j0, window, scores, alone);
          for (int64_t i = i0; i < i1; ++i) {
            const float sink = p.layers[l].sinks(head);
            float most = sink, sum = 0;
            for (int64_t j = 0; j < i1 - j0; ++j) most = std::max(most, scores(i - i0, j));
            for (int64_t j = 0; j < i1 - j0; ++j)
              sum += scores(i - i0, j) = std::exp(scores(i - i0, j) - most);
            sum += std::exp(sink - most);
            for (int64_t j = 0; j < i1 - j0; ++j) scores(i - i0, j) /= sum;
            lse(head, i) = most + std::log(sum);
          }
          kernels::sgemm_cpu(scores, rows_of(columns_of(v, kv_head * Dh, Dh), j0, i1), Output::overwrite,
                             rows_of(columns_of(attended, head * Dh, Dh), i0, i1), alone);
        });
    });
    const auto y = as(y_, T_, H);
    forward(f.out, attended, y, &kept.out_low);
    for (int64_t i = 0; i < T_ * H; ++i) x.data()[i] += y.data()[i];
  }

  // With p the weights, dp = d_out v^T and delta = d_out . out:  ds = p (dp - delta), of a sink -p delta.
  void attention_backward(const Parameters& p, size_t l, View<float, 2> dx, Parameters* gradients) {
    const int64_t H = c_.hidden_size, Dh = c_.head_dim, heads = c_.num_attention_heads,
                  kv = c_.num_key_value_heads;
    Kept& kept       = kept_[l];
    const auto q = as(kept.q, T_, heads * Dh), k = as(kept.k, T_, kv * Dh), v = as(kept.v, T_, kv * Dh);
    const auto out = as(kept.attended, T_, heads * Dh), lse = as(kept.lse, heads, T_);
    const auto dq = zeros(dq_, T_, heads * Dh), dk = zeros(dk_, T_, kv * Dh), dv = zeros(dv_, T_, kv * Dh);
    const auto d_out     = zeros(d_attended_, T_, heads * Dh);
    const auto f         = linears(p, l, gradients);
    const int64_t window = c_.layers[l] == model::Attention::sliding ? c_.sliding_window : 0;
    const float scale    = 1 / std::sqrt(static_cast<float>(Dh));
    backward(f.out, out, dx, d_out, &kept.out_low);
    const auto delta = as(delta_, heads, T_);
    for (int64_t t = 0; t < T_; ++t)
      for (int64_t head = 0; head < heads; ++head) {
        float sum = 0;
        for (int64_t d = head * Dh; d < (head + 1) * Dh; ++d) sum += d_out(t, d) * out(t, d);
        delta(head, t) = sum;
        if (gradients)
          gradients->layers[l].sinks(head) -= std::exp(p.layers[l].sinks(head) - lse(head, t)) * sum;
      }
    for_each_kv_head([&](size_t share, int64_t begin, int64_t end, int64_t kv_head) {
      const Execution alone{.scratch = own_scratch_[share].view()};
      for (int64_t head = kv_head * heads / kv; head < (kv_head + 1) * heads / kv; ++head)
        for_each_block(begin, end, window, [&](int64_t i0, int64_t i1, int64_t j0) {
          const auto of_q     = rows_of(columns_of(q, head * Dh, Dh), i0, i1);
          const auto of_k     = rows_of(columns_of(k, kv_head * Dh, Dh), j0, i1);
          const auto of_do    = rows_of(columns_of(d_out, head * Dh, Dh), i0, i1);
          const auto weights  = as(shares_[share].scores, i1 - i0, i1 - j0);
          const auto d_scores = as(shares_[share].d_scores, i1 - i0, i1 - j0);
          score_block(of_q, of_k, i0, j0, window, weights, alone);
          kernels::sgemm_cpu(of_do, transposed(rows_of(columns_of(v, kv_head * Dh, Dh), j0, i1)),
                             Output::overwrite, d_scores, alone);
          for (int64_t i = 0; i < i1 - i0; ++i)
            for (int64_t j = 0; j < i1 - j0; ++j) {
              weights(i, j)  = std::exp(weights(i, j) - lse(head, i0 + i));
              d_scores(i, j) = scale * weights(i, j) * (d_scores(i, j) - delta(head, i0 + i));
            }
          kernels::sgemm_cpu(transposed(weights), of_do, Output::add,
                             rows_of(columns_of(dv, kv_head * Dh, Dh), j0, i1), alone);
          kernels::sgemm_cpu(d_scores, of_k, Output::add, rows_of(columns_of(dq, head * Dh, Dh), i0, i1),
                             alone);
          kernels::sgemm_cpu(transposed(d_scores), of_q, Output::add,
                             rows_of(columns_of(dk, kv_head * Dh, Dh), j0, i1), alone);
        });
    });
    rope(dq, true), rope(dk, true);
    const View<float, 2> normed(kept.attn_normed.data(), {T_, H}), in(kept.attn_in.data(), {T_, H});
    const auto d_normed = zeros(d_normed_, T_, H);
    backward(f.q, normed, dq, d_normed, &kept.q_low);
    backward(f.k, normed, dk, d_normed, &kept.k_low);
    backward(f.v, normed, dv, d_normed, &kept.v_low);
    rmsnorm_backward(in, p.layers[l].attn_norm, d_normed, dx,
                     gradients ? gradients->layers[l].attn_norm : View<float, 1>());
  }

  // Experts.

  // a = g sigmoid(alpha g) (u + 1), with g and u clamped.
  void activate(const float* units, float* a, int64_t I) const {
    const auto limit = static_cast<float>(c_.swiglu_limit), alpha = static_cast<float>(c_.swiglu_alpha);
    for (int64_t i = 0; i < I; ++i) {
      const float gate = std::min(units[2 * i], limit), up = std::clamp(units[2 * i + 1], -limit, limit);
      a[i] = gate / (1 + std::exp(-alpha * gate)) * (up + 1);
    }
  }
  // Gradients of the units, 0 where a clamp holds.
  void activate_backward(const float* units, const float* da, float* d_units, int64_t I) const {
    const auto limit = static_cast<float>(c_.swiglu_limit), alpha = static_cast<float>(c_.swiglu_alpha);
    for (int64_t i = 0; i < I; ++i) {
      const float gate = std::min(units[2 * i], limit), up = std::clamp(units[2 * i + 1], -limit, limit);
      const float sigmoid = 1 / (1 + std::exp(-alpha * gate));
      d_units[2 * i] =
          units[2 * i] > limit ? 0 : da[i] * (up + 1) * sigmoid * (1 + alpha * gate * (1 - sigmoid));
      d_units[2 * i + 1] = std::fabs(units[2 * i + 1]) > limit ? 0 : da[i] * gate * sigmoid;
    }
  }

  // The top_k largest logits of each row, the lower expert first where two are equal; weights: their softmax.
  void route(View<const float, 2> logits, Kept& kept) const {
    const int64_t E = c_.num_local_experts, top_k = c_.num_experts_per_tok;
    kept.expert_ids.resize(static_cast<size_t>(T_ * top_k));
    const auto weights = as(kept.expert_weights, T_, top_k);
    std::vector<int32_t> order(static_cast<size_t>(E));
    for (int64_t t = 0; t < T_; ++t) {
      for (int64_t e = 0; e < E; ++e) order[static_cast<size_t>(e)] = static_cast<int32_t>(e);
      std::partial_sort(order.begin(), order.begin() + top_k, order.end(), [&](int32_t a, int32_t b) {
        return logits(t, a) != logits(t, b) ? logits(t, a) > logits(t, b) : a < b;
      });
      float sum = 0;
      for (int64_t k = 0; k < top_k; ++k)
        sum += weights(t, k) = std::exp(logits(t, order[static_cast<size_t>(k)]) - logits(t, order[0]));
      for (int64_t k = 0; k < top_k; ++k) {
        weights(t, k) /= sum;
        kept.expert_ids[static_cast<size_t>(t * top_k + k)] = order[static_cast<size_t>(k)];
      }
    }
    // Places by expert, tokens in their order.
    kept.first.assign(static_cast<size_t>(E + 1), 0);
    for (const int32_t e : kept.expert_ids) ++kept.first[static_cast<size_t>(e + 1)];
    for (size_t e = 0; e < static_cast<size_t>(E); ++e) kept.first[e + 1] += kept.first[e];
    kept.slots.resize(kept.expert_ids.size());
    auto next = kept.first;
    for (size_t slot = 0; slot < kept.expert_ids.size(); ++slot)
      kept.slots[static_cast<size_t>(next[static_cast<size_t>(kept.expert_ids[slot])]++)] =
          static_cast<int64_t>(slot);
  }

  // Rows of x in the order of an expert's places.
  View<float, 2> gathered(View<const float, 2> x, const Kept& kept, int64_t begin, int64_t end,
                          Numbers& to) const {
    const auto rows = as(to, end - begin, x.extent(1));
    for (int64_t place = begin; place < end; ++place)
      std::copy_n(&x(kept.slots[static_cast<size_t>(place)] / c_.num_experts_per_tok, 0), x.extent(1),
                  &rows(place - begin, 0));
    return rows;
  }

  Linear router_linear(const Parameters& p, size_t l, Parameters* gradients) const {
    const LayerParameters d = gradients ? gradients->layers[l] : LayerParameters();
    return {.w       = p.layers[l].router,
            .dw      = d.router,
            .b       = p.layers[l].router_bias,
            .db      = d.router_bias,
            .rounded = false};
  }
  std::pair<Linear, Linear> expert_linears(const Parameters& p, size_t l, int64_t e,
                                           Parameters* gradients) const {
    const LayerParameters& w = p.layers[l];
    std::pair<Linear, Linear> both{{.w = matrix_of(w.mlp1, e), .b = row_of(w.mlp1_bias, e)},
                                   {.w = matrix_of(w.mlp2, e), .b = row_of(w.mlp2_bias, e)}};
    if (gradients) {
      const LayerParameters& d = gradients->layers[l];
      both.first.dw = matrix_of(d.mlp1, e), both.first.db = row_of(d.mlp1_bias, e);
      both.second.dw = matrix_of(d.mlp2, e), both.second.db = row_of(d.mlp2_bias, e);
    }
    return both;
  }

  void experts(const Parameters& p, size_t l, View<float, 2> x) {
    const int64_t H = c_.hidden_size, I = c_.intermediate_size, E = c_.num_local_experts,
                  top_k = c_.num_experts_per_tok;
    Kept& kept          = kept_[l];
    kept.mlp_in         = x_;
    const auto normed   = as(kept.mlp_normed, T_, H);
    rmsnorm(x, p.layers[l].mlp_norm, normed);
    const auto logits = as(router_logits_, T_, E);
    forward(router_linear(p, l, nullptr), normed, logits);
    route(logits, kept);
    const auto units = as(kept.units, T_ * top_k, 2 * I), outputs = as(kept.outputs, T_ * top_k, H);
    for (int64_t e = 0; e < E; ++e) {
      const int64_t begin = kept.first[static_cast<size_t>(e)], end = kept.first[static_cast<size_t>(e + 1)];
      if (begin == end) continue;
      const auto [mlp1, mlp2] = expert_linears(p, l, e, nullptr);
      forward(mlp1, gathered(normed, kept, begin, end, rows_), rows_of(units, begin, end));
      const auto a = as(activated_, end - begin, I);
      for (int64_t r = 0; r < end - begin; ++r) activate(&units(begin + r, 0), &a(r, 0), I);
      forward(mlp2, a, rows_of(outputs, begin, end));
      for (int64_t place = begin; place < end; ++place) {
        const int64_t slot = kept.slots[static_cast<size_t>(place)];
        const float weight = kept.expert_weights[static_cast<size_t>(slot)];
        for (int64_t h = 0; h < H; ++h) x(slot / top_k, h) += weight * outputs(place, h);
      }
    }
  }

  void experts_backward(const Parameters& p, size_t l, View<float, 2> dx, Parameters* gradients) {
    const int64_t H = c_.hidden_size, I = c_.intermediate_size, E = c_.num_local_experts,
                  top_k = c_.num_experts_per_tok;
    Kept& kept          = kept_[l];
    const View<float, 2> normed(kept.mlp_normed.data(), {T_, H}), in(kept.mlp_in.data(), {T_, H});
    const auto units = as(kept.units, T_ * top_k, 2 * I), outputs = as(kept.outputs, T_ * top_k, H);
    const View<float, 2> weights(kept.expert_weights.data(), {T_, top_k});
    const auto d_normed  = zeros(d_normed_, T_, H);
    const auto d_weights = as(d_weights_, T_, top_k);
    for (int64_t e = 0; e < E; ++e) {
      const int64_t begin = kept.first[static_cast<size_t>(e)], end = kept.first[static_cast<size_t>(e + 1)];
      if (begin == end) continue;
      const auto [mlp1, mlp2] = expert_linears(p, l, e, gradients);
      const auto d_rows       = gathered(dx, kept, begin, end, d_rows_);
      const auto a            = as(activated_, end - begin, I);
      for (int64_t r = 0; r < end - begin; ++r) {
        const int64_t slot = kept.slots[static_cast<size_t>(begin + r)];
        float dot          = 0;
        for (int64_t h = 0; h < H; ++h) dot += d_rows(r, h) * outputs(begin + r, h);
        d_weights(slot / top_k, slot % top_k) = dot;
        for (int64_t h = 0; h < H; ++h) d_rows(r, h) *= kept.expert_weights[static_cast<size_t>(slot)];
        activate(&units(begin + r, 0), &a(r, 0), I);
      }
      const auto da = zeros(d_activated_, end - begin, I);
      backward(mlp2, a, d_rows, da);
      const auto d_units = as(d_units_, end - begin, 2 * I);
      for (int64_t r = 0; r < end - begin; ++r)
        activate_backward(&units(begin + r, 0), &da(r, 0), &d_units(r, 0), I);
      const auto d_in = zeros(d_rows_, end - begin, H);  // the rows' gradients have been used
      backward(mlp1, gathered(normed, kept, begin, end, rows_), d_units, d_in);
      for (int64_t r = 0; r < end - begin; ++r) {
        const int64_t t = kept.slots[static_cast<size_t>(begin + r)] / top_k;
        for (int64_t h = 0; h < H; ++h) d_normed(t, h) += d_in(r, h);
      }
    }
    // The softmax over the chosen logits: d_logit = w (d_w - sum w d_w).
    const auto d_logits = zeros(router_logits_, T_, E);
    for (int64_t t = 0; t < T_; ++t) {
      float sum = 0;
      for (int64_t k = 0; k < top_k; ++k) sum += weights(t, k) * d_weights(t, k);
      for (int64_t k = 0; k < top_k; ++k)
        d_logits(t, kept.expert_ids[static_cast<size_t>(t * top_k + k)]) =
            weights(t, k) * (d_weights(t, k) - sum);
    }
    backward(router_linear(p, l, gradients), normed, d_logits, d_normed);
    rmsnorm_backward(in, p.layers[l].mlp_norm, d_normed, dx,
                     gradients ? gradients->layers[l].mlp_norm : View<float, 1>());
  }

  // The last norm, the unembedding and the loss, a piece of the rows at a time.
  double head(const Parameters& p, View<float, 2> x, Parameters* gradients, const View<float, 2>* dx) {
    const int64_t H = c_.hidden_size, V = c_.vocab_size;
    const double counted = static_cast<double>(batch_->counted());
    const Linear unembedding{.w       = p.unembedding,
                             .dw      = gradients ? gradients->unembedding : View<float, 2>(),
                             .b       = {},
                             .db      = {},
                             .rounded = false};
    double loss = 0;
    for (int64_t begin = 0; begin < T_; begin += kLogitRows) {
      const int64_t rows = std::min(kLogitRows, T_ - begin);
      const auto part    = rows_of(x, begin, begin + rows);
      const auto normed  = as(rows_, rows, H);
      const auto logits  = as(logits_, rows, V);
      rmsnorm(part, p.norm, normed);
      forward(unembedding, normed, logits);
      for (int64_t r = 0; r < rows; ++r) {
        const int32_t target = batch_->targets[static_cast<size_t>(begin + r)];
        float* const row     = &logits(r, 0);
        if (target < 0) {
          std::fill_n(row, V, 0.0f);
          continue;
        }
        const float most   = *std::max_element(row, row + V);
        double sum         = 0;
        const float wanted = row[target];
        for (int64_t v = 0; v < V; ++v) sum += row[v] = std::exp(row[v] - most);
        loss += std::log(sum) + most - wanted;
        const auto factor = static_cast<float>(1 / (sum * counted));
        for (int64_t v = 0; v < V; ++v) row[v] *= factor;  // the gradient of the mean
        row[target] -= static_cast<float>(1 / counted);
      }
      if (!dx) continue;
      const auto d_normed = zeros(d_normed_, rows, H);
      backward(unembedding, normed, logits, d_normed);
      rmsnorm_backward(part, p.norm, d_normed, rows_of(*dx, begin, begin + rows),
                       gradients ? gradients->norm : View<float, 1>());
    }
    return loss / counted;
  }

  const model::Config c_;
  const model::RopeFrequencies rope_;
  ThreadPool& threads_;
  Rounder rounder_;
  Buffer<std::byte> scratch_;
  const Execution on_;
  std::vector<Buffer<std::byte>> own_scratch_;  // of each share
  std::vector<Share> shares_;

  // Of one call.
  const TokenBatch* batch_ = nullptr;
  const Lora* lora_        = nullptr;
  Lora* lora_gradients_    = nullptr;
  int64_t T_               = 0;
  std::vector<Kept> kept_;  // by layer
  Numbers x_, y_, dx_, rope_table_, router_logits_, rows_, activated_, logits_;
  Numbers dq_, dk_, dv_, d_attended_, delta_, d_normed_, d_weights_, d_rows_, d_activated_, d_units_, dlow_;
  Numbers copy_a_, copy_b_;  // rounded operands
};

GptOssTrainer::GptOssTrainer(const model::Config& config, const Recipe& recipe, uint64_t seed,
                             ThreadPool& threads)
    : pass_(std::make_unique<Pass>(config, recipe, seed, threads)) {}
GptOssTrainer::~GptOssTrainer() = default;

int64_t GptOssTrainer::kept_bytes(const model::Config& c, int64_t tokens) {
  const int64_t numbers = 4 * c.hidden_size +
                          2 * (c.num_attention_heads + c.num_key_value_heads) * c.head_dim +
                          c.num_experts_per_tok * (2 * c.intermediate_size + c.hidden_size);
  return tokens * numbers * c.num_hidden_layers * static_cast<int64_t>(sizeof(float));
}

double GptOssTrainer::loss(const Parameters& parameters, const TokenBatch& batch, const Lora* lora) {
  return pass_->run(parameters, batch, nullptr, lora, nullptr);
}
void GptOssTrainer::skip_steps(int64_t steps) { pass_->skip_steps(steps); }
double GptOssTrainer::loss_and_gradients(const Parameters& parameters, const TokenBatch& batch,
                                         Parameters* gradients, const Lora* lora, Lora* lora_gradients) {
  return pass_->run(parameters, batch, gradients, lora, lora_gradients);
}

}  // namespace fathom::train
