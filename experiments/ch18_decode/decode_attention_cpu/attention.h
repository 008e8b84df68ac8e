// The problem: one decode step of gpt-oss's attention, one sequence: 64 query heads in groups of 8 over a
// paged cache of 8 key-value heads of 64 numbers, fp32, with sinks (kernels/attention/attention.h has the
// formula).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/dtype.h"
#include "kernels/attention/attention.h"
#include "lab/problem.h"

namespace fathom::lab::decode_attention_cpu {

inline constexpr int64_t kHeads = 64, kKvHeads = 8, kGroup = kHeads / kKvHeads, kHeadDim = 64;
inline constexpr int64_t kPageSize = 64;
inline constexpr int kMaxThreads   = 128;     // the scratch serves so many
inline constexpr float kScale      = 0.125f;  // 1 / sqrt(kHeadDim)

struct DecodeAttention {
  View<const float, 2> q;             // kHeads x kHeadDim
  View<const float, 4> keys, values;  // pages x kPageSize x kKvHeads x kHeadDim
  View<const int32_t, 2> pages;       // 1 x pages, in any order
  View<const bf16, 1> sinks;          // kHeads
  View<const int32_t, 1> position;    // 1: of the query
  View<const int32_t, 1> first_row;   // 2: one sequence, one row
  View<float, 2> out;                 // kHeads x kHeadDim
  View<float, 2> scores;              // workspace: kGroup x context
  View<float, 1> scratch;             // workspace of kernels::attention_cpu

  DecodeAttention(const Point& at, Arena& arena) : DecodeAttention(at["context"], arena) {}

  int64_t context() const { return scores.extent(1); }
  const float* key(int64_t j, int64_t kv_head) const {
    return &keys(pages(0, j / kPageSize), j % kPageSize, kv_head, 0);
  }
  const float* value(int64_t j, int64_t kv_head) const {
    return &values(pages(0, j / kPageSize), j % kPageSize, kv_head, 0);
  }

  Cost cost() const {
    const double numbers = 2.0 * static_cast<double>(context()) * kKvHeads * kHeadDim;
    return {.read    = static_cast<int64_t>(4 * numbers) + q.bytes(),
            .written = out.bytes(),
            .flops   = 2 * numbers * kGroup};
  }

  Sum expected(int64_t h, int64_t d) const {
    const double sink = static_cast<float>(sinks(h));
    std::vector<double> score(static_cast<size_t>(context())), size(score.size());
    double max_score = sink;
    for (int64_t j = 0; j < context(); ++j) {
      for (int64_t i = 0; i < kHeadDim; ++i) {
        const double product = static_cast<double>(q(h, i)) * key(j, h / kGroup)[i] * kScale;
        score[static_cast<size_t>(j)] += product;
        size[static_cast<size_t>(j)] += std::abs(product);
      }
      max_score = std::max(max_score, score[static_cast<size_t>(j)]);
    }
    // An absolute error of a score is a relative one of its exponential: hence the factor 1 + size.
    Sum result{.length = context() + kHeadDim};
    double total = std::exp(sink - max_score);
    for (int64_t j = 0; j < context(); ++j) {
      const double weight = std::exp(score[static_cast<size_t>(j)] - max_score);
      const double number = value(j, h / kGroup)[d];
      total += weight;
      result.value += weight * number;
      result.magnitude += weight * std::abs(number) * (1 + size[static_cast<size_t>(j)]);
    }
    result.value /= total;
    result.magnitude /= total;
    return result;
  }

 private:
  DecodeAttention(int64_t context, Arena& arena)
      : q(arena.input<float>({kHeads, kHeadDim}, Normal{})),
        keys(arena.input<float>({page_count(context), kPageSize, kKvHeads, kHeadDim}, Normal{})),
        values(arena.input<float>({page_count(context), kPageSize, kKvHeads, kHeadDim}, Normal{})),
        pages(arena.input<int32_t>({1, page_count(context)}, Permutation{})),
        sinks(arena.input<bf16>({kHeads}, Normal{})),
        position(arena.input<int32_t>({1}, generate<int32_t>([context](int32_t* at, int64_t, uint64_t) {
                                        *at = static_cast<int32_t>(context - 1);
                                      }))),
        first_row(arena.input<int32_t>(
            {2}, generate<int32_t>([](int32_t* at, int64_t, uint64_t) { at[0] = 0, at[1] = 1; }))),
        out(arena.output<float>({kHeads, kHeadDim})),
        scores(arena.workspace<float>({kGroup, context})),
        scratch(arena.workspace<float>(
            {kernels::attention_cpu_scratch_bytes(kHeads, kHeadDim, kMaxThreads) / 4})) {}

  static int64_t page_count(int64_t context) { return (context + kPageSize - 1) / kPageSize; }
};

void head_by_head(const DecodeAttention&, Context&);
void group_by_group(const DecodeAttention&, Context&);
void blocks(const DecodeAttention&, Context&);

}  // namespace fathom::lab::decode_attention_cpu
