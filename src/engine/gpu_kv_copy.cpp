#include "engine/gpu_kv_copy.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "cuda/check.h"
#include "cuda/device_buffer.h"
#include "cuda/device_guard.h"

namespace fathom::engine {
namespace {

// Page-locked blocks: two prompts of 4,096 tokens that one step has computed, and a third that is still read.
constexpr int64_t kPinnedBlocks = 192;
// Blocks that are handed out together, while those after them are copied.
constexpr size_t kGroup = 8;

using Owners = std::vector<std::shared_ptr<const void>>;

}  // namespace

struct GpuKvCopy::Pool {
  PinnedBuffer<std::byte> memory;
  std::mutex mutex;
  std::vector<std::byte*> free;  // under mutex
};

// Made on its GPU.
GpuKvCopy::Rank::Rank(const Part& p)
    : part(p), read{Event(Event::Timing::off), Event(Event::Timing::off)}, written(Event::Timing::off) {
  FATHOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

GpuKvCopy::GpuKvCopy(std::span<const Part> parts, const std::vector<model::Attention>& layers,
                     int64_t block_bytes)
    : layers_(layers), block_bytes_(block_bytes) {
  for (const Part& part : parts) {
    const DeviceGuard current(part.device->id());
    ranks_.push_back(std::make_unique<Rank>(part));
  }
}

GpuKvCopy::~GpuKvCopy() {
  for (const auto& rank : ranks_) {
    (void)cudaStreamSynchronize(rank->part.device->stream());
    (void)cudaStreamSynchronize(rank->stream);
    (void)cudaStreamDestroy(rank->stream);
  }
}

void GpuKvCopy::prepare_reads() {
  if (pool_ || block_bytes_ == 0) return;
  pool_         = std::make_shared<Pool>();
  pool_->memory = PinnedBuffer<std::byte>(*ranks_[0]->part.device, kPinnedBlocks * block_bytes_);
  for (int64_t block = kPinnedBlocks; block-- > 0;)
    pool_->free.push_back(pool_->memory.data() + block * block_bytes_);
}

// Memory for a block: page-locked, or, while others hold all of that, not.
std::shared_ptr<std::byte> GpuKvCopy::allocate() {
  std::byte* pinned = nullptr;
  {
    const std::lock_guard lock(pool_->mutex);
    if (!pool_->free.empty()) {
      pinned = pool_->free.back();
      pool_->free.pop_back();
    }
  }
  if (!pinned) return {new std::byte[static_cast<size_t>(block_bytes_)], std::default_delete<std::byte[]>()};
  return {pinned, [pool = pool_](std::byte* block) {
            const std::lock_guard lock(pool->mutex);
            pool->free.push_back(block);
          }};
}

// Enqueues the copies of one block, in one of the two directions: reads on the streams for reads, writes
// behind the steps. A page has its heads one after another, so the ranks' parts of a layer are the page of
// all heads. Returns the block's bytes.
int64_t GpuKvCopy::copy(const KvPage& page, std::byte* to_host, const std::byte* from_host) const {
  size_t done = 0;
  for (size_t l = 0; l < layers_.size(); ++l) {
    if ((layers_[l] == model::Attention::sliding) != (page.kind == kWindow)) continue;
    for (const auto& rank : ranks_) {
      const std::span<uint8_t> part = rank->part.kv->page(l, page.page);
      if (to_host)
        FATHOM_CUDA(
            cudaMemcpyAsync(to_host + done, part.data(), part.size(), cudaMemcpyDeviceToHost, rank->stream));
      else
        FATHOM_CUDA(cudaMemcpyAsync(part.data(), from_host + done, part.size(), cudaMemcpyHostToDevice,
                                    rank->part.device->stream()));
      done += part.size();
    }
  }
  return static_cast<int64_t>(done);
}

// The pages are not waited for: rank 0's step has ended, and its last sum needed the other ranks' layers.
void GpuKvCopy::read(std::span<const KvPage> pages, const ModelRunner::TakeKvBlock& take) {
  if (pages.empty()) return;
  ranks_[0]->part.device->make_current();
  prepare_reads();
  std::vector<std::pair<std::shared_ptr<std::byte>, int64_t>> blocks;
  for (size_t begin = 0; begin < pages.size() + kGroup; begin += kGroup) {
    const size_t group = begin / kGroup;
    for (size_t i = begin; i < std::min(begin + kGroup, pages.size()); ++i) {
      auto block          = allocate();
      const int64_t bytes = copy(pages[i], block.get(), nullptr);
      blocks.emplace_back(std::move(block), bytes);
    }
    if (begin < pages.size())
      for (const auto& rank : ranks_) rank->read[group % 2].record(rank->stream);
    if (group == 0) continue;
    for (const auto& rank : ranks_) rank->read[(group - 1) % 2].synchronize();
    for (size_t i = begin - kGroup; i < std::min(begin, pages.size()); ++i) {
      auto& [block, bytes]  = blocks[i];
      std::byte* const data = block.get();
      take(i, {data, static_cast<size_t>(bytes)}, std::move(block));
    }
  }
}

// A page may have been freed by a sequence that an overlapped step still writes for, so the copies stay
// behind that step. From memory that is not page-locked CUDA copies through its own, and the host waits.
void GpuKvCopy::write(std::span<const KvPage> pages) {
  if (pages.empty()) return;
  ranks_[0]->part.device->make_current();  // no step may have run yet
  Owners owners;
  bool owned = true;
  for (const KvPage& page : pages) {
    copy(page, nullptr, page.bytes.data());
    owned = owned && page.owner;
    owners.push_back(page.owner);
  }
  if (!owned) {
    for (const auto& rank : ranks_) FATHOM_CUDA(cudaStreamSynchronize(rank->part.device->stream()));
    return;
  }
  const auto kept = std::make_shared<const Owners>(std::move(owners));
  for (const auto& rank : ranks_) {
    // On the other stream, so that no step waits for the host's function.
    const DeviceGuard current(rank->part.device->id());
    rank->written.record(rank->part.device->stream());
    rank->written.wait_on(rank->stream);
    FATHOM_CUDA(cudaLaunchHostFunc(
        rank->stream, [](void* done) { delete static_cast<std::shared_ptr<const Owners>*>(done); },
        new std::shared_ptr<const Owners>(kept)));
  }
}

}  // namespace fathom::engine
