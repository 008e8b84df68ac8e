// The problem: for each 4 KiB block of a file the sum of its 32-bit words. `order` names every block once, in
// the order in which a lookup by key would visit them. The file is read with O_DIRECT, so each read goes to
// the device; the copy of its contents in memory serves the reference only.
#pragma once

#include <memory>

#include "core/rng.h"
#include "experiments/ch05_storage/scratch_file.h"
#include "lab/problem.h"

namespace fathom::lab {

struct BlockSums {
  static constexpr int64_t kBlock     = 4096;              // bytes
  static constexpr int64_t kWords     = kBlock / 4;        // int32 a block
  static constexpr int64_t kWorkspace = int64_t{1} << 20;  // most bytes in flight

  std::shared_ptr<const ScratchFile> file = std::make_shared<ScratchFile>();
  View<const int32_t, 2> contents;  // block, word
  View<const int32_t, 1> order;
  View<int64_t, 1> out;
  View<uint8_t, 1> buffer;  // use aligned(buffer): kWorkspace bytes

  BlockSums(const Point& at, Arena& arena)
      : contents(arena.input<int32_t>(
            {at["blocks"], kWords}, generate<int32_t>([file = file](int32_t* data, int64_t n, uint64_t seed) {
              fill_integers(data, n, seed, INT32_MIN, int64_t{INT32_MAX} + 1);
              file->rewrite(data, n * 4);
            }))),
        order(arena.input<int32_t>({at["blocks"]}, Permutation{})),
        out(arena.output<int64_t>({at["blocks"]})),
        buffer(arena.workspace<uint8_t>({kWorkspace + ScratchFile::kAlignment})) {}

  Cost cost() const { return {.disk_read = contents.bytes()}; }
  int64_t expected(int64_t block) const {
    int64_t sum = 0;
    for (int64_t w = 0; w < kWords; ++w) sum += contents(block, w);
    return sum;
  }
};

inline int64_t sum_of_block(const uint8_t* block) {
  const auto* words = reinterpret_cast<const int32_t*>(block);
  int64_t sum       = 0;
  for (int64_t w = 0; w < BlockSums::kWords; ++w) sum += words[w];
  return sum;
}

}  // namespace fathom::lab
