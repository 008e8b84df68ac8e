#include "cuda/graph.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "cuda/capture_error.h"
#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "cuda/event.h"

namespace fathom {
namespace {

TEST(CaptureError, EveryErrorOfACaptureHasItsOwnText) {
  constexpr std::array kErrors = {cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated,
                                  cudaErrorStreamCaptureMerge,       cudaErrorStreamCaptureUnmatched,
                                  cudaErrorStreamCaptureUnjoined,    cudaErrorStreamCaptureIsolation,
                                  cudaErrorStreamCaptureImplicit,    cudaErrorCapturedEvent,
                                  cudaErrorStreamCaptureWrongThread};
  for (const cudaError_t one : kErrors) {
    EXPECT_NE(capture_error_text(one), "") << one;
    for (const cudaError_t other : kErrors)
      EXPECT_EQ(capture_error_text(one) == capture_error_text(other), one == other) << one << " " << other;
  }
  EXPECT_EQ(capture_error_text(cudaErrorInvalidValue), "");
  EXPECT_EQ(capture_error_text(cudaSuccess), "");
}

class CaptureFault : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
    device->make_current();
    memory = DeviceBuffer<uint32_t>(*device, 4);
  }
  void fill(StreamRef stream, int byte) {
    FATHOM_CUDA(cudaMemsetAsync(memory.data(), byte, static_cast<size_t>(memory.bytes()), stream));
  }
  template <class Enqueue>
  std::string refusal(Enqueue enqueue) {
    try {
      const CudaGraph graph(device->stream(), enqueue);
    } catch (const SystemError& error) {
      return error.what();
    }
    return "";
  }
  // A capture that failed leaves the stream usable.
  void expect_capture_works() {
    const CudaGraph graph(device->stream(), [&] { fill(device->stream(), 0x5A); });
    graph.launch(device->stream());
    uint32_t back = 0;
    device->to_host(&back, memory.data(), 4);
    EXPECT_EQ(back, 0x5A5A5A5Au);
  }
  Device* device = nullptr;
  DeviceBuffer<uint32_t> memory;
};

TEST_F(CaptureFault, NamesTheCallThatWaits) {
  const std::string text = refusal([&] { FATHOM_CUDA(cudaStreamSynchronize(device->stream())); });
  EXPECT_NE(text.find("cudaStreamSynchronize(device->stream())"), std::string::npos) << text;
  EXPECT_NE(text.find("cannot be captured"), std::string::npos) << text;
  expect_capture_works();
}

TEST_F(CaptureFault, NamesTheCallThatAllocates) {
  void* allocated        = nullptr;
  const std::string text = refusal([&] { FATHOM_CUDA(cudaMalloc(&allocated, 256)); });
  EXPECT_NE(text.find("cudaMalloc"), std::string::npos) << text;
  EXPECT_NE(text.find("cannot be captured"), std::string::npos) << text;
  expect_capture_works();
}

TEST_F(CaptureFault, ExplainsAStreamThatIsNotJoined) {
  cudaStream_t other = nullptr;
  FATHOM_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  const Event fork(Event::Timing::off);
  const std::string text = refusal([&] {
    fork.record(device->stream());
    fork.wait_on(other);
    fill(other, 1);
  });
  EXPECT_NE(text.find(capture_error_text(cudaErrorStreamCaptureUnjoined)), std::string::npos) << text;
  expect_capture_works();
  (void)cudaStreamDestroy(other);
}

TEST_F(CaptureFault, LeavesOtherErrorsAsTheyAre) {
  const std::string text = refusal([] { FATHOM_CUDA(cudaErrorInvalidValue); });
  EXPECT_NE(text.find("cudaErrorInvalidValue"), std::string::npos) << text;
  EXPECT_EQ(text.find("cannot be captured"), std::string::npos) << text;
  expect_capture_works();
}

}  // namespace
}  // namespace fathom
