#include "kernels/attention/attention_backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace fathom::kernels {
namespace {

constexpr int64_t kHeadDim = 8;

size_t at(int64_t i) { return static_cast<size_t>(i); }

std::vector<float> normal(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> numbers;
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(numbers(random));
  return values;
}

// The forward pass in double; d_out . out is a loss whose gradients the backward pass computes.
struct Attention {
  int64_t tokens, heads, kv_heads;
  bool causal;
  double scale = 0.7;
  std::vector<double> q, k, v;

  Attention(int64_t tokens_, int64_t heads_, int64_t kv_heads_, bool causal_, std::mt19937& random)
      : tokens(tokens_), heads(heads_), kv_heads(kv_heads_), causal(causal_) {
    const std::vector<float> of_q = normal(tokens * heads * kHeadDim, random),
                             of_k = normal(tokens * kv_heads * kHeadDim, random),
                             of_v = normal(tokens * kv_heads * kHeadDim, random);
    q.assign(of_q.begin(), of_q.end());
    k.assign(of_k.begin(), of_k.end());
    v.assign(of_v.begin(), of_v.end());
  }

  struct Result {
    std::vector<float> out, lse;
    double loss = 0;
  };
  Result run(const std::vector<float>& d_out) const {
    Result result{.out = std::vector<float>(q.size()), .lse = std::vector<float>(at(heads * tokens))};
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t end = causal ? i + 1 : tokens, kv_head = h * kv_heads / heads;
        std::vector<double> out(at(kHeadDim));
        double sum = 0;
        for (int64_t j = 0; j < end; ++j) {
          double score = 0;
          for (int64_t d = 0; d < kHeadDim; ++d)
            score += q[at((i * heads + h) * kHeadDim + d)] * k[at((j * kv_heads + kv_head) * kHeadDim + d)];
          const double weight = std::exp(scale * score);
          sum += weight;
          for (int64_t d = 0; d < kHeadDim; ++d)
            out[at(d)] += weight * v[at((j * kv_heads + kv_head) * kHeadDim + d)];
        }
        result.lse[at(h * tokens + i)] = static_cast<float>(std::log(sum));
        for (int64_t d = 0; d < kHeadDim; ++d) {
          const size_t to = at((i * heads + h) * kHeadDim + d);
          result.out[to]  = static_cast<float>(out[at(d)] / sum);
          result.loss += out[at(d)] / sum * d_out[to];
        }
      }
    return result;
  }
};

TEST(AttentionBackward, IsTheDerivativeOfTheForwardPass) {
  struct Case {
    int64_t tokens, heads, kv_heads;
    bool causal;
  };
  std::mt19937 random{23};
  for (const Case& c : {Case{1, 1, 1, true},
                        {1, 2, 1, false},
                        {5, 2, 2, true},
                        {5, 2, 2, false},
                        {7, 4, 2, true},
                        {7, 6, 2, false}}) {
    SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.heads << " heads over " << c.kv_heads
                                    << (c.causal ? ", causal" : ""));
    Attention attention(c.tokens, c.heads, c.kv_heads, c.causal, random);
    const std::vector<float> d_out  = normal(c.tokens * c.heads * kHeadDim, random);
    const Attention::Result forward = attention.run(d_out);
    const std::vector<float> q(attention.q.begin(), attention.q.end()),
        k(attention.k.begin(), attention.k.end()), v(attention.v.begin(), attention.v.end());
    const int64_t of_q[] = {c.tokens, c.heads, kHeadDim}, of_k[] = {c.tokens, c.kv_heads, kHeadDim};
    const AttentionBackward<float> backward{.q      = {q.data(), of_q},
                                            .k      = {k.data(), of_k},
                                            .v      = {v.data(), of_k},
                                            .out    = {forward.out.data(), of_q},
                                            .d_out  = {d_out.data(), of_q},
                                            .lse    = {forward.lse.data(), {c.heads, c.tokens}},
                                            .scale  = attention.scale,
                                            .causal = c.causal};
    const auto expect_derivatives = [&](const std::vector<double>& gradient, std::vector<double>& numbers,
                                        int64_t first, const char* name) {
      for (int64_t d = 0; d < kHeadDim; ++d) {
        double& x          = numbers[at(first + d)];
        const double was   = x;
        constexpr double h = 1e-4;
        x                  = was + h;
        const double above = attention.run(d_out).loss;
        x                  = was - h;
        const double below = attention.run(d_out).loss;
        x                  = was;
        EXPECT_NEAR(gradient[at(d)], (above - below) / (2 * h), 2e-5) << name << " at " << first + d;
      }
    };
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t h = 0; h < c.heads; ++h)
        expect_derivatives(dq_reference(backward, t, h).value, attention.q, (t * c.heads + h) * kHeadDim,
                           "dq");
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        const int64_t first = (t * c.kv_heads + h) * kHeadDim;
        expect_derivatives(dk_reference(backward, t, h).value, attention.k, first, "dk");
        expect_derivatives(dv_reference(backward, t, h).value, attention.v, first, "dv");
      }
    }
  }
}

// Sizes are tolerances: a number is at most its size times the root of the number of terms.
TEST(AttentionBackward, SizesBoundTheSums) {
  std::mt19937 random{29};
  constexpr int64_t kTokens = 9;
  const Attention attention(kTokens, 1, 1, false, random);
  const std::vector<float> d_out  = normal(kTokens * kHeadDim, random);
  const Attention::Result forward = attention.run(d_out);
  const std::vector<float> q(attention.q.begin(), attention.q.end()),
      k(attention.k.begin(), attention.k.end()), v(attention.v.begin(), attention.v.end());
  const int64_t rows[] = {kTokens, 1, kHeadDim};
  const AttentionBackward<float> backward{{q.data(), rows},     {k.data(), rows},
                                          {v.data(), rows},     {forward.out.data(), rows},
                                          {d_out.data(), rows}, {forward.lse.data(), {1, kTokens}},
                                          attention.scale,      false};
  for (const GradientRow& row :
       {dq_reference(backward, 4, 0), dk_reference(backward, 4, 0), dv_reference(backward, 4, 0)})
    for (size_t d = 0; d < row.value.size(); ++d) {
      EXPECT_GT(row.size[d], 0);
      EXPECT_LE(std::fabs(row.value[d]), 3 * row.size[d]) << "the root of 9 terms";
    }
}

}  // namespace
}  // namespace fathom::kernels
