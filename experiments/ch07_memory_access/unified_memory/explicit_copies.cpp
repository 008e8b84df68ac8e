// y(p, i) = x(p, i) + c(p, i) * sum over j of x(p, j)        pages of 4 KiB; host, GPU and host take turns
//
// link    x to the GPU, y back
// idea    baseline: every array twice, on the GPU and page-locked on the host. x is copied before the
//         pass and y after it, each in one piece at the link's rate; c was copied once and for all
#include "host_turn.h"

namespace fathom::lab::unified_memory {
namespace {

struct Free {
  void operator()(float* memory) const { (void)cudaFree(memory); }
};
struct FreeOnHost {
  void operator()(float* memory) const { (void)cudaFreeHost(memory); }
};

struct Arrays {
  std::unique_ptr<float, Free> x, c, y;
  std::unique_ptr<float, FreeOnHost> x_on_host, c_on_host, y_on_host;

  explicit Arrays(int64_t pages) {
    const size_t bytes = array_bytes(pages);
    if (bytes == 0) return;
    for (auto* array : {&x, &c, &y}) {
      void* memory = nullptr;
      FATHOM_CUDA(cudaMalloc(&memory, bytes));
      array->reset(static_cast<float*>(memory));
    }
    for (auto* array : {&x_on_host, &c_on_host, &y_on_host}) {
      void* memory = nullptr;
      FATHOM_CUDA(cudaMallocHost(&memory, bytes));
      array->reset(static_cast<float*>(memory));
    }
    fill(x_on_host.get(), 'x', pages);
    fill(c_on_host.get(), 'c', pages);
    FATHOM_CUDA(cudaMemcpy(c.get(), c_on_host.get(), bytes, cudaMemcpyHostToDevice));
  }
};

}  // namespace

Call explicit_copies(const Turns& of, StreamRef) {
  return [arrays = std::make_shared<const Arrays>(of.pages())](const Turns& p, StreamRef stream) {
    const Arrays& on   = *arrays;
    const size_t bytes = array_bytes(p.pages());
    if (bytes == 0) return;
    host_writes(p, on.x_on_host.get());
    FATHOM_CUDA(cudaMemcpyAsync(on.x.get(), on.x_on_host.get(), bytes, cudaMemcpyHostToDevice, stream));
    pass(on.x.get(), on.c.get(), on.y.get(), p.pages(), stream);
    FATHOM_CUDA(cudaMemcpyAsync(on.y_on_host.get(), on.y.get(), bytes, cudaMemcpyDeviceToHost, stream));
    host_reads(p, on.y_on_host.get(), on.c_on_host.get(), stream);
  };
}

}  // namespace fathom::lab::unified_memory
