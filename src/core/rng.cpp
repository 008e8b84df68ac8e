#include "core/rng.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "core/dtype.h"
#include "core/expect.h"

// Compiled with -O3 -ffp-contract=off -fno-math-errno (CMakeLists.txt): the loops below vectorise, and no
// machine fuses a multiply-add, so all machines round alike.

namespace fathom {
namespace {

// A group is 16 consecutive counters, word-major: loops over the counters (lanes) vectorise, and stores are
// contiguous. Element i of a fill of 32-bit draws is word i / 16 % 4 of counter i / 64 * 16 + i % 16.
constexpr int kLanes = 16;
constexpr int kWords = 4 * kLanes;

struct Group {
  alignas(64) uint32_t word[4][kLanes];
};

// The upper half of a counter: keeps the uses of a seed apart, so that they never share bits.
enum class Use : uint32_t { fill = 0, permutation = 1 };

PhiloxKey key_of(uint64_t seed) { return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}; }

inline void draw(Group& g, uint64_t seed, uint64_t index) {
  const uint64_t counter = index * kLanes;
  const uint32_t low = static_cast<uint32_t>(counter), high = static_cast<uint32_t>(counter >> 32);
  const PhiloxKey key = key_of(seed);
  for (uint32_t l = 0; l < kLanes; ++l) {
    // low is a multiple of 16, so adding l never carries.
    const PhiloxCounter words = philox({low + l, high, static_cast<uint32_t>(Use::fill), 0}, key);
    for (int w = 0; w < 4; ++w) g.word[w][l] = words[w];
  }
}

inline uint64_t pair_of(const Group& g, int p, int l) {
  return static_cast<uint64_t>(g.word[2 * p + 1][l]) << 32 | g.word[2 * p][l];
}

// 2^-24 k and 2^-52 k, below 1. AVX2 cannot convert 64-bit integers to double, so the second sets
// the mantissa of 1.0 and subtracts 1.
inline float unit_float(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}
inline double unit_double(uint64_t word) {
  return std::bit_cast<double>(0x3ff0000000000000 | word >> 12) - 1.0;
}

template <class T>
constexpr bool kWide = sizeof(T) == 8;

// ln(x) for normal x > 0: x = 2^e m with m in [1/sqrt2, sqrt2), ln m = 2 artanh((m - 1) / (m + 1)) by its
// series.
template <class Real>
inline Real log_of(Real x) {
  using Bits            = std::conditional_t<kWide<Real>, uint64_t, uint32_t>;
  using Int             = std::make_signed_t<Bits>;
  constexpr int kDigits = std::numeric_limits<Real>::digits - 1;
  constexpr Bits kRoot  = std::bit_cast<Bits>(Real(std::numbers::sqrt2 / 2));
  constexpr int kTerms =
      kWide<Real> ? 11 : 5;  // |s| < 0.172: the first term left out is below 1 ulp of the sum
  const Bits offset  = std::bit_cast<Bits>(x) - kRoot;
  const Int exponent = static_cast<Int>(offset) >> kDigits;
  const Real m       = std::bit_cast<Real>((offset & ((Bits{1} << kDigits) - 1)) + kRoot);
  const Real s       = (m - 1) / (m + 1);
  Real sum           = 0;
  for (int k = kTerms - 1; k >= 0; --k) sum = sum * (s * s) + Real(2) / Real(2 * k + 1);
  return Real(static_cast<int32_t>(exponent)) * Real(std::numbers::ln2) + s * sum;
}

// sin and cos of pi/2 * x for x in [-1/2, 1/2], by their series.
template <class Real>
inline void sin_cos_quarter(Real x, Real& sin, Real& cos) {
  constexpr int kTerms = kWide<Real> ? 9 : 5;
  const Real angle     = x * Real(std::numbers::pi / 2);
  const Real square    = angle * angle;
  sin = cos = 0;
  for (int k = kTerms; k >= 1; --k) {
    sin = (Real(1) - sin) * square / Real(2 * k * (2 * k + 1));
    cos = (Real(1) - cos) * square / Real((2 * k - 1) * 2 * k);
  }
  sin = angle * (Real(1) - sin);
  cos = Real(1) - cos;
}

// Box-Muller: two independent standard normals from a radius draw u in (0, 1] and an angle in quarter turns:
// the quadrant, and a place x within it.
template <class Real>
inline void box_muller(Real u, uint32_t quadrant, Real x, Real& first, Real& second) {
  Real sin, cos;
  sin_cos_quarter(x, sin, cos);
  const Real radius = std::sqrt(Real(-2) * log_of(u));
  const Real a      = quadrant & 1 ? sin : cos;
  const Real b      = quadrant & 1 ? cos : sin;
  first             = radius * ((quadrant + 1) & 2 ? -a : a);
  second            = radius * (quadrant & 2 ? -b : b);
}

// Makes the elements of a group: kElements of type Element at a time.
template <class Real>
struct MakeUniform {
  using Element                  = Real;
  static constexpr int kElements = kWords / (kWide<Real> ? 2 : 1);
  Real lo, width;

