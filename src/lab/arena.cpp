#include "lab/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "core/dtype.h"
#include "core/proc_meminfo.h"
#include "core/rng.h"
#include "lab/read_only_inputs.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fathom {
namespace {

constexpr int64_t kGuardBytes = 4096;
constexpr int64_t kHugePage   = int64_t{2} << 20;
constexpr int64_t kLine       = 64;
// From this size on, poison is stored past the caches: dirty lines would be written back inside the timed
// span.
constexpr int64_t kStreamFrom = int64_t{8} << 20;

// 0xFFF9 in the upper half is a quiet NaN as fp32, bf16 and (twice) fp64; the lower half carries the nonce.
constexpr uint32_t kPoison = 0xFFF90000u;

// CUDA cuts smaller allocations from blocks of this size, and shares whole blocks with other processes.
int64_t whole_blocks(int64_t bytes) {
  constexpr int64_t kBlock = int64_t{2} << 20;
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

// The bytes of an intact band at this address.
void guard_pattern(const std::byte* where, std::byte* pattern) {
  for (int64_t i = 0; i < kGuardBytes; i += 8) {
    const uint64_t word = 0x9D6A'11C3'5BF0'A7E5ull ^ reinterpret_cast<uintptr_t>(where + i);
    std::memcpy(pattern + i, &word, 8);
  }
}

// Where /proc/meminfo cannot be read, the allocation itself will fail.
int64_t available_memory() { return proc_meminfo("MemAvailable").value_or(INT64_MAX); }

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

struct Arena::Buffer {
  Role role            = Role::input;
  std::byte* data      = nullptr;  // payload
  int64_t bytes        = 0;
  int64_t elements     = 0;
  Source source        = {};
  void* mapping        = nullptr;  // of the host; null: adopted, or the device's
  int64_t mapped_bytes = 0;
  Device* device       = nullptr;  // where the payload lies; null: on the host
  Device* pinned_by    = nullptr;
  void* allocation     = nullptr;  // of the device
  int file             = -1;       // that the mapping is of; -1: it is anonymous

  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : role(other.role),
        data(other.data),
        bytes(other.bytes),
        elements(other.elements),
        source(std::move(other.source)),
        mapping(std::exchange(other.mapping, nullptr)),
        mapped_bytes(other.mapped_bytes),
        device(other.device),
        pinned_by(std::exchange(other.pinned_by, nullptr)),
        allocation(std::exchange(other.allocation, nullptr)),
        file(std::exchange(other.file, -1)) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (pinned_by) pinned_by->unpin(mapping);
    if (mapping && role == Role::input) lab::remove_input_mapping(mapping);
    if (mapping) munmap(mapping, static_cast<size_t>(mapped_bytes));
    if (allocation) device->release(allocation);
    if (file >= 0) close(file);
  }

  bool guarded() const { return mapping || allocation; }
  std::byte* band(int side) const { return side == 0 ? data - kGuardBytes : data + bytes; }

  // Copies the bytes of a band.
  void read_band(int side, std::byte* copy) const {
    if (device)
      device->to_host(copy, band(side), kGuardBytes);
    else
      std::memcpy(copy, band(side), kGuardBytes);
  }
  void write_guards() const {
    if (!guarded()) return;
    for (int side = 0; side < 2; ++side) {
      std::byte pattern[kGuardBytes];
      guard_pattern(band(side), pattern);
      if (device)
        device->to_device(band(side), pattern, kGuardBytes);
      else
        std::memcpy(band(side), pattern, kGuardBytes);
    }
  }

  // The payload's bytes on the host; `copy` holds them where the payload is on a device.
  const std::byte* on_host(std::vector<std::byte>& copy) const {
    if (!device) return data;
    copy.resize(static_cast<size_t>(bytes));
    device->to_host(copy.data(), data, bytes);
    return copy.data();
  }
  uint64_t checksum(uint64_t seed) const {
    if (device) return seed * 31 + device->checksum(data, bytes);
    return XXH3_64bits_withSeed(data, static_cast<size_t>(bytes), seed);
  }
};

Arena::Arena(Device* device) : device_(device) {}
Arena Arena::pinned(Device& device) {
  Arena arena;
  arena.pins_for_ = &device;
  return arena;
}
Arena::~Arena()                           = default;
Arena::Arena(Arena&&) noexcept            = default;
Arena& Arena::operator=(Arena&&) noexcept = default;

void* Arena::add(Role role, int64_t elements, int64_t element_bytes, Pages pages, Place place,
                 Source source) {
  constexpr int64_t kAddressSpace = int64_t{1} << 56;
  if (elements > kAddressSpace / element_bytes) throw NotEnoughMemory(kAddressSpace, available_memory());
  Buffer buffer;
  buffer.role     = role;
  buffer.bytes    = elements * element_bytes;
  buffer.elements = elements;
  buffer.source   = std::move(source);
  if (device_ && place == Place::device) {
    buffer.device     = device_;
    buffer.allocation = device_->allocate(whole_blocks(kGuardBytes + buffer.bytes + kGuardBytes));
    buffer.data       = static_cast<std::byte*>(buffer.allocation) + kGuardBytes;
  } else {
    map_on_host(buffer, pages, place, static_cast<int64_t>(buffers_.size()));
    if (Device* device = pins_for_ ? pins_for_ : place == Place::pinned ? device_ : nullptr) {
      device->pin(buffer.mapping, buffer.mapped_bytes);
      buffer.pinned_by = device;
    } else if (role == Role::input) {
      lab::add_input_mapping(buffer.mapping, buffer.mapped_bytes);
    }
  }
  buffer.write_guards();
  void* data = buffer.data;
  buffers_.push_back(std::move(buffer));
  return data;
}

void Arena::map_on_host(Buffer& buffer, Pages pages, Place place, int64_t ordinal) {
  const int64_t bytes = buffer.bytes;
  const bool huge     = pages == Pages::huge && bytes >= kHugePage;
  // Each buffer starts some cache lines further into its page than the one before.
  const int64_t stagger = kLine * (ordinal * 17 % 64);
  const int64_t total   = kGuardBytes + stagger + bytes + kGuardBytes + kLine + (huge ? kHugePage : 0);
  if (bytes > kHugePage && total > available_memory() * 9 / 10)
    throw NotEnoughMemory(total, available_memory());
  if (place == Place::shared) {
    buffer.file = FATHOM_SYSTEM(memfd_create("fathom_arena", MFD_CLOEXEC));
    FATHOM_SYSTEM(ftruncate(buffer.file, total));
  }
  const int kind = place == Place::shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* mapping  = mmap(nullptr, static_cast<size_t>(total), PROT_READ | PROT_WRITE, kind, buffer.file, 0);
  if (mapping == MAP_FAILED) throw NotEnoughMemory(total, available_memory());
  buffer.mapping      = mapping;
  buffer.mapped_bytes = total;
  auto start          = reinterpret_cast<uintptr_t>(mapping) + kGuardBytes;
  if (huge) {
    // The band may share a page with other data; the payload begins in a huge page of its own.
    start = (start + kHugePage - 1) / kHugePage * kHugePage;
    (void)madvise(mapping, static_cast<size_t>(total), MADV_HUGEPAGE);  // a hint; doctor reports the mode
  } else if (pages == Pages::small) {
    (void)madvise(mapping, static_cast<size_t>(total), MADV_NOHUGEPAGE);
  }
  buffer.data = reinterpret_cast<std::byte*>(start + static_cast<uintptr_t>(stagger));
  std::memset(buffer.data, 0, static_cast<size_t>(bytes));  // prefault: no page fault on a timed path
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
  for (Buffer& buffer : buffers_) {
    if (!buffer.source.on_host) continue;
    const uint64_t own = seed * 0x9E3779B97F4A7C15ull + stream++;
    if (buffer.device)
      fill_on_device(buffer, own);
    else
      buffer.source.on_host(buffer.data, buffer.elements, own);
  }
}

void Arena::fill_on_device(const Buffer& buffer, uint64_t seed) {
  Device& device       = *buffer.device;
  const Source& source = buffer.source;
  if (const auto* uniform = std::get_if<Uniform>(&source.fill)) {
    device.fill_uniform(buffer.data, buffer.elements, source.type, seed, uniform->lo, uniform->hi);
  } else if (const auto* normal = std::get_if<Normal>(&source.fill)) {
    device.fill_normal(buffer.data, buffer.elements, source.type, seed, normal->mean, normal->stddev);
  } else {
    const auto made = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(buffer.bytes));
    source.on_host(made.get(), buffer.elements, seed);
    device.to_device(buffer.data, made.get(), buffer.bytes);
  }
}

