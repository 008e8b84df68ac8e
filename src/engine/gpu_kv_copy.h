// Copies blocks of the KV cache between GPUs and page-locked memory of the host. Reads have a stream of their
// own on each GPU and run beside the step in flight. Writes are enqueued behind it, and the host does not
// wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cuda/device.h"
#include "cuda/event.h"
#include "engine/model_runner.h"
#include "model/config.h"
#include "model/gpu_kv_cache.h"

namespace fathom::engine {

class GpuKvCopy {
 public:
  // What a rank has. Both must outlive it.
  struct Part {
    Device* device              = nullptr;
    const model::GpuKvCache* kv = nullptr;
  };
  // `block_bytes`: of the largest block.
  GpuKvCopy(std::span<const Part> parts, const std::vector<model::Attention>& layers, int64_t block_bytes);
  ~GpuKvCopy();  // waits for the copies
  GpuKvCopy(const GpuKvCopy&)            = delete;
  GpuKvCopy& operator=(const GpuKvCopy&) = delete;

  // As ModelRunner's. The bytes that read() hands out are in page-locked memory while that lasts.
  void prepare_reads();
  void read(std::span<const KvPage> pages, const ModelRunner::TakeKvBlock& take);
  void write(std::span<const KvPage> pages);

 private:
  struct Rank {
    explicit Rank(const Part& part);
    Part part;
    StreamRef stream = nullptr;  // for reads
    std::array<Event, 2> read;   // of the latest two groups of blocks
    Event written;
  };
  struct Pool;
  std::shared_ptr<std::byte> allocate();
  int64_t copy(const KvPage& page, std::byte* to_host, const std::byte* from_host) const;

  const std::vector<model::Attention> layers_;
  const int64_t block_bytes_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::shared_ptr<Pool> pool_;  // blocks that were handed out keep it
};

}  // namespace fathom::engine
