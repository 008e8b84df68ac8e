#include "profile/cpu_sampling.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fmt/format.h>
#include <link.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "core/expect.h"
#include "machine/perf_counters.h"
#include "measure/clock.h"
#include "profile/cpu_counters.h"
#include "profile/kernel_name.h"
#include "profile/profiling_signal.h"

namespace fathom::profile {
namespace {

constexpr int64_t kMostSamples = 1 << 16;
constexpr std::chrono::microseconds kPeriod{1000};  // the kernel rounds it up to its tick

// What the signal handler writes to. It may do only what is async-signal-safe: no allocation, no lock.
struct Ring {
  CpuSample samples[kMostSamples];
  std::atomic<int64_t> taken = 0;
};
std::atomic<Ring*> active_ring = nullptr;

int64_t wall_ns() { return measure::now_ns(measure::Clock::wall); }

void take_sample(int, siginfo_t*, void* context) {
  const int saved = errno;
  if (Ring* ring = active_ring.load()) {
    const int64_t at = ring->taken.fetch_add(1);
    if (at < kMostSamples)
      ring->samples[at] = {wall_ns(), static_cast<int>(syscall(SYS_gettid)), interrupted_at(context)};
  }
  errno = saved;
}

// The timer and its signal, while it lives.
class SamplingTimer {
 public:
  explicit SamplingTimer(Ring& ring) {
    active_ring = &ring;
    before_     = handle_profiling_signal(take_sample);
    set_profiling_timer(kPeriod);
  }
  ~SamplingTimer() {
    set_profiling_timer(std::chrono::microseconds(0));
    // A signal that is under way finds an empty handler, not the default action, which would end the process.
    active_ring = nullptr;
    if (before_.sa_handler != SIG_DFL) (void)sigaction(SIGPROF, &before_, nullptr);
  }
  SamplingTimer(const SamplingTimer&)            = delete;
  SamplingTimer& operator=(const SamplingTimer&) = delete;

 private:
  struct sigaction before_ {};
};

rusage usage() {
  rusage now{};
  getrusage(RUSAGE_SELF, &now);
  return now;
}

double cpu_seconds(const rusage& used) {
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// The functions of this program, from the symbol table of its file: dladdr() knows only exported ones.
class OwnSymbols {
 public:
  static const OwnSymbols& get() {
    static const OwnSymbols symbols;
    return symbols;
  }

  // Null where no function of the program holds the address.
  const char* name_of(uintptr_t address) const {
    auto after = std::upper_bound(functions_.begin(), functions_.end(), address - base_,
                                  [](uintptr_t at, const Function& f) { return at < f.start; });
    if (after == functions_.begin()) return nullptr;
    --after;
    return address - base_ < after->start + after->bytes ? names_.data() + after->name : nullptr;
  }

 private:
  struct Function {
    uintptr_t start, bytes;
    size_t name;  // offset in names_
  };

  OwnSymbols() {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    Elf64_Ehdr head;
    if (!read(file, 0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* base) {  // the program comes first
          *static_cast<uintptr_t*>(base) = info->dlpi_addr;
          return 1;
        },
        &base_);
    for (int s = 0; s < head.e_shnum; ++s) {
      Elf64_Shdr section, names;
      if (!read(file, head.e_shoff + static_cast<size_t>(s) * sizeof section, section)) return;
      if (section.sh_type != SHT_SYMTAB || !read(file, head.e_shoff + section.sh_link * sizeof names, names))
        continue;
      names_.assign(names.sh_size + 1, '\0');
      std::vector<Elf64_Sym> symbols(section.sh_size / sizeof(Elf64_Sym));
      if (!read_bytes(file, names.sh_offset, names_.data(), names.sh_size) ||
          !read_bytes(file, section.sh_offset, symbols.data(), symbols.size() * sizeof(Elf64_Sym)))
        return;
      for (const Elf64_Sym& symbol : symbols)
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size > 0 && symbol.st_name < names.sh_size)
          functions_.push_back({symbol.st_value, symbol.st_size, symbol.st_name});
      break;
    }
    std::sort(functions_.begin(), functions_.end(),
              [](const auto& a, const auto& b) { return a.start < b.start; });
  }

  static bool read_bytes(std::ifstream& file, size_t offset, void* to, size_t bytes) {
    file.seekg(static_cast<std::streamoff>(offset));
    return !!file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  }
  template <class T>
  static bool read(std::ifstream& file, size_t offset, T& value) {
    return read_bytes(file, offset, &value, sizeof value);
  }

  std::vector<char> names_;  // each ends with a zero
  std::vector<Function> functions_;
  uintptr_t base_ = 0;
};

}  // namespace

CpuActivity watch_cpu(const std::function<void()>& call, double cpu_s) {
  FATHOM_EXPECT(active_ring.load() == nullptr, "one watch of the CPU at a time");
  CpuActivity seen;
  const auto ring = std::make_unique<Ring>();
  std::optional<CpuCounters> counters;
  if (const auto why = machine::missing_hardware_counters())
    seen.notes.push_back("no hardware counters: " + *why);
  else
    counters.emplace(hardware_events());
  const rusage before = usage();
  const int64_t began = wall_ns();
  {
    const SamplingTimer timer(*ring);
    do {
      const int64_t start = wall_ns();
      call();
      seen.calls.push_back({start, wall_ns()});
      seen.cpu_s = cpu_seconds(usage()) - cpu_seconds(before);
    } while (seen.cpu_s < cpu_s && static_cast<double>(wall_ns() - began) < 4e9 * cpu_s);
  }
  const rusage after = usage();
  if (counters) seen.counters = counters->stop();
  seen.minor_faults   = after.ru_minflt - before.ru_minflt;
  seen.major_faults   = after.ru_majflt - before.ru_majflt;
  seen.waits          = after.ru_nvcsw - before.ru_nvcsw;
  seen.interruptions  = after.ru_nivcsw - before.ru_nivcsw;
  const int64_t taken = ring->taken.load();
  seen.samples.assign(ring->samples, ring->samples + std::min(taken, kMostSamples));
  std::stable_sort(seen.samples.begin(), seen.samples.end(),
                   [](const CpuSample& a, const CpuSample& b) { return a.at_ns < b.at_ns; });
  if (taken > kMostSamples)
    seen.notes.push_back(
        fmt::format("{} of {} samples of the CPU were dropped", taken - kMostSamples, taken));
  return seen;
}

std::string function_at(uintptr_t address) {
  if (const char* own = OwnSymbols::get().name_of(address)) {
    const std::string symbol = own;  // "_ZL7productl.constprop.0" is a clone that the compiler made of it
    return readable_kernel_name(symbol.substr(0, symbol.find('.', 1)).c_str());
  }
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(address), &info) || !info.dli_fname || !*info.dli_fname)
    return fmt::format("{:#x}", address);
  const std::string module = std::filesystem::path(info.dli_fname).filename();
  if (info.dli_sname) return fmt::format("{} ({})", readable_kernel_name(info.dli_sname), module);
  return fmt::format("{}+{:#x}", module, address - reinterpret_cast<uintptr_t>(info.dli_fbase));
}

}  // namespace fathom::profile
