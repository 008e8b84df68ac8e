// Arena: the memory of one experiment's problem, owned by the harness. Inputs, outputs and workspace each lie
// between two guard bands; inputs are refilled from a seed, outputs are poisoned with a NaN pattern before a
// call is verified.
//
// On a Device the buffers lie there, and a second arena on the host, filled by the same constructor of the
// problem, takes copies of them (copy_to) for references and checks to read.
//
// Placement on the host: anonymous mappings, huge pages requested by default (Pages::huge; a hint that the
// kernel may refuse), payloads aligned to 64 bytes and staggered by cache lines so that two buffers do not
// alias modulo 4 KiB.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/expect.h"
#include "core/view.h"
#include "cuda/device.h"

namespace fathom {

// How an input is filled; element i depends on (seed, i) only.
struct Uniform {
  double lo = -1, hi = 1;  // [lo, hi); integers for integer types
};
struct Normal {
  double mean = 0, stddev = 1;
};
struct Permutation {};  // of 0..n-1, integer types only
// Anything else: the experiment makes the bytes itself, also from inputs declared before this one.
struct Generate {
  std::function<void(void* data, int64_t elements, uint64_t seed)> fill;
};
template <class T, class F>
Generate generate(F fill) {  // fill(T* data, int64_t elements, uint64_t seed)
  return {[fill](void* data, int64_t n, uint64_t seed) { fill(static_cast<T*>(data), n, seed); }};
}
using Fill = std::variant<Uniform, Normal, Permutation, Generate>;

enum class Pages { small, huge };
// Where a buffer of a GPU's arena lies. In an arena on the host all are pageable host memory.
enum class Place {
  device,
  host,    // pageable
  pinned,  // page-locked: kernels can read it across the link
  shared,  // pageable, in a file of memory that other processes can open
};
enum class Role { input, output, workspace };

class Arena {
 public:
  // On the host, or on a device, which must outlive it.
  explicit Arena(Device* device = nullptr);
  // On the host, all of it page-locked for copies from and to that device.
  static Arena pinned(Device& device);
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;

  template <class T, int Rank>
  View<const T, Rank> input(const int64_t (&extents)[Rank], Fill fill, Pages pages = Pages::huge,
                            Place place = Place::device) {
    Source source{.on_host = filler<T>(fill), .fill = fill, .type = dtype_of<T>};
    void* data = add(Role::input, count(extents), sizeof(T), pages, place, std::move(source));
    return View<const T, Rank>(static_cast<const T*>(data), extents);
  }
  template <class T, int Rank>
  View<T, Rank> output(const int64_t (&extents)[Rank], Pages pages = Pages::huge,
                       Place place = Place::device) {
    return View<T, Rank>(static_cast<T*>(add(Role::output, count(extents), sizeof(T), pages, place, {})),
                         extents);
  }
  // Scratch that variants may use as they like; poisoned with the outputs.
  template <class T, int Rank>
  View<T, Rank> workspace(const int64_t (&extents)[Rank], Pages pages = Pages::huge,
                          Place place = Place::device) {
    return View<T, Rank>(static_cast<T*>(add(Role::workspace, count(extents), sizeof(T), pages, place, {})),
                         extents);
  }
  // Registers memory that somebody else owns (a mapped file, a huge-page pool), so that poison, checksums and
  // the overlap check cover it. It has no guard bands, and an adopted input is not refilled.
  template <class T, int Rank>
  void adopt(View<T, Rank> view, Role role) {
    FATHOM_EXPECT(view.contiguous(), "an adopted view must be contiguous");
    adopt_bytes(const_cast<std::remove_const_t<T>*>(view.data()), view.bytes(), role);
  }

  // Fills every input from `seed`, in order of declaration; inputs differ from each other under one seed.
  void fill(uint64_t seed);
  // Overwrites outputs and workspace with a pattern that is a NaN in every float type and differs with
  // `nonce`.
  void poison(uint32_t nonce);
  // Whether the element is still as the last poison() left it.
  bool is_poison(const void* element, int64_t element_bytes) const;
  uint64_t input_checksum() const;
  uint64_t output_checksum() const;
  // Where something was written outside its buffer, e.g. "before output 0"; empty when the bands are whole.
  std::optional<std::string> broken_guard() const;
  void repair_guards();
  // Two registered ranges that share bytes where one is an output, e.g. "output 0 overlaps input 1".
  std::optional<std::string> overlap() const;
  // Every buffer, for samples declared cold; no effect where there is no such instruction.
  void flush_from_caches() const;

  int64_t input_bytes() const;
  int64_t output_bytes() const;  // without workspace
  void copy_outputs_to(std::vector<std::byte>& copy) const;
  // Every input and output, and the poison's nonce, into an arena of the same declarations on the host.
  void copy_to(Arena& host) const;
  // Where another process finds the buffer that begins at `data`: one of a device, or in Place::shared.
  struct Shared {
    std::string allocation;  // of a device: the hexadecimal digits of its handle; of the host: a file's path
    int64_t offset = 0, bytes = 0;
    uint64_t guard = 0;  // the 8 bytes before the buffer, to recognise it by
  };
  Shared shared(const void* data) const;
  // The offset of the byte at `output` in the copy that copy_outputs_to() makes.
  int64_t offset_in_copy(const void* output) const;

  // One generator for each element type is in arena.cpp; a type without one is a link error.
  template <class T>
  static std::function<void(void*, int64_t, uint64_t)> filler(const Fill& fill);

 private:
  struct Buffer;
  // How an input is refilled; all empty for other roles.
  struct Source {
    std::function<void(void*, int64_t, uint64_t)> on_host = nullptr;
    Fill fill                                             = Uniform{};
    DType type                                            = DType::fp32;
  };

  template <int Rank>
  static int64_t count(const int64_t (&extents)[Rank]) {
    int64_t n = 1;
    for (const int64_t extent : extents) {
      FATHOM_EXPECT(extent >= 0, "an extent is negative");
      if (__builtin_mul_overflow(n, extent, &n)) n = INT64_MAX;  // add() has no memory for it
    }
    return n;
  }
  void* add(Role role, int64_t elements, int64_t element_bytes, Pages pages, Place place, Source source);
  static void map_on_host(Buffer& buffer, Pages pages, Place place, int64_t ordinal);
  void adopt_bytes(void* data, int64_t bytes, Role role);
  void fill_on_device(const Buffer& buffer, uint64_t seed);

  Device* device_   = nullptr;
  Device* pins_for_ = nullptr;
  std::vector<Buffer> buffers_;
  uint32_t nonce_ = 0;
};

}  // namespace fathom