  void operator()(const Group& g, Real* out) const {
    for (int l = 0; l < kLanes; ++l) {
      if constexpr (kWide<Real>) {
        for (int p = 0; p < 2; ++p) out[p * kLanes + l] = lo + width * unit_double(pair_of(g, p, l));
      } else {
        for (int w = 0; w < 4; ++w) out[w * kLanes + l] = lo + width * unit_float(g.word[w][l]);
      }
    }
  }
};

template <class Real>
struct MakeNormal {
  using Element                  = Real;
  static constexpr int kElements = kWords / (kWide<Real> ? 2 : 1);
  Real mean, deviation;

  void operator()(const Group& g, Real* out) const {
    for (int p = 0; p < kElements / (2 * kLanes); ++p) {
      Real* first  = out + 2 * p * kLanes;
      Real* second = first + kLanes;
      for (int l = 0; l < kLanes; ++l) {
        if constexpr (kWide<Real>) {
          const uint64_t angle = pair_of(g, 1, l);
          box_muller(unit_double(pair_of(g, 0, l)) + 0x1p-53, static_cast<uint32_t>(angle >> 62),
                     unit_double(angle << 2) - 0.5, first[l], second[l]);
        } else {
          const float u = (static_cast<float>(static_cast<int32_t>(g.word[2 * p][l] >> 1)) + 0.5f) * 0x1p-31f;
          const uint32_t angle = g.word[2 * p + 1][l];
          box_muller(u, angle >> 30, static_cast<float>(static_cast<int32_t>(angle << 2)) * 0x1p-32f,
                     first[l], second[l]);
        }
        first[l]  = mean + deviation * first[l];
        second[l] = mean + deviation * second[l];
      }
    }
  }
};

template <class T>
struct MakeIntegers {
  using Element                  = T;
  static constexpr int kElements = kWords / 2;
  uint64_t lo, count;

