// out(v) = number of i with in(i) = v                   n bytes, 256 bins of uint32
//
// bytes   n, read once
// flops   none; n increments
// limit   DRAM bandwidth, read only. H200: n = 268435456 takes 0.059 ms at 4.55 TB/s
// idea    the library: CUB's DeviceHistogram with 256 bins of width 1
#include <cub/device/device_histogram.cuh>

#include "cuda/check.h"
#include "histogram.h"

namespace fathom::lab::histogram {

void cub_histogram(const Histogram& p, StreamRef stream) {
  size_t bytes = static_cast<size_t>(p.scratch.bytes());  // refused if that is too little
  FATHOM_CUDA(cub::DeviceHistogram::HistogramEven(p.scratch.data(), bytes, p.in.data(), p.out.data(),
                                                  kBins + 1, 0, kBins, p.in.size(), stream));
}

}  // namespace fathom::lab::histogram
