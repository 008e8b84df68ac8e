// Declares a variant whose kernel is called from Python, of kind `library`: Triton's, FlashAttention's. It
// runs in a process of its own that stands in the same rounds as the other variants (lab/python_process.h).
//
//   {.id     = "triton",
//    .idea   = "Triton's fused softmax",
//    .kind   = Kind::library,
//    .python = {"triton_softmax.py", [](const Softmax& p) { return PythonArguments{{"x", p.in}, {"y",
//    p.out}}; }}}
//
// The script lies beside the declaration. lab/python_runner.py says what it defines.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/view.h"

namespace fathom::lab {

// A number, a text, or a buffer of the problem's arena, whole and contiguous; a View<const T> is an input.
struct PythonArgument {
  std::string name, text;
  double number    = 0;
  const void* data = nullptr;
  bool is_buffer = false, written = false;
  DType type = DType::fp32;
  std::vector<int64_t> extents;

  template <class N, class = std::enable_if_t<std::is_arithmetic_v<N>>>
  PythonArgument(std::string called, N value) : name(std::move(called)), number(static_cast<double>(value)) {}
  PythonArgument(std::string called, const char* value) : name(std::move(called)), text(value) {}
  template <class T, int Rank>
  PythonArgument(std::string called, View<T, Rank> view)
      : name(std::move(called)),
        data(view.data()),
        is_buffer(true),
        written(!std::is_const_v<T>),
        type(dtype_of<T>) {
    for (int r = 0; r < Rank; ++r) extents.push_back(view.extent(r));
  }
};
using PythonArguments = std::vector<PythonArgument>;

template <class P>
struct PythonVariant {
  const char* script = nullptr;  // beside the declaration; an absolute path is read when it runs
  PythonArguments (*arguments)(const P&) = nullptr;
  // How long a call may take; the import, and a shape's first call, which compiles and tunes, 90 s more.
  double longest_s = 20;
};

}  // namespace fathom::lab