  void operator()(const Group& g, T* out) const {
    for (int p = 0; p < 2; ++p)
      for (int l = 0; l < kLanes; ++l) {
        // The upper half of draw * count, which is below count.
        uint64_t step = 0;
        if constexpr (kWide<T>) {
          step = static_cast<uint64_t>(static_cast<unsigned __int128>(pair_of(g, p, l)) * count >> 64);
        } else {
          step = (g.word[2 * p + 1][l] * count + (g.word[2 * p][l] * count >> 32)) >> 32;  // count <= 2^32
        }
        out[p * kLanes + l] = static_cast<T>(lo + step);
      }
  }
};

// Makes each group in a buffer that stays in L1, then rounds the wanted elements to T.
template <class T, class Make>
inline void fill_groups(T* out, int64_t n, uint64_t seed, int64_t first, Make make) {
  constexpr int64_t kElements = Make::kElements;
  Group g;
  alignas(64) typename Make::Element made[kElements];
  for (int64_t done = 0; done < n;) {
    const int64_t group = (first + done) / kElements;
    const int64_t skip  = (first + done) % kElements;
    const int64_t count = std::min(kElements - skip, n - done);
    draw(g, seed, static_cast<uint64_t>(group));
    make(g, made);
    if (count == kElements) {  // the same loop with a constant length
      for (int64_t i = 0; i < kElements; ++i) out[done + i] = T(made[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) out[done + i] = T(made[skip + i]);
    }
    done += count;
  }
}

// The loop compiled twice. The compiler's function multi-versioning would do, but its resolvers run before a
// sanitizer's runtime is ready.
template <class T, class Make>
[[gnu::flatten, gnu::noinline]] void fill_portable(T* out, int64_t n, uint64_t seed, int64_t first,
                                                   Make make) {
  fill_groups(out, n, seed, first, make);
}

#if defined(__x86_64__)
template <class T, class Make>
[[gnu::flatten, gnu::noinline, gnu::target("avx2")]] void fill_avx2(T* out, int64_t n, uint64_t seed,
                                                                    int64_t first, Make make) {
  fill_groups(out, n, seed, first, make);
}
#endif

template <class T, class Make>
void fill(T* out, int64_t n, uint64_t seed, int64_t first, Make make) {
  FATHOM_EXPECT(n >= 0 && first >= 0, fmt::format("cannot fill {} elements from element {}", n, first));
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return fill_avx2(out, n, seed, first, make);
#endif
  fill_portable(out, n, seed, first, make);
}

// A random bijection of [0, 2^bits): a Feistel network whose halves differ by at most a bit, eight
// half-rounds.
struct Bijection {
  int left, right;  // widths of the halves in bits
  uint64_t keys[8];

  Bijection(uint64_t seed, int bits) : left(bits / 2), right(bits - bits / 2) {
    for (uint32_t i = 0; i < 8; ++i) {
      const PhiloxCounter random = philox({i, 0, static_cast<uint32_t>(Use::permutation), 0}, key_of(seed));
      keys[i]                    = static_cast<uint64_t>(random[1]) << 32 | random[0];
    }
  }

  static uint64_t mix(uint64_t half, uint64_t key) {
    const uint64_t product = (half ^ key) * 0x9E3779B97F4A7C15;
    return (product ^ product >> 29) * 0xBF58476D1CE4E5B9 >> 32;
  }

  uint64_t operator()(uint64_t x) const {
    uint64_t high = x >> right, low = x & ((uint64_t{1} << right) - 1);
    for (int i = 0; i < 8; i += 2) {
      high ^= mix(low, keys[i]) & ((uint64_t{1} << left) - 1);
      low ^= mix(high, keys[i + 1]) & ((uint64_t{1} << right) - 1);
    }
    return high << right | low;
  }
};

// The real type a T is drawn in: double only for double.
template <class T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace

template <class T>
void fill_uniform(T* out, int64_t n, uint64_t seed, double lo, double hi, int64_t first) {
  using Real = RealOf<T>;
  FATHOM_EXPECT(lo <= hi, fmt::format("[{}, {}) is no range to draw from", lo, hi));
  fill(out, n, seed, first, MakeUniform<Real>{.lo = Real(lo), .width = Real(hi - lo)});
}

template <class T>
void fill_normal(T* out, int64_t n, uint64_t seed, double mean, double deviation, int64_t first) {
  using Real = RealOf<T>;
  FATHOM_EXPECT(deviation >= 0, fmt::format("a standard deviation of {} is negative", deviation));
  fill(out, n, seed, first, MakeNormal<Real>{.mean = Real(mean), .deviation = Real(deviation)});
}

template <class T>
void fill_integers(T* out, int64_t n, uint64_t seed, int64_t lo, int64_t hi, int64_t first) {
  using Limits = std::numeric_limits<T>;
  FATHOM_EXPECT(lo < hi, fmt::format("[{}, {}) holds no integer", lo, hi));
  FATHOM_EXPECT(lo >= static_cast<int64_t>(Limits::min()) && hi - 1 <= static_cast<int64_t>(Limits::max()),
                fmt::format("[{}, {}) does not fit a {}", lo, hi, traits(dtype_of<T>).name));
  fill(out, n, seed, first,
       MakeIntegers<T>{.lo    = static_cast<uint64_t>(lo),
                       .count = static_cast<uint64_t>(hi) - static_cast<uint64_t>(lo)});
}

template <class T>
void fill_permutation(T* out, int64_t n, uint64_t seed, int64_t total, int64_t first) {
  FATHOM_EXPECT(n >= 0 && first >= 0 && first <= total && n <= total - first,
                fmt::format("elements {} to {} of a permutation of {}", first, first + n, total));
  FATHOM_EXPECT(total == 0 || total - 1 <= static_cast<int64_t>(std::numeric_limits<T>::max()),
                fmt::format("a permutation of {} does not fit a {}", total, traits(dtype_of<T>).name));
  const auto size = static_cast<uint64_t>(total);
  const Bijection permute(seed, size <= 1 ? 0 : std::bit_width(size - 1));
  for (int64_t i = 0; i < n; ++i) {
    // Values beyond total are walked along their cycle until one is inside: still a bijection, below two
    // steps each on average because the domain is less than twice as large.
    uint64_t x = permute(static_cast<uint64_t>(first + i));
    while (x >= size) x = permute(x);
    out[i] = static_cast<T>(x);
  }
}

#define FATHOM_INSTANTIATE(T)                                                    \
  template void fill_uniform<T>(T*, int64_t, uint64_t, double, double, int64_t); \
  template void fill_normal<T>(T*, int64_t, uint64_t, double, double, int64_t);
FATHOM_INSTANTIATE(float)
FATHOM_INSTANTIATE(double)
FATHOM_INSTANTIATE(bf16)
FATHOM_INSTANTIATE(fp16)
FATHOM_INSTANTIATE(fp8_e5m2)
FATHOM_INSTANTIATE(fp8_e4m3)
#undef FATHOM_INSTANTIATE

template void fill_integers<int8_t>(int8_t*, int64_t, uint64_t, int64_t, int64_t, int64_t);
template void fill_integers<uint8_t>(uint8_t*, int64_t, uint64_t, int64_t, int64_t, int64_t);
template void fill_integers<int32_t>(int32_t*, int64_t, uint64_t, int64_t, int64_t, int64_t);
template void fill_integers<uint32_t>(uint32_t*, int64_t, uint64_t, int64_t, int64_t, int64_t);
template void fill_integers<int64_t>(int64_t*, int64_t, uint64_t, int64_t, int64_t, int64_t);
template void fill_permutation<int32_t>(int32_t*, int64_t, uint64_t, int64_t, int64_t);
template void fill_permutation<int64_t>(int64_t*, int64_t, uint64_t, int64_t, int64_t);

}  // namespace fathom
