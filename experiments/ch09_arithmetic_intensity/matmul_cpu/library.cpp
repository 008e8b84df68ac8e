#include "library.h"

#include <dlfcn.h>
#include <sched.h>

#include "core/expect.h"

namespace fathom::lab::matmul_cpu {
namespace {

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

}  // namespace

Library::Library(const std::string& soname) : soname_(soname) {
  const WholeMachine whole_machine;
  handle_ = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
  FATHOM_EXPECT(handle_ != nullptr, dlerror());
}

void* Library::symbol(const char* name) const {
  void* found = dlsym(handle_, name);
  FATHOM_EXPECT(found != nullptr, soname_ + " has no function " + name);
  return found;
}

Launch<MatMul> warm_up(const Launch<MatMul>& launch, const MatMul& p, Context& context) {
  const WholeMachine whole_machine;
  launch(p, context);
  return launch;
}

}  // namespace fathom::lab::matmul_cpu
