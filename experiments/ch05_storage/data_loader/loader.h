// The problem: feed a training step with samples from a shard, for some epochs. A sample is a row of 64 KiB
// of 8-bit pixels, stored as PNG does it: each pixel as its difference to the left neighbour, and those
// compressed (here by zstd). To load it is to read it with O_DIRECT, to decompress it and to add up the
// differences. The step that consumes it is a serial chain over the pixels, on a CPU too; it takes the
// samples in the same order in each epoch.
#pragma once

#include <zstd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "core/thread_pool.h"
#include "experiments/ch05_storage/scratch_file.h"
#include "lab/problem.h"

namespace fathom::lab::data_loader {

constexpr int64_t kPixels = 64 << 10;  // bytes of a sample
constexpr int64_t kStored = 68 << 10;  // most bytes of a stored sample; zstd may add a little
constexpr int kPasses     = 8;         // of a step over its pixels
constexpr uint64_t kOdd   = 0x9E3779B97F4A7C15;

struct Samples {
  std::shared_ptr<const ScratchFile> shard = std::make_shared<ScratchFile>();
  View<const uint8_t, 2> pixels;  // sample, pixel: for the reference only
  View<const int64_t, 2> index;   // of each sample: where it begins in the shard, its bytes
  View<const int32_t, 1> order;   // of an epoch
  View<int64_t, 2> out;           // what the step makes of the k-th sample of an epoch: epoch, k
  View<int64_t, 1> spent;         // nanoseconds: the consumer's wait for samples, the whole call

  Samples(const Point& at, Arena& arena);

  Cost cost() const;
  void metrics(CallMetrics& metrics) const;
  int64_t expected(int64_t epoch, int64_t k) const;
};

// Memory of a sample on its way.
struct alignas(ScratchFile::kAlignment) Slot {
  uint8_t stored[kStored];
  uint8_t pixels[kPixels];
};

// State of a decoder, kept between samples; one for each thread.
using Decoder = std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)>;
inline Decoder make_decoder() { return {ZSTD_createDCtx(), ZSTD_freeDCtx}; }

// Loads sample s into slot.pixels.
void load(const Samples& p, int64_t s, ZSTD_DCtx* decoder, Slot& slot);
// The consumer's work on a sample.
int64_t step(const uint8_t* pixels);

// What workers keep between samples: a decoder each, and slots that all share, `prefetch` for each worker and
// one for the sample that the consumer works on.
struct Loader {
  Loader(int workers, int prefetch);
  std::vector<Decoder> decoders;
  std::vector<Slot> slots;
};

// One epoch: worker 0 of the pool consumes, the others load. The samples arrive in order, and at most as many
// are loaded ahead as there are slots. Returns how many nanoseconds the consumer waited.
int64_t run_epoch(const Samples& p, int64_t epoch, Loader& loader, ThreadPool& pool);
// All epochs by the same threads, decoders and slots.
void run_epochs(const Samples& p, Loader& loader, ThreadPool& pool);

int64_t nanoseconds_now();

Launch<Samples> prepare_in_line(const Samples& p, Context& context);
void workers_per_epoch(const Samples& p, Context& context);
Launch<Samples> prepare_persistent_workers(const Samples& p, Context& context);
Launch<Samples> prepare_prefetch_4(const Samples& p, Context& context);

}  // namespace fathom::lab::data_loader
