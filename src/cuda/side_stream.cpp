#include "cuda/side_stream.h"

#include "cuda/check.h"

namespace fathom {

SideStream::SideStream(Priority priority) {
  int least = 0, greatest = 0;
  FATHOM_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  FATHOM_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                           priority == Priority::first ? greatest : least));
}
SideStream::~SideStream() { (void)cudaStreamDestroy(stream_); }

}  // namespace fathom
