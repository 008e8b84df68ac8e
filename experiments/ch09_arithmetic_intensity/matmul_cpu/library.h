// Opens a system library at run time: Fathom links none of the libraries that it is compared with.
#pragma once

#include <string>

#include "matmul.h"

namespace fathom::lab::matmul_cpu {

class Library {
 public:
  explicit Library(const std::string& soname);

  // Also looks in the libraries it depends on.
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  std::string soname_;
  void* handle_;  // never closed: its threads and generated code outlive every call
};

// Calls `launch` once with the whole machine allowed and returns it. Libraries size their thread pools by,
// and their threads inherit, the affinity of the thread that calls them first; the harness pins that thread
// to one CPU.
Launch<MatMul> warm_up(const Launch<MatMul>& launch, const MatMul& p, Context& context);

}  // namespace fathom::lab::matmul_cpu
