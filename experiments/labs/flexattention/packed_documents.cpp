// The problem of packed_documents.h: its inputs, its cost, and the check against the formula.
#include "experiments/labs/flexattention/packed_documents.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "kernels/attention/attention_tiles.h"
#include "lab/problem.h"

namespace fathom::lab::flexattention {
namespace {

// Where documents begin, and the end of the last one. Documents of unlike lengths that end anywhere in a
// block: the first n of N end at T (n / N)^1.5. They do not depend on a seed, because lists of blocks are
// prepared on other inputs than those of a call.
std::vector<int32_t> bounds_of(const Point& at) {
  std::vector<int32_t> bounds;
  for (int64_t n = 0; n <= at["documents"]; ++n) {
    const double part = std::pow(static_cast<double>(n) / static_cast<double>(at["documents"]), 1.5);
    bounds.push_back(static_cast<int32_t>(std::llround(part * static_cast<double>(at["tokens"]))));
  }
  return bounds;
}

std::vector<int32_t> begins(const std::vector<int32_t>& bounds) {
  std::vector<int32_t> begin;
  for (size_t n = 0; n + 1 < bounds.size(); ++n) begin.resize(static_cast<size_t>(bounds[n + 1]), bounds[n]);
  return begin;
}

int64_t longest_of(const std::vector<int32_t>& bounds) {
  int64_t longest = 0;
  for (size_t n = 0; n + 1 < bounds.size(); ++n)
    longest = std::max<int64_t>(longest, bounds[n + 1] - bounds[n]);
  return longest;
}

double visible_pairs(const std::vector<int32_t>& bounds) {
  double pairs = 0;
  for (size_t n = 0; n + 1 < bounds.size(); ++n) {
    const double length = bounds[n + 1] - bounds[n];
    pairs += length * (length + 1) / 2;
  }
  return pairs;
}

std::vector<kernels::AttentionTile> tiles_of(const std::vector<int32_t>& bounds, const Point& at) {
  return kernels::attention_tiles(bounds, bounds, static_cast<int>(at["head_size"]));
}
// All tokens as one sequence.
std::vector<int32_t> whole(const Point& at) { return {0, static_cast<int32_t>(at["tokens"])}; }
// Every document as long as the longest. None where there is a bias.
std::vector<int32_t> padded_bounds(const Point& at) {
  if (at.find("reach")) return {0};
  const auto longest = static_cast<int32_t>(longest_of(bounds_of(at)));
  std::vector<int32_t> bounds;
  for (int32_t n = 0; n <= at["documents"]; ++n) bounds.push_back(n * longest);
  return bounds;
}

template <class T>
Generate copy_of(std::vector<T> list) {
  return generate<int32_t>([list = std::move(list)](int32_t* to, int64_t, uint64_t) {
    if (!list.empty()) std::memcpy(to, list.data(), list.size() * sizeof(T));
  });
}

View<const int32_t, 2> input_of(Arena& arena, const std::vector<kernels::AttentionTile>& tiles) {
  constexpr int64_t kWords = sizeof(kernels::AttentionTile) / sizeof(int32_t);
  return arena.input<int32_t>({static_cast<int64_t>(tiles.size()), kWords}, copy_of(tiles));
}

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Attention of one row of one head in double, with what the tolerance needs.
class Row {
 public:
  Row(const PackedDocuments& p, int64_t t, int64_t head)
      : p_(p), first_(p.begin(t)), kv_head_(head / kGroup) {
    double highest = -INFINITY;
    for (int64_t j = first_; j <= t; ++j) {
      double score = 0, size = 0;
      for (int64_t d = 0; d < p.head_size(); ++d) {
        const double product = static_cast<double>(p.scale()) * static_cast<float>(p.q(t, head, d)) *
                               static_cast<float>(p.k(j, kv_head_, d));
        score += product;
        size += std::abs(product);
      }
      if (p.reach >= 0) {
        const double bias =
            static_cast<double>(p.bias(head, p.reach + std::clamp<int64_t>(j - t, -p.reach, p.reach)));
        score += bias;
        size += std::abs(bias);
      }
      weights_.push_back(score);
      sizes_.push_back(size);
      highest = std::max(highest, score);
    }
    double sum = 0;
    for (double& weight : weights_) sum += weight = std::exp(weight - highest);
    for (double& weight : weights_) weight /= sum;
    const double lse = highest + std::log(sum);
    // An error of a score is one of lse, weighted.
    double size = std::abs(lse) + 1;
    for (size_t i = 0; i < weights_.size(); ++i) size += weights_[i] * sizes_[i];
    lse_ = {.value = lse, .magnitude = size, .length = p.head_size() + static_cast<int64_t>(weights_.size())};
  }

  Sum lse() const { return lse_; }

