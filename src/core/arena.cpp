#include "core/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/dtype.h"
#include "core/rng.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fathom {
namespace {

constexpr int64_t kGuardBytes = 4096;
constexpr int64_t kHugePage   = int64_t{2} << 20;
constexpr int64_t kLine       = 64;
// From this size on, poison goes past the caches: dirty lines would be written back inside the timed span.
constexpr int64_t kStreamFrom = int64_t{8} << 20;

// 0xFFF9 in the upper half is a quiet NaN as fp32, bf16 and (twice) fp64; the lower half carries the nonce.
constexpr uint32_t kPoison = 0xFFF90000u;

constexpr uint64_t guard_word(const void* where) {
  return 0x9D6A'11C3'5BF0'A7E5ull ^ reinterpret_cast<uintptr_t>(where);
}

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib >> unit)
    if (key == "MemAvailable:") return kib * 1024;
  return INT64_MAX;  // not readable: the allocation itself will tell
}

void store_pattern(void* data, int64_t bytes, uint32_t word) {
  auto* out          = static_cast<std::byte*>(data);
  const int64_t body = bytes / 4 * 4;
  int64_t i          = 0;
#if defined(__x86_64__)
  if (bytes >= kStreamFrom) {
    const __m128i wide = _mm_set1_epi32(static_cast<int>(word));
    for (; i + 16 <= body; i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(out + i), wide);
    _mm_sfence();
  }
#endif
  for (; i < body; i += 4) std::memcpy(out + i, &word, 4);
  std::memcpy(out + body, &word, static_cast<size_t>(bytes - body));
}

}  // namespace

NotEnoughMemory::NotEnoughMemory(int64_t wanted, int64_t available)
    : std::runtime_error(fmt::format("{:.1f} GiB wanted, {:.1f} GiB available", wanted / 1073741824.0,
                                     available / 1073741824.0)) {}

struct Arena::Buffer {
  Role role;
  std::byte* data  = nullptr;  // payload
  int64_t bytes    = 0;
  int64_t elements = 0;
  std::function<void(void*, int64_t, uint64_t)> fill;
  void* mapping        = nullptr;  // null: adopted
  int64_t mapped_bytes = 0;

  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : role(other.role),
        data(other.data),
        bytes(other.bytes),
        elements(other.elements),
        fill(std::move(other.fill)),
        mapping(std::exchange(other.mapping, nullptr)),
        mapped_bytes(other.mapped_bytes) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (mapping) munmap(mapping, static_cast<size_t>(mapped_bytes));
  }

  // Both bands, as words: [first, last) before the payload and from its end on.
  template <class F>
  void for_each_guard_word(F&& f) const {
    if (!mapping) return;
    for (int side = 0; side < 2; ++side) {
      std::byte* begin = side == 0 ? data - kGuardBytes : data + bytes;
      for (int64_t i = 0; i < kGuardBytes; i += 8)
        if (!f(begin + i, side)) return;
    }
  }

  void write_guards() const {
    for_each_guard_word([](std::byte* word, int) {
      const uint64_t pattern = guard_word(word);
      std::memcpy(word, &pattern, 8);
      return true;
    });
  }
};

Arena::Arena()                            = default;
Arena::~Arena()                           = default;
Arena::Arena(Arena&&) noexcept            = default;
Arena& Arena::operator=(Arena&&) noexcept = default;

