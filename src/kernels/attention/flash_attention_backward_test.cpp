#include "kernels/attention/flash_attention_backward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/expect.h"
#include "cuda/device.h"
#include "kernels/attention/attention_backward.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

std::vector<bf16> normal(int64_t n, std::mt19937& random, float mean = 0) {
  std::normal_distribution<float> numbers(mean, 1);
  std::vector<bf16> values;
  for (int64_t i = 0; i < n; ++i) values.emplace_back(numbers(random));
  return values;
}

struct Shape {
  int64_t tokens, heads, kv_heads, head_dim;
  bool causal;
};

struct Gradients {
  std::vector<bf16> dq, dk, dv;
};

bool same_bits(const std::vector<bf16>& a, const std::vector<bf16>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(bf16)) == 0);
}

// Inputs on the host, with out and lse from the formula of the forward pass.
struct Problem {
  Shape shape;
  float scale;
  std::vector<bf16> q, k, v, out, d_out;
  std::vector<float> lse;

  // q has this mean, k its negative: scores are so far from 0.
  Problem(const Shape& s, std::mt19937& random, float mean = 0)
      : shape(s),
        scale(1 / std::sqrt(static_cast<float>(s.head_dim))),
        q(normal(s.tokens * s.heads * s.head_dim, random, mean)),
        k(normal(s.tokens * s.kv_heads * s.head_dim, random, -mean)),
        v(normal(s.tokens * s.kv_heads * s.head_dim, random)),
        out(q.size()),
        d_out(normal(s.tokens * s.heads * s.head_dim, random)),
        lse(at(s.heads * s.tokens)) {
    const AttentionBackward<bf16> a = host();
    for (int64_t i = 0; i < s.tokens; ++i)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t end = s.causal ? i + 1 : s.tokens, kv_head = h / (s.heads / s.kv_heads);
        std::vector<double> scores(at(end)), sums(at(s.head_dim));
        for (int64_t j = 0; j < end; ++j)
          for (int64_t d = 0; d < s.head_dim; ++d)
            scores[at(j)] +=
                double{scale} * static_cast<float>(a.q(i, h, d)) * static_cast<float>(a.k(j, kv_head, d));
        const double most = *std::max_element(scores.begin(), scores.end());
        double total      = 0;
        for (int64_t j = 0; j < end; ++j) {
          const double weight = std::exp(scores[at(j)] - most);
          total += weight;
          for (int64_t d = 0; d < s.head_dim; ++d)
            sums[at(d)] += weight * static_cast<float>(a.v(j, kv_head, d));
        }
        lse[at(h * s.tokens + i)] = static_cast<float>(most + std::log(total));
        for (int64_t d = 0; d < s.head_dim; ++d)
          out[at((i * s.heads + h) * s.head_dim + d)] = bf16(static_cast<float>(sums[at(d)] / total));
      }
  }

  AttentionBackward<bf16> host() const {
    const int64_t of_q[] = {shape.tokens, shape.heads, shape.head_dim};
    const int64_t of_k[] = {shape.tokens, shape.kv_heads, shape.head_dim};
    return {.q      = {q.data(), of_q},
            .k      = {k.data(), of_k},
            .v      = {v.data(), of_k},
            .out    = {out.data(), of_q},
            .d_out  = {d_out.data(), of_q},
            .lse    = {lse.data(), {shape.heads, shape.tokens}},
            .scale  = scale,
            .causal = shape.causal};
  }

  Gradients run(DqSums sums) const {
    const int64_t of_q[] = {shape.tokens, shape.heads, shape.head_dim};
    const int64_t of_k[] = {shape.tokens, shape.kv_heads, shape.head_dim};
    const int64_t floats =
        flash_attention_backward_workspace(shape.tokens, shape.heads, shape.head_dim, sums);
    const GuardedDeviceBuffer q_there(q), k_there(k), v_there(v), out_there(out), d_out_there(d_out);
    const GuardedDeviceBuffer lse_there(lse);
    const GuardedDeviceBuffer<float> workspace(floats);
    const GuardedDeviceBuffer<bf16> dq(static_cast<int64_t>(q.size())), dk(static_cast<int64_t>(k.size())),
        dv(static_cast<int64_t>(k.size()));
    flash_attention_backward({.q      = q_there.view(of_q),
                              .k      = k_there.view(of_k),
                              .v      = v_there.view(of_k),
                              .out    = out_there.view(of_q),
                              .d_out  = d_out_there.view(of_q),
                              .lse    = lse_there.view({shape.heads, shape.tokens}),
                              .scale  = scale,
                              .causal = shape.causal,
                              .dq     = dq.view(of_q),
                              .dk     = dk.view(of_k),
                              .dv     = dv.view(of_k)},
                             sums, workspace.view({floats}), find_device({0})->stream());
    workspace.read();  // for its guard bands
    return {dq.read(), dk.read(), dv.read()};
  }
};

