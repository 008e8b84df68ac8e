#include <map>

#include "adversarial/gpu_cheats.h"
#include "cuda/check.h"
#include "cuda/event.h"

namespace fathom::lab {
namespace {

constexpr int kBlock = 256;

__global__ void square(const float* in, float* out, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * in[i];
}

void square_range(const Squares& p, int64_t first, int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  square<<<blocks_for(n, kBlock), kBlock, 0, stream>>>(p.in.data() + first, p.out.data() + first, n);
  FATHOM_LAUNCHED();
}

__global__ void write_to_null(float* nowhere) { *nowhere = 1; }

cudaStream_t another_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    FATHOM_CUDA(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

}  // namespace

void gpu_honest(const Squares& p, StreamRef stream) { square_range(p, 0, p.in.extent(0), stream); }

// Works on a stream that the harness's events do not see.
void other_stream(const Squares& p, StreamRef) { square_range(p, 0, p.in.extent(0), another_stream()); }

// Does half the work on the stream. The other half starts on another stream, and nothing waits for it.
void unfinished_at_end(const Squares& p, StreamRef stream) {
  static const Event& begun = *new Event(Event::Timing::off);  // the driver frees it at exit
  const int64_t n = p.in.extent(0), part = n / 8;
  square_range(p, 0, part, stream);
  begun.record(stream);
  begun.wait_on(another_stream());
  square_range(p, part, n - part, another_stream());
}

// Replays a graph of all four quarters of the work; later, a graph of three.
void fewer_graph_nodes(const Squares& p, StreamRef stream) {
  static int calls = 0;
  const int64_t n = p.in.extent(0), quarter = n / 4;
  const int nodes   = ++calls > 8 ? 3 : 4;
  cudaGraph_t graph = nullptr;
  FATHOM_CUDA(cudaStreamBeginCapture(another_stream(), cudaStreamCaptureModeThreadLocal));
  for (int q = 0; q < nodes; ++q)
    square_range(p, q * quarter, q == 3 ? n - 3 * quarter : quarter, another_stream());
  FATHOM_CUDA(cudaStreamEndCapture(another_stream(), &graph));
  cudaGraphExec_t instance = nullptr;
  FATHOM_CUDA(cudaGraphInstantiate(&instance, graph, 0));
  FATHOM_CUDA(cudaGraphLaunch(instance, stream));
  FATHOM_CUDA(cudaGraphDestroy(graph));
  FATHOM_CUDA(cudaGraphExecDestroy(instance));  // allowed: CUDA frees it when the launch is done
}

// Caches the output on the device by the address of the input.
void memo_on_device(const Squares& p, StreamRef stream) {
  static std::map<const void*, void*> kept;
  void*& answer    = kept[p.in.data()];
  const auto bytes = static_cast<size_t>(p.out.bytes());
  if (!answer) {
    gpu_honest(p, stream);
    FATHOM_CUDA(cudaMalloc(&answer, bytes));
    FATHOM_CUDA(cudaMemcpyAsync(answer, p.out.data(), bytes, cudaMemcpyDeviceToDevice, stream));
  } else {
    FATHOM_CUDA(cudaMemcpyAsync(p.out.data(), answer, bytes, cudaMemcpyDeviceToDevice, stream));
  }
}

void never_written(const Squares& p, StreamRef stream) { square_range(p, 0, p.in.extent(0) - 1, stream); }

// Right and honest in its own time, but the next variant gets a smaller L2.
void persistence_left_on(const Squares& p, StreamRef stream) {
  FATHOM_CUDA(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 16 << 20));
  gpu_honest(p, stream);
}

void waits_undeclared(const Squares& p, StreamRef stream) {
  gpu_honest(p, stream);
  FATHOM_CUDA(cudaStreamSynchronize(stream));
}

// Accesses an illegal address after some honest calls: every later CUDA call of the process fails.
void loses_the_device(const Squares& p, StreamRef stream) {
  static int calls = 0;
  if (++calls > 12) {
    write_to_null<<<1, 1, 0, stream>>>(nullptr);
    FATHOM_LAUNCHED();
  }
  gpu_honest(p, stream);
}

}  // namespace fathom::lab
