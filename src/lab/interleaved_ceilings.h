// The control of a run: the machine's limit, measured in the same rounds as the variants. A share of the
// limit is a ratio of two times of one round, so a slow minute of the machine slows both.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/thread_pool.h"
#include "lab/experiment_info.h"

namespace fathom::lab {

// The instruction set that an arithmetic peak is measured with.
enum class Isa {
  compiled,  // experiments are compiled for x86-64-v3: AVX2 with FMA
  widest,    // the best that runs here: of libraries, which choose at run time, and of variants that need it
};
Isa isa_of(const ExperimentInfo& experiment, const VariantInfo& variant);

class Control {
 public:
  virtual ~Control()                       = default;
  virtual double sample()                  = 0;  // one measurement: bytes/s, flop/s, or loads/s
  virtual const std::string& words() const = 0;  // "copy bandwidth of DRAM, 1 thread"
  virtual int threads() const              = 0;  // of the variants whose limit it is
  virtual Isa isa() const { return Isa::compiled; }
  double limit_ns(double rate) const;  // what a call of the declared work takes at that rate

 protected:
  Control(Limit limit, const Cost& cost) : limit_(limit), cost_(cost) {}
  Limit limit_;
  Cost cost_;
};

// For a limit of Limit::memory, flops or load_latency, a call of `cost` over `working_set` bytes
// (rotated_bytes() in lab/floor_check.h) by `threads` threads. `isa` matters to Limit::flops.
std::unique_ptr<Control> cpu_control(Limit limit, const Cost& cost, int64_t working_set, int threads, Isa isa,
                                     ThreadPool& pool);

// The same on the GPU; also Limit::tensor_flops, shared_memory and link.
std::unique_ptr<Control> gpu_control(Limit limit, const Cost& cost, int64_t working_set, Device& device);

bool has_control(Backend backend, Limit limit);

// Limit::disk has no control: its reads would compete with the variants' for the disk's queue. Its limit is
// the rate that doctor measured.
struct DiskLimit {
  double bytes_per_s;
  std::string words;
};
std::optional<DiskLimit> disk_limit();

}  // namespace fathom::lab
