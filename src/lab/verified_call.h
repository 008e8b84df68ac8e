// The checks of a call beside its speed. Each fault is named after the defence that found it; docs/method.md
// lists them. Timed calls themselves are verified, chosen after they ran, so a variant cannot tell which.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/record.h"

namespace fathom::lab {

struct Caught {
  Outcome outcome;      // wrong | invalid | crashed
  std::string defence;  // poison, fresh_inputs, guard_band, ...
  std::string detail;   // for a person: what, where
};

// The seeds that an input set was filled from, to recognise an output that answers earlier inputs.
struct SeedHistory {
  uint64_t prepared = 0;          // during prepare()
  std::vector<uint64_t> earlier;  // oldest first, without the present one
  uint64_t present = 0;
};

// The number of threads, the CPU time that others than this one have used (with processes that ended), and
// whether this process has started another that still runs.
struct ThreadAudit {
  int threads           = 0;
  bool child_process    = false;
  int64_t others_cpu_ns = 0;
  int64_t wall_ns       = 0;
  static ThreadAudit now();
};
// Catches a variant that left a thread or a process behind, or that declares one thread and used others. The
// harness's own pools are idle between calls.
std::optional<Caught> audit_threads(const VariantInfo& variant, const ThreadAudit& before,
                                    const ThreadAudit& after);
std::optional<Caught> audit_processes(const VariantInfo& variant, const ThreadAudit& before,
                                      const ThreadAudit& after);
// Whether others used a part of the CPU time that audit_threads() does not hold against a single sample:
// at least 0.1 ms, and a tenth of the time. Of one sample it may be the system's work.
bool others_helped(const VariantInfo& variant, const ThreadAudit& before, const ThreadAudit& after);

// Of `samples`, `doubtful` gave a reading that a busy host also produces: the GPU seemed busy when its last
// event had passed, or other threads of the process seemed to work. Two of them, or one of 20, prove nothing.
// A variant that cheats so does it in every sample, or in every sample with new inputs; in one of 20 it gains
// nothing.
bool doubtful_too_often(int doubtful, int64_t samples);

// Waits until no other thread of this process uses CPU (a library's workers spin for a while after a call);
// at most 0.3 s.
void wait_until_quiet();

struct Inspection {
  std::optional<Caught> caught;
  std::vector<Finding> findings;
  int64_t elements() const;
};

// Checks a problem after a call: guard bands, inputs, outputs. `checksum`: of the inputs before the call.
// `timed`: the variant has passed the untimed checks before.
// `ranks`: the problems of all ranks, for a problem with ranks.
Inspection inspect(Problem& problem, const SeedHistory& seeds, uint64_t checksum,
                   const Checker::Options& options, bool timed, std::span<const Problem* const> ranks = {});

// Calls f and turns what it throws into a Caught: ContractError is the defence "contract".
template <class F>
std::optional<Caught> guarded(F&& f) {
  try {
    f();
    return std::nullopt;
  } catch (const Unavailable&) {
    throw;  // no fault of the variant
  } catch (const NotEnoughMemory&) {
    throw;
  } catch (const DeviceLost&) {
    throw;  // ends this process; the next one goes on without the variant
  } catch (const ContractError& e) {
    return Caught{Outcome::wrong, "contract", e.what()};
  } catch (const TimedOut& e) {
    return Caught{Outcome::timeout, "deadline", e.what()};
  } catch (const std::exception& e) {
    return Caught{Outcome::crashed, "exception", e.what()};
  }
}

}  // namespace fathom::lab
