// The problem: a fingerprint of each 4 KiB block of a file, as a deduplicating store computes. A fingerprint
// is a serial chain (multiply, shift, exclusive or for each word), so that computing takes about as long as
// reading. O_DIRECT: a read waits for the device and leaves the CPU free meanwhile.
#pragma once

#include <memory>

#include "core/rng.h"
#include "experiments/ch05_storage/scratch_file.h"
#include "lab/problem.h"

namespace fathom::lab::prefetch_reader {

constexpr int64_t kBlock = 4096;                // bytes
constexpr int64_t kWords = kBlock / 4;          // of a block
constexpr int64_t kChunk = int64_t{1} << 20;    // bytes a read
constexpr uint64_t kOdd  = 0x9E3779B97F4A7C15;  // any odd multiplier with well-mixed bits

struct Fingerprints {
  std::shared_ptr<const ScratchFile> file = std::make_shared<ScratchFile>();
  View<const int32_t, 2> contents;  // block, word: of the file, for the reference only
  View<int64_t, 1> out;             // of each block
  View<uint8_t, 1> buffer;          // use aligned(buffer): two chunks

  Fingerprints(const Point& at, Arena& arena)
      : contents(arena.input<int32_t>(
            {at["blocks"], kWords}, generate<int32_t>([file = file](int32_t* data, int64_t n, uint64_t seed) {
              fill_integers(data, n, seed, INT32_MIN, int64_t{INT32_MAX} + 1);
              file->rewrite(data, n * 4);
            }))),
        out(arena.output<int64_t>({at["blocks"]})),
        buffer(arena.workspace<uint8_t>({2 * kChunk + ScratchFile::kAlignment})) {}

  Cost cost() const { return {.disk_read = contents.bytes()}; }
  int64_t expected(int64_t block) const {
    uint64_t hash = 0;
    for (int64_t w = 0; w < kWords; ++w) {
      hash = (hash ^ static_cast<uint32_t>(contents(block, w))) * kOdd;
      hash = hash ^ (hash >> 29);
    }
    return static_cast<int64_t>(hash);
  }
};

// Bytes of chunk c of the file.
inline int64_t bytes_of_chunk(const Fingerprints& p, int64_t c) {
  const int64_t left = p.contents.bytes() - c * kChunk;
  return left < kChunk ? left : kChunk;
}

// The fingerprints of chunk c, whose bytes are in `data`.
inline void fingerprint_chunk(const Fingerprints& p, int64_t c, const uint8_t* data) {
  const auto* words   = reinterpret_cast<const uint32_t*>(data);
  const int64_t first = c * (kChunk / kBlock), blocks = bytes_of_chunk(p, c) / kBlock;
  for (int64_t b = 0; b < blocks; ++b) {
    uint64_t hash = 0;
    for (int64_t w = 0; w < kWords; ++w) {
      hash = (hash ^ words[b * kWords + w]) * kOdd;
      hash ^= hash >> 29;
    }
    p.out(first + b) = static_cast<int64_t>(hash);
  }
}

inline int64_t chunks(const Fingerprints& p) { return (p.contents.bytes() + kChunk - 1) / kChunk; }

void read_then_compute(const Fingerprints& p, Context& context);
void double_buffered(const Fingerprints& p, Context& context);

}  // namespace fathom::lab::prefetch_reader
