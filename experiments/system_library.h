// Opens a system library at run time: Fathom links none of the libraries that it is compared with.
#pragma once

#include <dlfcn.h>
#include <sched.h>

#include <string>

#include "core/expect.h"
#include "lab/problem.h"

namespace fathom::lab {

// Allows this thread all CPUs while it lives. Libraries size their thread pools by, and their threads
// inherit, the affinity of the thread that calls them first; the harness pins that thread to one CPU.
class WholeMachine {
 public:
  WholeMachine() {
    FATHOM_SYSTEM(sched_getaffinity(0, sizeof(before_), &before_));
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      CPU_SET(cpu, &all);  // the kernel ignores CPUs that are not allowed
    FATHOM_SYSTEM(sched_setaffinity(0, sizeof(all), &all));
  }
  ~WholeMachine() { (void)sched_setaffinity(0, sizeof(before_), &before_); }
  WholeMachine(const WholeMachine&)            = delete;
  WholeMachine& operator=(const WholeMachine&) = delete;

 private:
  cpu_set_t before_;
};

class SystemLibrary {
 public:
  explicit SystemLibrary(const std::string& soname) : soname_(soname) {
    const WholeMachine whole_machine;
    handle_ = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
    FATHOM_EXPECT(handle_ != nullptr, dlerror());
  }

  // Also looks in the libraries it depends on.
  template <class Function>
  Function function(const char* name) const {
    void* found = dlsym(handle_, name);
    FATHOM_EXPECT(found != nullptr, soname_ + " has no function " + name);
    return reinterpret_cast<Function>(found);
  }

 private:
  std::string soname_;
  void* handle_;  // never closed: its threads and generated code outlive every call
};

// Calls `launch` once with the whole machine allowed and returns it.
template <class P>
Launch<P> warm_up(const Launch<P>& launch, const P& p, Context& context) {
  const WholeMachine whole_machine;
  launch(p, context);
  return launch;
}

}  // namespace fathom::lab
