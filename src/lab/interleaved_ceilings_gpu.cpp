// The control of a GPU experiment: the same kernels that doctor measures ceilings with, in the same rounds as
// the variants.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cuda/device.h"
#include "lab/interleaved_ceilings.h"
#include "machine/gpu.h"
#include "machine/gpu_ceiling_kernels.h"
#include "machine/gpu_ceilings.h"
#include "measure/gpu_clock.h"

namespace fathom::lab {
namespace {

using machine::GpuKernels;
using machine::Traffic;

constexpr double kGpuControlNs       = 2e5;
constexpr int64_t kMostDramBytes     = int64_t{4} << 30;  // of all buffers of a control
constexpr int64_t kBytesForAllBlocks = int64_t{16} << 20;
constexpr int64_t kFirstSteps        = 100;

Traffic resembling(const Cost& cost) {
  if (cost.written < cost.read / 20) return Traffic::read;
  if (cost.read < cost.written / 20) return Traffic::write;
  return Traffic::copy;
}

class GpuControl final : public Control {
 public:
  GpuControl(Limit limit, const Cost& cost, int64_t working_set, Device& device)
      : Control(limit, cost), device_(device), clock_(measure::gpu_clock(device)) {
    const int64_t l2     = machine::gpu(device.id())->l2_bytes;
    in_l2_               = working_set <= l2 / 2;
    warm_                = working_set < 4 * l2;
    const std::string at = in_l2_ ? "L2" : warm_ ? "L2 and DRAM" : "DRAM";
    switch (limit) {
      case Limit::memory: {
        traffic_ = resembling(cost);
        // In L2 repeatedly, since one pass would measure the launch; stores and copies need bytes for every
        // block. Else one pass of as many bytes as the calls move: L2 keeps as much of them as of theirs.
        const int64_t all = in_l2_ && traffic_ != Traffic::read ? std::max(working_set, kBytesForAllBlocks)
                                                                : std::min(working_set, kMostDramBytes);
        bytes_            = std::max<int64_t>(1 << 16, all / (traffic_ == Traffic::copy ? 2 : 1) / 256 * 256);
        source_           = make(traffic_ == Traffic::write ? 256 : bytes_);
        target_           = make(traffic_ == Traffic::read ? 256 : bytes_);
        const char* words = traffic_ == Traffic::read    ? "read"
                            : traffic_ == Traffic::write ? "write"
                                                         : "copy";
        words_            = fmt::format("{} bandwidth of {}", words, at);
        break;
      }
      case Limit::flops:
        words_ = fmt::format("{} FMA peak", traits(cost.flop_type).name);
        break;
      case Limit::tensor_flops:
        words_ = fmt::format("{} tensor peak (our mma loop)",
                             cost.flop_type == DType::fp32 ? "tf32" : traits(cost.flop_type).name);
        break;
      case Limit::shared_memory:
        words_ = "shared-memory bandwidth";
        break;
      case Limit::load_latency: {
        words_             = fmt::format("load latency of {}", at);
        const int64_t span = std::max<int64_t>(machine::kGpuLine, working_set);
        source_            = make(span);
        lines_ = static_cast<int64_t>(machine::gpu_kernels()->make_cycle(source_, span, device_.stream())) /
                 machine::kGpuLine;
        break;
      }
      case Limit::link: {
        words_  = "page-locked copy from host to GPU";
        bytes_  = std::clamp<int64_t>(cost.link, 1 << 20, 256 << 20);
        target_ = make(bytes_);
        source_ = host_.workspace<uint8_t>({bytes_}).data();
        break;
      }
      default:
        FATHOM_EXPECT(false, "no control on a GPU for this limit");
    }
    sink_ = make(1 << 20);
    once(1, false);  // loads the kernel
    // A sample lasts about kGpuControlNs.
    double took = once(1, true).ns;
    if (limit != Limit::memory || in_l2_)
      while (took < kGpuControlNs / 2 && repeats_ < int64_t{1} << 40) took = once(repeats_ *= 2, true).ns;
  }
  ~GpuControl() override {
    for (void* memory : memory_) device_.release(memory);
  }

  double sample() override {
    if (limit_ == Limit::memory && warm_) once(repeats_, true);  // as it is for variants
    const auto seen = once(repeats_, true);
    return work_ / seen.ns * 1e9;
  }
  const std::string& words() const override { return words_; }
  int threads() const override { return 1; }

 private:
  void* make(int64_t bytes) {
    memory_.push_back(device_.allocate(bytes));
    device_.set_words(memory_.back(), bytes, 0x3F800000u);  // 1.0f
    return memory_.back();
  }

  double move_repeatedly(int64_t times) {
    const GpuKernels& kernels = *machine::gpu_kernels();
    StreamRef stream          = device_.stream();
    switch (traffic_) {
      case Traffic::read:
        return kernels.read_repeatedly(source_, bytes_, times, sink_, stream);
      case Traffic::write:
        return kernels.write_repeatedly(target_, bytes_, times, stream);
      default:
        return kernels.copy_repeatedly(target_, source_, bytes_, times, stream);
    }
  }

  measure::GpuClock::Sample once(int64_t repeats, bool held) {
    const GpuKernels& kernels = *machine::gpu_kernels();
    StreamRef stream          = device_.stream();
    return clock_->time(
        [&] {
          switch (limit_) {
            case Limit::memory:
              work_ = in_l2_                       ? move_repeatedly(repeats)
                      : traffic_ == Traffic::read  ? kernels.read(source_, bytes_, sink_, stream)
                      : traffic_ == Traffic::write ? kernels.write(target_, bytes_, stream)
                                                   : kernels.copy(target_, source_, bytes_, stream);
              break;
            case Limit::flops:
              work_ = kernels.fma(cost_.flop_type, repeats * kFirstSteps, sink_, stream);
              break;
            case Limit::tensor_flops:
              work_ = kernels.mma(cost_.flop_type, repeats * kFirstSteps, sink_, stream);
              break;
            case Limit::shared_memory:
              work_ = kernels.shared_read(repeats * kFirstSteps, sink_, stream);
              break;
            case Limit::link:
              for (int64_t i = 0; i < repeats; ++i) device_.enqueue_to_device(target_, source_, bytes_);
              work_ = static_cast<double>(repeats * bytes_);
              break;
            default:
              // Starts at another line each time: the lines of the last sample are still in a cache.
              line_ = machine::next_line(line_ + 1, lines_);
              work_ = kernels.chase(static_cast<std::byte*>(source_) + line_ * machine::kGpuLine,
                                    repeats * kFirstSteps, sink_, stream);
          }
        },
        held);
  }

  Device& device_;
  std::unique_ptr<measure::GpuClock> clock_;
  std::string words_;
  Traffic traffic_ = Traffic::read;
  bool in_l2_ = false, warm_ = false;
  int64_t bytes_   = 0;
  int64_t repeats_ = 1;
  double work_     = 0;
  int64_t line_ = 0, lines_ = 1;
  void *source_ = nullptr, *target_ = nullptr, *sink_ = nullptr;
  std::vector<void*> memory_;
  Arena host_ = Arena::pinned(device_);
};

}  // namespace

std::unique_ptr<Control> gpu_control(Limit limit, const Cost& cost, int64_t working_set, Device& device) {
  return std::make_unique<GpuControl>(limit, cost, working_set, device);
}

}  // namespace fathom::lab