void Arena::poison(uint32_t nonce) {
  nonce_                    = nonce & 0xFFFF;
  int64_t scratch_on_device = 0;
  for (const Role role : {Role::workspace, Role::output}) {
    for (Buffer& buffer : buffers_) {
      if (buffer.role != role) continue;
      if (buffer.device)
        buffer.device->set_words(buffer.data, buffer.bytes, kPoison | nonce_);
      else
        store_pattern(buffer.data, buffer.bytes, kPoison | nonce_);
      if (buffer.device && role == Role::workspace) scratch_on_device += buffer.bytes;
    }
    // A device's stores do not bypass its caches, and a variant that leaves the workspace alone would pay for
    // the write-back of its poison. Every variant writes the outputs, so it leaves as many dirty lines as it
    // found.
    if (role == Role::workspace && scratch_on_device >= kStreamFrom) device_->flush_l2();
  }
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
    if (buffer.role == Role::input) hash = buffer.checksum(hash);
  return hash;
}

uint64_t Arena::output_checksum() const {
  uint64_t hash = 0;
  for (const Buffer& buffer : buffers_)
    if (buffer.role == Role::output) hash = buffer.checksum(hash);
  return hash;
}

namespace {
constexpr const char* kRoleNames[] = {"input", "output", "workspace"};
}

