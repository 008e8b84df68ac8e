// The problem: for each 4 KiB block of a file the sum of its 32-bit words. The file is read through the page
// cache, 64 KiB at a time, in order; each call first drops it from the cache. The variants differ in what
// they tell the kernel before they read.
#pragma once

#include <algorithm>
#include <memory>

#include "core/rng.h"
#include "experiments/ch05_storage/buffered_file.h"
#include "lab/problem.h"

namespace fathom::lab::read_ahead {

constexpr int64_t kBlock = 4096;        // bytes
constexpr int64_t kWords = kBlock / 4;  // of a block
constexpr int64_t kRead  = 64 << 10;    // bytes a read

struct Scan {
  std::shared_ptr<const ScratchFile> file      = std::make_shared<ScratchFile>();
  std::shared_ptr<const BufferedFile> buffered = std::make_shared<BufferedFile>(*file);
  View<const int32_t, 2> contents;  // block, word: of the file, for the reference only
  View<int64_t, 1> out;             // of each block
  View<uint8_t, 1> buffer;          // one read

  Scan(const Point& at, Arena& arena)
      : contents(arena.input<int32_t>(
            {at["blocks"], kWords}, generate<int32_t>([file = file](int32_t* data, int64_t n, uint64_t seed) {
              fill_integers(data, n, seed, INT32_MIN, int64_t{INT32_MAX} + 1);
              file->rewrite(data, n * 4);
            }))),
        out(arena.output<int64_t>({at["blocks"]})),
        buffer(arena.workspace<uint8_t>({kRead})) {}

  Cost cost() const { return {.disk_read = contents.bytes()}; }
  int64_t expected(int64_t block) const {
    int64_t sum = 0;
    for (int64_t w = 0; w < kWords; ++w) sum += contents(block, w);
    return sum;
  }
};

// out from the file, which is read in order.
inline void read_in_order(const Scan& p) {
  const int64_t end = p.contents.bytes();
  const auto* words = reinterpret_cast<const int32_t*>(p.buffer.data());
  for (int64_t at = 0; at < end; at += kRead) {
    const int64_t bytes = std::min(kRead, end - at);
    p.buffered->read(p.buffer.data(), bytes, at);
    for (int64_t b = 0; b < bytes / kBlock; ++b) {
      int64_t sum = 0;
      for (int64_t w = 0; w < kWords; ++w) sum += words[b * kWords + w];
      p.out(at / kBlock + b) = sum;
    }
  }
}

void kernel_default(const Scan& p, Context& context);
void off(const Scan& p, Context& context);
void sequential(const Scan& p, Context& context);
void will_need(const Scan& p, Context& context);

}  // namespace fathom::lab::read_ahead
