#include <algorithm>
#include <cmath>
#include <vector>

#include "core/expect.h"
#include "kernels/attention/attention.h"

namespace fathom::kernels {
namespace {

struct Slot {
  int64_t page, offset;
};

Slot slot_of(const SequenceRows& rows, const KvPages& kv, int64_t sequence, int64_t position) {
  const int64_t page = rows.pages(sequence, position / kv.page_size());
  FATHOM_EXPECT(page >= 0 && page < kv.keys.extent(0), "attention: a position in reach has no page");
  return {page, position % kv.page_size()};
}

void expect_rows(const SequenceRows& rows, int64_t count) {
  const int64_t sequences = rows.pages.extent(0);
  FATHOM_EXPECT(rows.positions.extent(0) == count, "attention: positions must be [T]");
  FATHOM_EXPECT(rows.first_row.extent(0) == sequences + 1, "attention: first_row must be [S + 1]");
  FATHOM_EXPECT(count == 0 || rows.first_row(sequences) == count, "attention: first_row must end at T");
}

}  // namespace

void kv_store_reference(View<const float, 3> keys, View<const float, 3> values, const SequenceRows& rows,
                        const KvPages& kv, const Execution&) {
  expect_rows(rows, keys.extent(0));
  for (int64_t s = 0; s < rows.pages.extent(0); ++s)
    for (int64_t t = rows.first_row(s); t < rows.first_row(s + 1); ++t) {
      const Slot slot = slot_of(rows, kv, s, rows.positions(t));
      for (int64_t head = 0; head < keys.extent(1); ++head)
        for (int64_t d = 0; d < keys.extent(2); ++d) {
          kv.keys(slot.page, slot.offset, head, d)   = keys(t, head, d);
          kv.values(slot.page, slot.offset, head, d) = values(t, head, d);
        }
    }
}

void attention_reference(View<const float, 3> q, const KvPages& kv, View<const bf16, 1> sinks, int64_t window,
                         const SequenceRows& rows, View<float, 3> out, const Execution&) {
  const int64_t heads = q.extent(1), head_dim = q.extent(2), kv_heads = kv.keys.extent(2);
  FATHOM_EXPECT(kv_heads > 0 && heads % kv_heads == 0 && sinks.extent(0) == heads,
                "attention: query heads must be a multiple of key-value heads, and each has a sink");
  expect_rows(rows, q.extent(0));
  const int64_t group = heads / kv_heads;
  const double scale  = 1 / std::sqrt(static_cast<double>(head_dim));
  std::vector<double> scores;
  std::vector<double> sum(static_cast<size_t>(head_dim));
  for (int64_t s = 0; s < rows.pages.extent(0); ++s)
    for (int64_t t = rows.first_row(s); t < rows.first_row(s + 1); ++t)
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t position = rows.positions(t);
        const int64_t first    = window ? std::max<int64_t>(0, position - window + 1) : 0;
        const double sink      = static_cast<float>(sinks(head));
        double largest         = sink;
        scores.clear();
        for (int64_t j = first; j <= position; ++j) {
          const Slot slot = slot_of(rows, kv, s, j);
          double dot      = 0;
          for (int64_t d = 0; d < head_dim; ++d)
            dot += static_cast<double>(q(t, head, d)) * kv.keys(slot.page, slot.offset, head / group, d);
          scores.push_back(dot * scale);
          largest = std::max(largest, scores.back());
        }
        double total = std::exp(sink - largest);
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int64_t j = first; j <= position; ++j) {
          const Slot slot     = slot_of(rows, kv, s, j);
          const double weight = std::exp(scores[static_cast<size_t>(j - first)] - largest);
          total += weight;
          for (int64_t d = 0; d < head_dim; ++d)
            sum[static_cast<size_t>(d)] += weight * kv.values(slot.page, slot.offset, head / group, d);
        }
        for (int64_t d = 0; d < head_dim; ++d)
          out(t, head, d) = static_cast<float>(sum[static_cast<size_t>(d)] / total);
      }
}

}  // namespace fathom::kernels