std::optional<std::string> Arena::broken_guard() const {
  int ordinal[3] = {};
  for (const Buffer& buffer : buffers_) {
    const int role   = static_cast<int>(buffer.role);
    const int number = ordinal[role]++;
    for (int side = 0; side < 2 && buffer.guarded(); ++side) {
      std::byte seen[kGuardBytes], intact[kGuardBytes];
      buffer.read_band(side, seen);
      guard_pattern(buffer.band(side), intact);
      const auto [at, _] = std::mismatch(seen, seen + kGuardBytes, intact);
      if (at == seen + kGuardBytes) continue;
      const int64_t distance = side == 0 ? kGuardBytes - (at - seen) : at - seen;
      return fmt::format("{} {} was written about {} bytes {} it", kRoleNames[role], number, distance,
                         side == 0 ? "before" : "past the end of");
    }
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
  if (device_) device_->flush_l2();
#if defined(__x86_64__)
  for (const Buffer& buffer : buffers_)
    for (int64_t i = 0; i < buffer.bytes && !buffer.device; i += kLine) _mm_clflush(buffer.data + i);
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
  std::vector<std::byte> from_device;
  for (const Buffer& buffer : buffers_) {
    if (buffer.role != Role::output) continue;
    const std::byte* bytes = buffer.on_host(from_device);
    copy.insert(copy.end(), bytes, bytes + buffer.bytes);
  }
}

Arena::Shared Arena::shared(const void* data) const {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                  [&](const Buffer& buffer) { return buffer.data == data; });
  FATHOM_EXPECT(found != buffers_.end() && (found->allocation || found->file >= 0),
                "another process can open whole buffers of a device or of Place::shared");
  std::byte pattern[kGuardBytes];
  guard_pattern(found->band(0), pattern);
  Shared shared{.bytes = found->bytes};
  std::memcpy(&shared.guard, pattern + kGuardBytes - sizeof shared.guard, sizeof shared.guard);
  if (found->allocation) {
    for (const unsigned char byte : found->device->ipc_handle(found->allocation))
      shared.allocation += fmt::format("{:02x}", byte);
    shared.offset = kGuardBytes;
  } else {
    shared.allocation = fmt::format("/proc/{}/fd/{}", getpid(), found->file);
    shared.offset     = found->data - static_cast<std::byte*>(found->mapping);
  }
  return shared;
}

void Arena::copy_to(Arena& host) const {
  FATHOM_EXPECT(!host.device_ && host.buffers_.size() == buffers_.size(),
                "the copy of an arena needs an arena of the same declarations on the host");
  host.nonce_ = nonce_;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Buffer &from = buffers_[i], &to = host.buffers_[i];
    FATHOM_EXPECT(from.role == to.role && from.bytes == to.bytes,
                  "two problems of one point declare other buffers");
    if (from.role == Role::workspace) continue;
    if (from.device)
      from.device->to_host(to.data, from.data, from.bytes);
    else
      std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes));
  }
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
template std::function<void(void*, int64_t, uint64_t)> Arena::filler<fp8_e4m3>(const Fill&);
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