// p and ds are rounded to bf16 (2^-9 of each term, independent of one another), and so is the result.
void expect_row(const GradientRow& want, const bf16* got, const char* name, int64_t token, int64_t head) {
  for (size_t d = 0; d < want.value.size(); ++d)
    ASSERT_NEAR(static_cast<float>(got[d]), want.value[d],
                0x1p-8 * std::fabs(want.value[d]) + 0x1p-7 * want.size[d])
        << name << " of token " << token << ", head " << head << ", dimension " << d;
}

// Every `step`th token, and the last.
void expect_gradients(const Problem& p, const Gradients& atomic, const Gradients& deterministic,
                      int64_t step = 1) {
  const AttentionBackward<bf16> host = p.host();
  const Shape& s                     = p.shape;
  EXPECT_TRUE(same_bits(atomic.dk, deterministic.dk) && same_bits(atomic.dv, deterministic.dv))
      << "dk and dv are the same sums in both modes";
  for (int64_t t = 0; t < s.tokens; t = t + step < s.tokens || t == s.tokens - 1 ? t + step : s.tokens - 1) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const GradientRow want = dq_reference(host, t, h);
      const int64_t row      = (t * s.heads + h) * s.head_dim;
      expect_row(want, &atomic.dq[at(row)], "atomic dq", t, h);
      expect_row(want, &deterministic.dq[at(row)], "deterministic dq", t, h);
    }
    for (int64_t h = 0; h < s.kv_heads; ++h) {
      const int64_t row = (t * s.kv_heads + h) * s.head_dim;
      expect_row(dk_reference(host, t, h), &deterministic.dk[at(row)], "dk", t, h);
      expect_row(dv_reference(host, t, h), &deterministic.dv[at(row)], "dv", t, h);
    }
  }
}

class FlashAttentionBackwardTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
  std::mt19937 random{31};
};

// Sizes around warpgroups (64), own blocks (128) and streamed blocks, once and twice around the ring.
TEST_F(FlashAttentionBackwardTest, AgreesWithTheReference) {
  for (const int64_t head_dim : {64, 128})
    for (const bool causal : {false, true})
      for (const int64_t group : {1, 4})
        for (const int64_t tokens : {0, 1, 63, 64, 65, 127, 129, 193}) {
          SCOPED_TRACE(testing::Message() << tokens << " tokens, head size " << head_dim << ", group "
                                          << group << (causal ? ", causal" : ""));
          const Problem p({tokens, group * (group == 1 ? 3 : 1), group == 1 ? 3 : 1, head_dim, causal},
                          random);
          expect_gradients(p, p.run(DqSums::atomic), p.run(DqSums::deterministic));
          if (HasFatalFailure()) return;
        }
}

TEST_F(FlashAttentionBackwardTest, SumsOverManyBlocks) {
  for (const int64_t head_dim : {64, 128}) {
    const Problem p({1031, 4, 2, head_dim, true}, random);
    expect_gradients(p, p.run(DqSums::atomic), p.run(DqSums::deterministic), 67);
  }
}

// Scores near -180: exp(0 - lse), of a key behind the last, is infinite, and must not come in.
TEST_F(FlashAttentionBackwardTest, IgnoresKeysBehindTheLast) {
  for (const bool causal : {false, true}) {
    const Problem p({65, 2, 1, 128, causal}, random, 4);
    ASSERT_LT(p.lse[3], -100);
    expect_gradients(p, p.run(DqSums::atomic), p.run(DqSums::deterministic));
  }
}

TEST_F(FlashAttentionBackwardTest, RepeatsItsBitsWhereDeterministic) {
  const Problem p({700, 4, 1, 64, true}, random);
  const Gradients first = p.run(DqSums::deterministic), second = p.run(DqSums::deterministic);
  EXPECT_TRUE(same_bits(first.dq, second.dq) && same_bits(first.dk, second.dk) &&
              same_bits(first.dv, second.dv));
}

TEST_F(FlashAttentionBackwardTest, RefusesWhatItCannotDo) {
  EXPECT_THROW(Problem({4, 2, 2, 96, true}, random).run(DqSums::atomic), ContractError);
  Problem p({4, 2, 2, 64, true}, random);
  p.scale = 0;
  EXPECT_THROW(p.run(DqSums::deterministic), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
