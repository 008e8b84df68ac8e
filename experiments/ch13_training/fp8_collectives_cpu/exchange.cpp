// The exchange, once for all formats.
//
// A tensor has one scale, from the largest magnitude on any rank: one all-reduce of two numbers finds those
// of both. E4M3 for weights; E5M2, which has the wider range, for gradients. What is summed is summed in
// fp32, in the order of ranks, so both ranks' sums have the same bits.
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "collectives.h"
#include "experiments/ch13_training/fp8_codes.h"
#include "experiments/tcp_ranks.h"

namespace fathom::lab::fp8_collectives_cpu {
namespace {

using fp8::largest;

template <class T>
std::span<const T> span(View<const T, 1> of) {
  return {of.data(), static_cast<size_t>(of.size())};
}
template <class T>
std::span<T> span(View<T, 1> of) {
  return {of.data(), static_cast<size_t>(of.size())};
}

class Ranks {
 public:
  Ranks(Format of_weights, Format of_gradients, const Rank& me)
      : of_weights_(of_weights), of_gradients_(of_gradients), group_(join_over_tcp(me)) {}

  void exchange(const Collectives& p, uint64_t nonce) {
    // 0 of what travels in bf16, and of numbers that are all 0: these need no scale.
    std::array<float, 2> most{of_weights_ == Format::fp8 ? largest(span(p.shard)) : 0,
                              of_gradients_ == Format::fp8 ? largest(span(p.gradients)) : 0};
    sent_ = 0;
    if (of_weights_ == Format::fp8 || of_gradients_ == Format::fp8) {
      group_->all_reduce(std::span<float>(most), comm::Reduction::max);
      sent_ += static_cast<int64_t>(sizeof most);
    }
    if (of_weights_ == Format::fp8)
      gather_fp8(p, fp8::scale_for<fp8_e4m3>(most[0]));
    else
      gather_bf16(p);
    if (of_gradients_ == Format::fp8)
      reduce_scatter_fp8(p, fp8::scale_for<fp8_e5m2>(most[1]));
    else
      reduce_scatter_bf16(p);

    std::array<int64_t, 1> sum{static_cast<int64_t>(nonce)};
    group_->all_reduce(std::span<int64_t>(sum));
    p.nonces(0)     = static_cast<uint64_t>(sum[0]);
    p.sent_bytes(0) = sent_;
  }

 private:
  template <class Code, class T>
  void encode(std::span<const T> numbers, float scale) {
    codes_.resize(numbers.size());
    fp8::encode<Code>(numbers, scale, codes_.data());
  }

  void gather_bf16(const Collectives& p) {
    const int64_t n = p.shard.size();
    bf16* const own = p.weights.data() + p.rank * n;
    for (int64_t i = 0; i < n; ++i) own[i] = bf16(p.shard(i));
    group_->all_gather(std::span<const bf16>(own, static_cast<size_t>(n)), span(p.weights));
    sent_ += n * int64_t{sizeof(bf16)};
  }

  void gather_fp8(const Collectives& p, float scale) {
    encode<fp8_e4m3>(span(p.shard), scale);
    arrived_.resize(kRanks * codes_.size());
    group_->all_gather(std::span<const uint8_t>(codes_), std::span(arrived_));
    const auto number = fp8::decoded<fp8_e4m3, bf16>(scale);
    for (size_t i = 0; i < arrived_.size(); ++i) p.weights.data()[i] = number[arrived_[i]];
    sent_ += static_cast<int64_t>(codes_.size());
  }

  void reduce_scatter_bf16(const Collectives& p) {
    mine_.resize(static_cast<size_t>(p.shard.size()));
    group_->reduce_scatter(span(p.gradients), std::span(mine_));
    for (int64_t i = 0; i < p.shard.size(); ++i)
      p.sums(i) = static_cast<float>(mine_[static_cast<size_t>(i)]);
    sent_ += p.shard.size() * int64_t{sizeof(bf16)};
  }

  void reduce_scatter_fp8(const Collectives& p, float scale) {
    encode<fp8_e5m2>(span(p.gradients), scale);
    arrived_.resize(codes_.size());
    group_->all_to_all(std::span<const uint8_t>(codes_), std::span(arrived_));
    const auto number = fp8::decoded<fp8_e5m2, float>(scale);
    const auto n      = static_cast<size_t>(p.shard.size());
    for (size_t i = 0; i < n; ++i) p.sums.data()[i] = number[arrived_[i]] + number[arrived_[n + i]];
    sent_ += static_cast<int64_t>(n);
  }

  Format of_weights_, of_gradients_;
  std::unique_ptr<comm::Group> group_;
  std::vector<uint8_t> codes_, arrived_;
  std::vector<bf16> mine_;
  int64_t sent_ = 0;  // to the other rank, without headers
};

}  // namespace

Exchange exchange(Format of_weights, Format of_gradients, const Collectives&, Context& context) {
  return [ranks = std::make_shared<Ranks>(of_weights, of_gradients, *context.rank)](
             const Collectives& p, Context& step) { ranks->exchange(p, step.rank->nonce()); };
}

// A code is off by half of its last bit, or, where it is subnormal, by half of the smallest number: a
// fraction of the largest number of the tensor.
void Collectives::check(Checker& checker, const AllRanks<Collectives>& ranks) const {
  double of_weights = 0, of_gradients = 0;
  for (int r = 0; r < ranks.size(); ++r) {
    of_weights   = std::max<double>(of_weights, largest(span(ranks[r].shard)));
    of_gradients = std::max<double>(of_gradients, largest(span(ranks[r].gradients)));
  }
  const int64_t n = shard.size();
  checker.values("weights", weights, [&](int64_t i) {
    const double x = ranks[static_cast<int>(i / n)].shard(i % n);
    return Sum{.value      = x,
               .magnitude  = std::abs(x) * 1.1 + 0x1p-6 / 448 * of_weights,  // and rounded to bf16
               .accumulate = DType::fp8_e4m3};
  });
  checker.values("sums", sums, [&](int64_t i) {
    Sum sum{.accumulate = DType::fp8_e5m2};
    for (int r = 0; r < ranks.size(); ++r) {
      const double x = static_cast<float>(ranks[r].gradients(rank * n + i));
      sum.value += x;
      sum.magnitude += std::abs(x) + 0x1p-14 / 57344 * of_gradients;
    }
    return sum;
  });
}

}  // namespace fathom::lab::fp8_collectives_cpu
