// out(b) = fingerprint of block b                 a file in reads of 1 MiB
//
// bytes   4096 a block from the device
// limit   sequential read rate of the disk; the slower of reading and computing
// idea    a reader thread is one chunk ahead: it reads into one buffer while the other is computed on
#include <atomic>

#include "core/thread_pool.h"
#include "fingerprints.h"

namespace fathom::lab::prefetch_reader {

void double_buffered(const Fingerprints& p, Context& context) {
  FATHOM_EXPECT(context.pool.threads() == 2, "one thread reads and one computes");
  uint8_t* buffers = aligned(p.buffer);
  const auto count = static_cast<int>(chunks(p));
  alignas(64) std::atomic<int> read{0};      // chunks; -1: the reader has failed
  alignas(64) std::atomic<int> computed{0};  // chunks
  // Waits until `progress` differs from `old` and returns it. Sleeps meanwhile: the other thread may need
  // this CPU.
  const auto await = [](const std::atomic<int>& progress, int old) {
    progress.wait(old, std::memory_order_acquire);
    return progress.load(std::memory_order_acquire);
  };
  const auto announce = [](std::atomic<int>& progress, int value) {
    progress.store(value, std::memory_order_release);
    progress.notify_one();
  };

  const auto read_ahead = [&] {
    try {
      for (int c = 0, done = 0; c < count; ++c) {
        while (done < c - 1) done = await(computed, done);  // this read overwrites chunk c - 2
        p.file->read(buffers + c % 2 * kChunk, bytes_of_chunk(p, c), c * kChunk);
        announce(read, c + 1);
      }
    } catch (...) {
      announce(read, -1);  // or the other thread would wait for ever
      throw;
    }
  };
  const auto compute = [&] {
    for (int c = 0, there = 0; c < count; ++c) {
      while (there >= 0 && there <= c) there = await(read, there);
      if (there < 0) return;
      fingerprint_chunk(p, c, buffers + c % 2 * kChunk);
      announce(computed, c + 1);
    }
  };
  context.pool.run([&](int worker) { worker == 1 ? read_ahead() : compute(); });
}

}  // namespace fathom::lab::prefetch_reader
