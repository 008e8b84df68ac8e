// One verified call: everything that could be wrong with a call besides its speed is looked for, and what is
// found is named after the defence that found it. The same call that is timed is the one that is verified; a
// variant cannot tell the difference. specs: docs/design.md §3; the lies are listed in docs/method.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/experiment.h"
#include "lab/record.h"

namespace fathom::lab {

struct Caught {
  Outcome outcome;      // wrong | invalid | crashed
  std::string defence;  // poison, fresh_inputs, guard_band, ...
  std::string detail;   // for a person: what, where
};

// Which seeds a set of inputs has held, so that an answer to an earlier question is recognised as such.
struct SeedHistory {
  uint64_t prepared = 0;          // what prepare() saw
  std::vector<uint64_t> earlier;  // oldest first, without the present one
  uint64_t present = 0;
};

// Counts of threads and of CPU time that other threads than ours have used.
struct ThreadAudit {
  int threads           = 0;
  int64_t others_cpu_ns = 0;
  int64_t wall_ns       = 0;
  static ThreadAudit now();
};
// Declared single-threaded, yet another thread worked or was left behind? Pools of the harness are quiet
// between calls.
std::optional<Caught> audit_threads(const VariantInfo& variant, const ThreadAudit& before,
                                    const ThreadAudit& after);

// Of `samples`, behind `late` the GPU was busy for longer than it takes the host to look. The host's clock
// says so, and a host thread that is descheduled for 20 us sees it too: twice, or once in 20 samples, prove
// nothing. Who leaves work behind does so in every sample, or in every sample with new inputs; who does so in
// one of 20 gains nothing by it.
bool late_too_often(int late, int64_t samples);

// Waits until no other thread of this process uses CPU (a library's workers spin for a while after a call);
// at most 0.3 s.
void wait_until_quiet();

struct Inspection {
  std::optional<Caught> caught;
  std::vector<Finding> findings;
  int64_t elements() const;
};

// Looks at a problem after a call: guard bands, inputs, outputs. `checksum` is that of the inputs before the
// call. `timed` says that the same variant has passed the untimed checks before.
Inspection inspect(Problem& problem, const SeedHistory& seeds, uint64_t checksum,
                   const Checker::Options& options, bool timed);

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
  } catch (const std::exception& e) {
    return Caught{Outcome::crashed, "exception", e.what()};
  }
}

}  // namespace fathom::lab
