#include "backward.h"

#include <cuda_runtime.h>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/cublas.h"
#include "cuda/event.h"

namespace fathom::lab::gradient_buckets_gpu {
namespace {

// A rank is a thread, and all its variants have one communicator: to make one takes most of a second.
std::shared_ptr<const NcclCommunicator> communicator_of(const Rank& me) {
  thread_local std::shared_ptr<const NcclCommunicator> made;
  if (made) return made;
  if (!nccl()) throw Unavailable("needs_library", why_no_nccl());
  auto* id = reinterpret_cast<NcclId*>(me.shared().data());
  if (me.rank() == 0) *id = make_nccl_id();  // which all join by
  me.barrier();
  return made = std::make_shared<const NcclCommunicator>(*id, me.rank(), me.size());
}

struct SideStream {
  cudaStream_t stream = nullptr;
  Event ready{Event::Timing::off}, summed{Event::Timing::off};

  SideStream() { FATHOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~SideStream() { (void)cudaStreamDestroy(stream); }
  SideStream(const SideStream&)            = delete;
  SideStream& operator=(const SideStream&) = delete;
};

}  // namespace

Backward::Backward(const Gradients& p, const Rank& me) : communicator_(communicator_of(me)) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.out.size() == 0) return;
  matmul_.emplace(DType::bf16, DType::fp32, false, p.out.extent(1), p.out.extent(2), p.x.extent(2));
  FATHOM_EXPECT(static_cast<int64_t>(matmul_->workspace_bytes()) <= p.scratch.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
}

void Backward::layer(const Gradients& p, int64_t l, StreamRef stream) const {
  matmul_->run(&p.dy(l, 0, 0), &p.x(l, 0, 0), &p.out(l, 0, 0), p.scratch.data(), stream);
}

void Backward::sum(const Gradients& p, int64_t begin, int64_t end, StreamRef stream) const {
  if (begin == end) return;
  float* const gradients = &p.out(begin, 0, 0);
  communicator_->all_reduce(gradients, gradients, (end - begin) * p.layer_size(), stream);
}

void Backward::sum_nonces(const Gradients& p, StreamRef stream) const {
  communicator_->all_reduce(p.nonce.data(), p.nonces.data(), p.nonce.size(), stream);
}

Call overlapped(const Gradients& p, Context& context, int64_t least_bytes) {
  const auto backward = std::make_shared<Backward>(p, *context.rank);
  const auto side     = std::make_shared<SideStream>();
  return [=](const Gradients& q, Context& c) {
    const int64_t layer_bytes = q.layer_size() * static_cast<int64_t>(sizeof(float));
    // What the stream did before comes first: nonces, and the sums of the call before.
    side->ready.record(c.stream);
    side->ready.wait_on(side->stream);
    int64_t end = q.layers();  // of the layers that are not being summed yet
    for (int64_t l = q.layers() - 1; l >= 0; --l) {
      backward->layer(q, l, c.stream);
      if ((end - l) * layer_bytes < least_bytes && l > 0) continue;
      side->ready.record(c.stream);
      side->ready.wait_on(side->stream);
      backward->sum(q, l, end, side->stream);
      end = l;
    }
    backward->sum_nonces(q, side->stream);
    side->summed.record(side->stream);
    side->summed.wait_on(c.stream);
  };
}

}  // namespace fathom::lab::gradient_buckets_gpu
