#include "loader.h"

#include <chrono>
#include <cstring>

namespace fathom::lab::data_loader {
namespace {

// The samples of an epoch on their way from the workers to the consumer. Sample k of the order travels in
// slot k % slots.
class Queue {
 public:
  Queue(int64_t samples, int64_t slots) : samples_(samples), loaded_(static_cast<size_t>(slots), -1) {}

  // The next k to load, once its slot is free; -1: there is none.
  int64_t take() {
    std::unique_lock lock(mutex_);
    if (next_ == samples_) return -1;
    const int64_t k = next_++;
    freed_.wait(lock, [&] { return failed_ || k < consumed_ + slots(); });
    return failed_ ? -1 : k;
  }
  void deliver(int64_t k) {
    const std::lock_guard lock(mutex_);
    loaded_[static_cast<size_t>(k % slots())] = k;
    arrived_.notify_one();
  }
  // Waits for sample k; false: a worker has failed.
  bool wait_for(int64_t k) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return failed_ || loaded_[static_cast<size_t>(k % slots())] == k; });
    return !failed_;
  }
  void release(int64_t k) {
    const std::lock_guard lock(mutex_);
    consumed_ = k + 1;
    freed_.notify_all();  // who waits for this slot among those that wait is not known
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    arrived_.notify_all();
    freed_.notify_all();
  }

 private:
  int64_t slots() const { return static_cast<int64_t>(loaded_.size()); }

  std::mutex mutex_;
  std::condition_variable freed_, arrived_;
  const int64_t samples_;
  int64_t next_ = 0, consumed_ = 0;
  std::vector<int64_t> loaded_;  // which k lies in each slot
  bool failed_ = false;
};

}  // namespace

int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void load(const Samples& p, int64_t s, ZSTD_DCtx* decoder, Slot& slot) {
  constexpr int64_t kA = ScratchFile::kAlignment;
  const int64_t bytes  = p.index(s, 1);
  p.shard->read(slot.stored, (bytes + kA - 1) / kA * kA, p.index(s, 0));
  const size_t pixels =
      ZSTD_decompressDCtx(decoder, slot.pixels, kPixels, slot.stored, static_cast<size_t>(bytes));
  FATHOM_EXPECT(pixels == kPixels, "a sample does not decode to its length");
  uint8_t left = 0;
  for (uint8_t& pixel : slot.pixels) pixel = left = static_cast<uint8_t>(left + pixel);
}

int64_t step(const uint8_t* pixels) {
  uint64_t state = 0;
  for (int pass = 0; pass < kPasses; ++pass)
    for (int64_t i = 0; i < kPixels; i += 4) {
      uint32_t word;
      std::memcpy(&word, pixels + i, 4);
      state = (state ^ word) * kOdd;
      state ^= state >> 29;
    }
  return static_cast<int64_t>(state);
}

Loader::Loader(int workers, int prefetch) : slots(static_cast<size_t>(workers * prefetch + 1)) {
  for (int worker = 0; worker < workers; ++worker) decoders.push_back(make_decoder());
}

int64_t run_epoch(const Samples& p, int64_t epoch, Loader& loader, ThreadPool& pool) {
  const int64_t samples = p.order.extent(0), slots = static_cast<int64_t>(loader.slots.size());
  Queue queue(samples, slots);
  const auto slot_of = [&](int64_t k) -> Slot& { return loader.slots[static_cast<size_t>(k % slots)]; };

  const auto load_samples = [&](ZSTD_DCtx* decoder) {
    try {
      for (int64_t k; (k = queue.take()) >= 0; queue.deliver(k)) load(p, p.order(k), decoder, slot_of(k));
    } catch (...) {
      queue.fail();  // or the consumer would wait for ever
      throw;
    }
  };
  int64_t waited     = 0;
  const auto consume = [&] {
    for (int64_t k = 0; k < samples; ++k) {
      const int64_t begin = nanoseconds_now();
      if (!queue.wait_for(k)) return;
      waited += nanoseconds_now() - begin;
      p.out(epoch, k) = step(slot_of(k).pixels);
      queue.release(k);
    }
  };
  pool.run([&](int worker) {
    worker == 0 ? consume() : load_samples(loader.decoders[static_cast<size_t>(worker - 1)].get());
  });
  return waited;
}

void run_epochs(const Samples& p, Loader& loader, ThreadPool& pool) {
  const int64_t begin = nanoseconds_now();
  p.spent(0)          = 0;
  for (int64_t epoch = 0; epoch < p.out.extent(0); ++epoch) p.spent(0) += run_epoch(p, epoch, loader, pool);
  p.spent(1) = nanoseconds_now() - begin;
}

}  // namespace fathom::lab::data_loader
