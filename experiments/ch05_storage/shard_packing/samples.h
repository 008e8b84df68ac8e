// The problem: the sum of the 32-bit words of each sample of a data set. A sample has 16 KiB. The samples
// exist twice with the same values: each in a file of its own, and all in one shard, in order. Both are read
// with O_DIRECT, so that every read goes to the device.
#pragma once

#include <memory>
#include <string>

#include "core/rng.h"
#include "experiments/ch05_storage/scratch_file.h"
#include "experiments/ch05_storage/sum_of_words.h"
#include "lab/problem.h"

namespace fathom::lab::shard_packing {

constexpr int64_t kSample = 16 << 10;          // bytes
constexpr int64_t kWords  = kSample / 4;       // of a sample
constexpr int64_t kRead   = int64_t{1} << 20;  // bytes of the shard a read
constexpr int64_t kPacked = kRead / kSample;   // samples in them

// A folder with a file for each sample, named by its number. It goes with its files when the problem does.
class SampleFiles {
 public:
  explicit SampleFiles(const ScratchFile& beside);  // in the folder of that file
  ~SampleFiles();
  SampleFiles(const SampleFiles&)            = delete;
  SampleFiles& operator=(const SampleFiles&) = delete;

  // Replaces the contents, kWords a sample. Afterwards they are on the device and not in the page cache.
  void rewrite(const int32_t* words, int64_t samples) const;
  // Opens, reads and closes the file of sample s; `to` as ScratchFile::read wants it.
  void read(void* to, int64_t s) const;

 private:
  int folder_ = -1;
  std::string path_;
};

struct Samples {
  std::shared_ptr<const ScratchFile> shard = std::make_shared<ScratchFile>();
  std::shared_ptr<const SampleFiles> files = std::make_shared<SampleFiles>(*shard);
  View<const int32_t, 2> contents;  // sample, word: for the reference only
  View<int64_t, 1> out;             // of each sample
  View<uint8_t, 1> buffer;          // use aligned(buffer): kRead bytes

  Samples(const Point& at, Arena& arena)
      : contents(arena.input<int32_t>(
            {at["samples"], kWords},
            generate<int32_t>([shard = shard, files = files](int32_t* data, int64_t n, uint64_t seed) {
              fill_integers(data, n, seed, INT32_MIN, int64_t{INT32_MAX} + 1);
              shard->rewrite(data, n * 4);
              files->rewrite(data, n / kWords);
            }))),
        out(arena.output<int64_t>({at["samples"]})),
        buffer(arena.workspace<uint8_t>({kRead + ScratchFile::kAlignment})) {}

  Cost cost() const { return {.disk_read = contents.bytes()}; }
  void metrics(CallMetrics& metrics) const {
    metrics["samples"] = {static_cast<double>(contents.extent(0)), "higher"};
  }
  int64_t expected(int64_t s) const {
    int64_t sum = 0;
    for (int64_t w = 0; w < kWords; ++w) sum += contents(s, w);
    return sum;
  }
};

void file_per_sample(const Samples& p, Context& context);
void shard_by_sample(const Samples& p, Context& context);
void shard_by_mib(const Samples& p, Context& context);

}  // namespace fathom::lab::shard_packing