  // Dimension d. For the tensor cores each weight is rounded to bf16: these errors are independent, so their
  // squares add up. Sums are in fp32, and an absolute error of a score is a relative error of its weight:
  // hence 1 + size. Both are one magnitude in units of bf16's round-off, which is 2^16 of fp32's.
  Sum out(int64_t d) const {
    double value = 0, squares = 0, absolute = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const double term =
          weights_[i] * static_cast<float>(p_.v(first_ + static_cast<int64_t>(i), kv_head_, d));
      value += term;
      squares += term * term;
      absolute += std::abs(term) * (1 + sizes_[i]);
    }
    const double roundings = std::sqrt(static_cast<double>(weights_.size()) + p_.head_size());
    return {.value      = value,
            .magnitude  = std::sqrt(squares) + 0x1p-16 * roundings * absolute,
            .accumulate = DType::bf16};
  }

 private:
  const PackedDocuments& p_;
  int64_t first_, kv_head_;
  std::vector<double> weights_, sizes_;  // sizes: sums of |q k|, and of |bias|
  Sum lse_;
};

}  // namespace

PackedDocuments::PackedDocuments(const Point& at, Arena& arena)
    : documents(at["documents"]),
      longest(longest_of(bounds_of(at))),
      pairs(visible_pairs(bounds_of(at))),
      reach(at.find("reach") ? at["reach"] : -1),
      q(arena.input<bf16>({at["tokens"], kHeads, at["head_size"]}, Normal{})),
      k(arena.input<bf16>({at["tokens"], kKvHeads, at["head_size"]}, Normal{})),
      v(arena.input<bf16>({at["tokens"], kKvHeads, at["head_size"]}, Normal{})),
      begin(arena.input<int32_t>({at["tokens"]}, copy_of(begins(bounds_of(at))))),
      bounds(arena.input<int32_t>({documents + 1}, copy_of(bounds_of(at)))),
      bias(arena.input<float>({kHeads, reach < 0 ? 0 : 2 * reach + 1}, Normal{})),
      tiles(input_of(arena, tiles_of(whole(at), at))),
      its_tiles(input_of(arena, tiles_of(bounds_of(at), at))),
      out(arena.output<bf16>({at["tokens"], kHeads, at["head_size"]})),
      lse(arena.output<float>({kHeads, at["tokens"]})),
      blocks(arena.workspace<uint32_t>(
          {tiles.extent(0), kernels::most_key_blocks(whole(at), static_cast<int>(at["head_size"]))})),
      counts(arena.workspace<int32_t>({tiles.extent(0)})),
      scores(
          arena.workspace<float>({kGroup, std::min(kChunkRows, at["tokens"]), rounded_up(at["tokens"], 8)})),
      weights(arena.workspace<bf16>({kGroup, scores.extent(1), scores.extent(2)})),
      padded_q(arena.workspace<bf16>({padded_bounds(at).back(), kHeads, at["head_size"]})),
      padded_k(arena.workspace<bf16>({padded_bounds(at).back(), kKvHeads, at["head_size"]})),
      padded_v(arena.workspace<bf16>({padded_bounds(at).back(), kKvHeads, at["head_size"]})),
      padded_out(arena.workspace<bf16>({padded_bounds(at).back(), kHeads, at["head_size"]})),
      padded_lse(arena.workspace<float>({kHeads, padded_bounds(at).back()})),
      padded_tiles(input_of(arena, tiles_of(padded_bounds(at), at))) {
  FATHOM_EXPECT(at["tokens"] <= kMostTokens,
                "dense_scores holds rows of up to 16384 scores (-a tokens=16384)");
}

Cost PackedDocuments::cost() const {
  return {.read      = q.bytes() + k.bytes() + v.bytes() + bias.bytes(),
          .written   = out.bytes() + lse.bytes(),
          .flops     = 4.0 * kHeads * head_size() * pairs,
          .flop_type = DType::bf16};
}

void PackedDocuments::check(Checker& checker) const {
  // `row` is of the last element, which the thread's copy keeps.
  auto row_of = [this, row = std::optional<Row>(), row_t = int64_t{-1}, row_h = int64_t{-1}](
                    int64_t t, int64_t h) mutable -> const Row& {
    if (std::tie(row_t, row_h) != std::tie(t, h)) {
      row.emplace(*this, t, h);
      row_t = t, row_h = h;
    }
    return *row;
  };
  checker.values_in_parallel(
      "out", out, [row_of](int64_t t, int64_t h, int64_t d) mutable { return row_of(t, h).out(d); });
  checker.values_in_parallel("lse", lse,
                             [row_of](int64_t h, int64_t t) mutable { return row_of(t, h).lse(); });
}

}  // namespace fathom::lab::flexattention
