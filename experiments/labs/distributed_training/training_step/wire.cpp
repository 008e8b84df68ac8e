#include "wire.h"

#include <array>
#include <cstring>

#include "experiments/ch13_training/fp8_codes.h"

namespace fathom::lab::distributed_training {
namespace {

constexpr size_t kScaleBytes = sizeof(float);

template <class Code>
void encode_message(std::span<const float> numbers, uint8_t* message) {
  const float scale = fp8::scale_for<Code>(fp8::largest(numbers));
  std::memcpy(message, &scale, kScaleBytes);
  fp8::encode<Code>(numbers, scale, message + kScaleBytes);
}

// The codes of a message, and what they stand for.
template <class Code>
struct Message {
  explicit Message(const uint8_t* message) : codes(message + kScaleBytes) {
    float scale = 1;
    std::memcpy(&scale, message, kScaleBytes);
    numbers = fp8::decoded<Code, float>(scale);
  }
  float operator[](size_t i) const { return numbers[codes[i]]; }

  const uint8_t* codes;
  std::array<float, 256> numbers;
};

}  // namespace

void all_gather(comm::Group& group, Wire wire, std::span<const float> shard, std::span<float> whole,
                Codes& codes) {
  if (wire == Wire::fp32) return group.all_gather(shard, whole);
  const size_t bytes = kScaleBytes + shard.size();
  codes.out.resize(bytes);
  codes.in.resize(bytes * static_cast<size_t>(group.size()));
  encode_message<fp8_e4m3>(shard, codes.out.data());
  group.all_gather(std::span<const uint8_t>(codes.out), std::span(codes.in));
  for (size_t rank = 0; rank < static_cast<size_t>(group.size()); ++rank) {
    const Message<fp8_e4m3> from(&codes.in[rank * bytes]);
    for (size_t i = 0; i < shard.size(); ++i) whole[rank * shard.size() + i] = from[i];
  }
}

void reduce_scatter(comm::Group& group, Wire wire, std::span<const float> whole, std::span<float> sums,
                    Codes& codes) {
  if (wire == Wire::fp32) return group.reduce_scatter(whole, sums);
  const auto ranks = static_cast<size_t>(group.size()), me = static_cast<size_t>(group.rank());
  const size_t n = sums.size(), bytes = kScaleBytes + n;
  codes.out.resize(bytes * ranks);
  codes.in.resize(bytes * ranks);
  for (size_t rank = 0; rank < ranks; ++rank)
    if (rank != me) encode_message<fp8_e5m2>(whole.subspan(rank * n, n), &codes.out[rank * bytes]);
  group.all_to_all(std::span<const uint8_t>(codes.out), std::span(codes.in));
  std::fill(sums.begin(), sums.end(), 0.0f);
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (rank == me) {
      for (size_t i = 0; i < n; ++i) sums[i] += whole[me * n + i];
      continue;
    }
    const Message<fp8_e5m2> from(&codes.in[rank * bytes]);
    for (size_t i = 0; i < n; ++i) sums[i] += from[i];
  }
}

}  // namespace fathom::lab::distributed_training
