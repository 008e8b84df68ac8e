// out = softmax of each row                  R x C, bf16
//
// bytes   4 R C    2 read + 2 written
// flops   6 R C
// limit   DRAM bandwidth
// idea    the library: cudnnSoftmaxForward, the accurate algorithm over each instance
#include <memory>

#include "cuda/library.h"
#include "lab/problem.h"
#include "softmax.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif

namespace fathom::lab::online_softmax_gpu {

#ifdef CUDNN_MAJOR
namespace {

// cuDNN opened at run time: a handle, and the shape of the rows.
class RowSoftmax {
 public:
  RowSoftmax(const CudaLibrary& library, const Softmax& p) : library_(library) {
    check(get<decltype(&::cudnnCreate)>("cudnnCreate")(&handle_), "cudnnCreate");
    check(get<decltype(&::cudnnCreateTensorDescriptor)>("cudnnCreateTensorDescriptor")(&rows_),
          "cudnnCreateTensorDescriptor");
    check(get<decltype(&::cudnnSetTensor4dDescriptor)>("cudnnSetTensor4dDescriptor")(
              rows_, CUDNN_TENSOR_NCHW, CUDNN_DATA_BFLOAT16, static_cast<int>(p.in.extent(0)),
              static_cast<int>(p.in.extent(1)), 1, 1),
          "cudnnSetTensor4dDescriptor");
    set_stream_ = get<decltype(set_stream_)>("cudnnSetStream");
    forward_    = get<decltype(forward_)>("cudnnSoftmaxForward");
    destroy_    = get<decltype(destroy_)>("cudnnDestroy");
  }
  ~RowSoftmax() { destroy_(handle_); }
  RowSoftmax(const RowSoftmax&)            = delete;
  RowSoftmax& operator=(const RowSoftmax&) = delete;

  void operator()(const Softmax& p, StreamRef stream) const {
    const float one = 1, zero = 0;
    check(set_stream_(handle_, stream), "cudnnSetStream");
    check(forward_(handle_, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, rows_, p.in.data(),
                   &zero, rows_, p.out.data()),
          "cudnnSoftmaxForward");
  }

 private:
  template <class Function>
  Function get(const char* name) const {
    const auto found = library_.function<Function>(name);
    if (!found) throw Unavailable("needs_library", library_.path + " has no " + name);
    return found;
  }
  static void check(cudnnStatus_t status, const char* call) {
    FATHOM_EXPECT(status == CUDNN_STATUS_SUCCESS,
                  std::string(call) + " failed with status " + std::to_string(status));
  }

  CudaLibrary library_;
  cudnnHandle_t handle_                     = nullptr;
  cudnnTensorDescriptor_t rows_             = nullptr;  // as small as the handle's life is long
  decltype(&::cudnnSetStream) set_stream_   = nullptr;
  decltype(&::cudnnSoftmaxForward) forward_ = nullptr;
  decltype(&::cudnnDestroy) destroy_        = nullptr;
};

}  // namespace

std::function<void(const Softmax&, StreamRef)> cudnn_softmax(const Softmax& p, StreamRef) {
  if (p.in.size() == 0) return [](const Softmax&, StreamRef) {};
  const auto library = open_cuda_library("cudnn", CUDNN_MAJOR);
  if (!library) throw Unavailable("needs_library", library.error().message);
  const auto softmax = std::make_shared<RowSoftmax>(*library, p);
  return [softmax](const Softmax& q, StreamRef stream) { (*softmax)(q, stream); };
}
#else
std::function<void(const Softmax&, StreamRef)> cudnn_softmax(const Softmax&, StreamRef) {
  throw Unavailable("needs_library", "cudnn.h when Fathom is built");
}
#endif

}  // namespace fathom::lab::online_softmax_gpu
