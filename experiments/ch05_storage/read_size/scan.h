// The problem: for each 4 KiB block of a file the sum of its 32-bit words. The file is read from its first
// byte to its last, `read` bytes at a time.
#pragma once

#include <algorithm>
#include <memory>

#include "core/rng.h"
#include "experiments/ch05_storage/buffered_file.h"
#include "lab/problem.h"

namespace fathom::lab::read_size {

constexpr int64_t kBlock = 4096;        // bytes
constexpr int64_t kWords = kBlock / 4;  // of a block

struct Scan {
  int64_t read;  // bytes, whole blocks
  std::shared_ptr<const ScratchFile> file      = std::make_shared<ScratchFile>();
  std::shared_ptr<const BufferedFile> buffered = std::make_shared<BufferedFile>(*file);
  View<const int32_t, 2> contents;  // block, word: of the file, for the reference only
  View<int64_t, 1> out;             // of each block
  View<uint8_t, 1> buffer;          // use aligned(buffer): one read

  Scan(const Point& at, Arena& arena)
      : read(at["read"]),
        contents(arena.input<int32_t>(
            {at["blocks"], kWords}, generate<int32_t>([file = file](int32_t* data, int64_t n, uint64_t seed) {
              fill_integers(data, n, seed, INT32_MIN, int64_t{INT32_MAX} + 1);
              file->rewrite(data, n * 4);
            }))),
        out(arena.output<int64_t>({at["blocks"]})),
        buffer(arena.workspace<uint8_t>({read + ScratchFile::kAlignment})) {}

  Cost cost() const { return {.disk_read = contents.bytes()}; }
  int64_t expected(int64_t block) const {
    int64_t sum = 0;
    for (int64_t w = 0; w < kWords; ++w) sum += contents(block, w);
    return sum;
  }
};

// Sums of the `bytes` of whole blocks in `data`, which begin at byte `offset` of the file.
inline void sum_blocks(const Scan& p, const uint8_t* data, int64_t bytes, int64_t offset) {
  const auto* words = reinterpret_cast<const int32_t*>(data);
  for (int64_t b = 0; b < bytes / kBlock; ++b) {
    int64_t sum = 0;
    for (int64_t w = 0; w < kWords; ++w) sum += words[b * kWords + w];
    p.out(offset / kBlock + b) = sum;
  }
}

void buffered(const Scan& p, Context& context);
void direct(const Scan& p, Context& context);

}  // namespace fathom::lab::read_size
