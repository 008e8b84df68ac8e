#include "serve/process_series.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace fathom::serve {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

void add_process_series(double started_s, Exposition& to) {
  to.gauge({"process_start_time_seconds"}, "Start of the server, since 1970.", started_s);
  if (rusage use{}; getrusage(RUSAGE_SELF, &use) == 0)
    to.counters({"process_cpu_seconds"}, "CPU time of all threads, user and system.",
                {{{}, seconds_of(use.ru_utime) + seconds_of(use.ru_stime)}});
  double virtual_pages = 0, resident_pages = 0;
  if (std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages) {
    const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
    to.gauge({"process_virtual_memory_bytes"}, "Address space.", page * virtual_pages);
    to.gauge({"process_resident_memory_bytes"},
             "Memory of the host in use, with pages of the model's files that other processes may share.",
             page * resident_pages);
  }
  std::error_code error;
  if (const std::filesystem::directory_iterator files("/proc/self/fd", error); !error)
    to.gauge({"process_open_fds"}, "Open files and connections.",
             static_cast<double>(std::distance(begin(files), end(files)) - 1));  // one is the folder itself
  if (rlimit files{}; getrlimit(RLIMIT_NOFILE, &files) == 0)
    to.gauge({"process_max_fds"}, "How many may be open.", static_cast<double>(files.rlim_cur));
}

}  // namespace fathom::serve