void* Arena::add(Role role, int64_t elements, int64_t element_bytes, Pages pages,
                 std::function<void(void*, int64_t, uint64_t)> fill) {
  const int64_t bytes = elements * element_bytes;
  const bool huge     = pages == Pages::huge && bytes >= kHugePage;
  // Each buffer starts some cache lines further into its page than the one before.
  const int64_t stagger = kLine * (static_cast<int64_t>(buffers_.size()) * 17 % 64);
  const int64_t total   = kGuardBytes + stagger + bytes + kGuardBytes + kLine + (huge ? kHugePage : 0);
  if (bytes > kHugePage && total > available_memory() * 9 / 10)
    throw NotEnoughMemory(total, available_memory());

  Buffer buffer;
  buffer.role = role;
  void* mapping =
      mmap(nullptr, static_cast<size_t>(total), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw NotEnoughMemory(total, available_memory());
  buffer.mapping      = mapping;
  buffer.mapped_bytes = total;
  auto start          = reinterpret_cast<uintptr_t>(mapping) + kGuardBytes;
  if (huge) {
    // The band shares its page with whatever precedes; the payload begins in a huge page of its own.
    start = (start + kHugePage - 1) / kHugePage * kHugePage;
    (void)madvise(mapping, static_cast<size_t>(total), MADV_HUGEPAGE);  // a hint; doctor reports the mode
  } else if (pages == Pages::small) {
    (void)madvise(mapping, static_cast<size_t>(total), MADV_NOHUGEPAGE);
  }
  buffer.data     = reinterpret_cast<std::byte*>(start + static_cast<uintptr_t>(stagger));
  buffer.bytes    = bytes;
  buffer.elements = elements;
  buffer.fill     = std::move(fill);
  buffer.write_guards();
  std::memset(buffer.data, 0, static_cast<size_t>(bytes));  // prefault: no page fault on a timed path
  void* data = buffer.data;
  buffers_.push_back(std::move(buffer));
  return data;
}

void Arena::adopt_bytes(void* data, int64_t bytes, Role role) {
  FATHOM_EXPECT(data != nullptr || bytes == 0, "adopted memory is null");
  Buffer buffer;
  buffer.role  = role;
  buffer.data  = static_cast<std::byte*>(data);
  buffer.bytes = bytes;
  buffers_.push_back(std::move(buffer));
}

void Arena::fill(uint64_t seed) {
  uint64_t stream = 0;
  for (Buffer& buffer : buffers_)
    if (buffer.fill) buffer.fill(buffer.data, buffer.elements, seed * 0x9E3779B97F4A7C15ull + stream++);
}

void Arena::poison(uint32_t nonce) {
  nonce_ = nonce & 0xFFFF;
  for (Buffer& buffer : buffers_)
    if (buffer.role != Role::input) store_pattern(buffer.data, buffer.bytes, kPoison | nonce_);
}

bool Arena::is_poison(const void* element, int64_t element_bytes) const {
  const auto* where = static_cast<const std::byte*>(element);
  for (const Buffer& buffer : buffers_) {
    if (buffer.role == Role::input || where < buffer.data || where >= buffer.data + buffer.bytes) continue;
    const uint32_t word = kPoison | nonce_;
    for (int64_t i = 0; i < element_bytes; ++i)
      if (where[i] != static_cast<std::byte>(word >> 8 * ((where - buffer.data + i) % 4))) return false;
    return true;
  }
  return false;
}

uint64_t Arena::input_checksum() const {
  uint64_t hash = 0;
  for (const Buffer& buffer : buffers_)
    if (buffer.role == Role::input)
      hash = XXH3_64bits_withSeed(buffer.data, static_cast<size_t>(buffer.bytes), hash);
  return hash;
}

uint64_t Arena::output_checksum() const {
  uint64_t hash = 0;
  for (const Buffer& buffer : buffers_)
    if (buffer.role == Role::output)
      hash = XXH3_64bits_withSeed(buffer.data, static_cast<size_t>(buffer.bytes), hash);
  return hash;
}

namespace {
constexpr const char* kRoleNames[] = {"input", "output", "workspace"};
}

std::optional<std::string> Arena::broken_guard() const {
  int ordinal[3] = {};
  std::optional<std::string> broken;
  for (const Buffer& buffer : buffers_) {
    const int role   = static_cast<int>(buffer.role);
    const int number = ordinal[role]++;
    buffer.for_each_guard_word([&](const std::byte* word, int side) {
      const uint64_t pattern = guard_word(word);
      if (std::memcmp(word, &pattern, 8) == 0) return true;
      const int64_t distance = side == 0 ? buffer.data - word : word - (buffer.data + buffer.bytes);
      broken = fmt::format("{} {} was written about {} bytes {} it", kRoleNames[role], number, distance,
                           side == 0 ? "before" : "past the end of");
      return false;
    });
    if (broken) return broken;
  }
  return std::nullopt;
}

void Arena::repair_guards() {
  for (const Buffer& buffer : buffers_) buffer.write_guards();
}

std::optional<std::string> Arena::overlap() const {
  int ordinal[3] = {};
  std::vector<std::string> names;
  for (const Buffer& buffer : buffers_) {
    const int role = static_cast<int>(buffer.role);
    names.push_back(fmt::format("{} {}", kRoleNames[role], ordinal[role]++));
  }
  for (size_t a = 0; a < buffers_.size(); ++a)
    for (size_t b = 0; b < buffers_.size(); ++b) {
      const Buffer &out = buffers_[a], &other = buffers_[b];
      if (a == b || out.role != Role::output || out.bytes == 0 || other.bytes == 0) continue;
      if (out.data < other.data + other.bytes && other.data < out.data + out.bytes)
        return names[a] + " overlaps " + names[b];
    }
  return std::nullopt;
}

void Arena::flush_from_caches() const {
#if defined(__x86_64__)
  for (const Buffer& buffer : buffers_)
    for (int64_t i = 0; i < buffer.bytes; i += kLine) _mm_clflush(buffer.data + i);
  _mm_mfence();
#endif
}

int64_t Arena::input_bytes() const {
  int64_t sum = 0;
  for (const Buffer& buffer : buffers_)
    if (buffer.role == Role::input) sum += buffer.bytes;
  return sum;
}

int64_t Arena::output_bytes() const {
  int64_t sum = 0;
  for (const Buffer& buffer : buffers_)
    if (buffer.role == Role::output) sum += buffer.bytes;
  return sum;
}

void Arena::copy_outputs_to(std::vector<std::byte>& copy) const {
  copy.clear();
  for (const Buffer& buffer : buffers_)
    if (buffer.role == Role::output) copy.insert(copy.end(), buffer.data, buffer.data + buffer.bytes);
}

template <class T>
std::function<void(void*, int64_t, uint64_t)> Arena::filler(const Fill& fill) {
  constexpr bool kInteger = std::is_integral_v<T>;
  if (const auto* uniform = std::get_if<Uniform>(&fill)) {
    return [range = *uniform](void* data, int64_t n, uint64_t seed) {
      if constexpr (kInteger)
        fill_integers(static_cast<T*>(data), n, seed, static_cast<int64_t>(range.lo),
                      static_cast<int64_t>(range.hi));
      else
        fill_uniform(static_cast<T*>(data), n, seed, range.lo, range.hi);
    };
  }
  if (const auto* normal = std::get_if<Normal>(&fill)) {
    FATHOM_EXPECT(!kInteger, "a Normal fill needs a floating type");
    return [shape = *normal](void* data, int64_t n, uint64_t seed) {
      if constexpr (!kInteger) fill_normal(static_cast<T*>(data), n, seed, shape.mean, shape.stddev);
    };
  }
  if (std::holds_alternative<Permutation>(fill)) {
    constexpr bool kIndex = std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>;
    FATHOM_EXPECT(kIndex, "a Permutation fill needs int32_t or int64_t");
    return [](void* data, int64_t n, uint64_t seed) {
      if constexpr (kIndex) fill_permutation(static_cast<T*>(data), n, seed, n);
    };
  }
  return std::get<Generate>(fill).fill;
}

template std::function<void(void*, int64_t, uint64_t)> Arena::filler<float>(const Fill&);
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<double>(const Fill&);
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<bf16>(const Fill&);
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<fp16>(const Fill&);
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<int8_t>(const Fill&);
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<uint8_t>(const Fill&);
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<int32_t>(const Fill&);
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<uint32_t>(const Fill&);
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<int64_t>(const Fill&);

int64_t Arena::offset_in_copy(const void* output) const {
  const auto* where = static_cast<const std::byte*>(output);
  int64_t offset    = 0;
  for (const Buffer& buffer : buffers_) {
    if (buffer.role != Role::output) continue;
    if (where >= buffer.data && where <= buffer.data + buffer.bytes) return offset + (where - buffer.data);
    offset += buffer.bytes;
  }
  FATHOM_EXPECT(false, "a checked output is not one of the arena's outputs");
  return 0;
}

}  // namespace fathom
