#include "comm/reduce.h"

#include <algorithm>
#include <type_traits>

#include "core/expect.h"

namespace fathom::comm {
namespace {

template <class T>
struct Sum {
  static T combine(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(b));
    else
      return a + b;
  }
};
template <class T>
struct Max {
  static T combine(T a, T b) { return a < b ? b : a; }
};
template <class T>
struct Min {
  static T combine(T a, T b) { return b < a ? b : a; }
};

// A tile of accumulators at a time, so that each source is read in long runs and loops vectorise.
template <class T, class Accumulator, class Op>
void reduce_as(std::span<const std::byte* const> sources, std::byte* out_bytes, int64_t n) {
  constexpr int64_t kTile = 512;
  Accumulator tile[kTile];
  T* const out = reinterpret_cast<T*>(out_bytes);
  for (int64_t first = 0; first < n; first += kTile) {
    const int64_t length = std::min(kTile, n - first);
    const T* source      = reinterpret_cast<const T*>(sources[0]) + first;
    for (int64_t i = 0; i < length; ++i) tile[i] = static_cast<Accumulator>(source[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      source = reinterpret_cast<const T*>(sources[s]) + first;
      for (int64_t i = 0; i < length; ++i)
        tile[i] = Op::combine(tile[i], static_cast<Accumulator>(source[i]));
    }
    for (int64_t i = 0; i < length; ++i) out[first + i] = static_cast<T>(tile[i]);
  }
}

template <class T, class Accumulator = T>
void reduce_type(Reduction reduction, std::span<const std::byte* const> sources, std::byte* out, int64_t n) {
  switch (reduction) {
    case Reduction::sum:
      return reduce_as<T, Accumulator, Sum<Accumulator>>(sources, out, n);
    case Reduction::max:
      return reduce_as<T, Accumulator, Max<Accumulator>>(sources, out, n);
    case Reduction::min:
      return reduce_as<T, Accumulator, Min<Accumulator>>(sources, out, n);
  }
}

}  // namespace

bool can_reduce(DType dtype) {
  switch (dtype) {
    case DType::fp64:
    case DType::fp32:
    case DType::bf16:
    case DType::fp16:
    case DType::int64:
    case DType::int32:
      return true;
    default:
      return false;
  }
}

void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources, std::byte* out,
            int64_t n) {
  FATHOM_EXPECT(!sources.empty() && can_reduce(dtype),
                "reductions are for fp64, fp32, bf16, fp16, int64 and int32, of at least one rank");
  switch (dtype) {
    case DType::fp64:
      return reduce_type<double>(reduction, sources, out, n);
    case DType::fp32:
      return reduce_type<float>(reduction, sources, out, n);
    case DType::bf16:
      return reduce_type<bf16, float>(reduction, sources, out, n);
    case DType::fp16:
      return reduce_type<fp16, float>(reduction, sources, out, n);
    case DType::int64:
      return reduce_type<int64_t>(reduction, sources, out, n);
    default:
      return reduce_type<int32_t>(reduction, sources, out, n);
  }
}

}  // namespace fathom::comm
