// One primitive of oneDNN 2 on fp32 tensors, for variants of kind `library`. The library is opened at run
// time; its types come from its headers, which a build may lack: missing_at_build().
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/system_library.h"

#if __has_include(<dnnl.h>)
#include <dnnl.h>
#if DNNL_VERSION_MAJOR == 2
#define FATHOM_HAS_ONEDNN 1
#endif
#endif

namespace fathom::lab::onednn {

inline constexpr char kLibrary[] = "libdnnl.so.2";

[[noreturn]] inline void missing_at_build() {
  throw Unavailable("needs_library", "oneDNN 2 (libdnnl-dev) when Fathom is built");
}

#ifdef FATHOM_HAS_ONEDNN

inline void expect(dnnl_status_t status, const char* what) {
  FATHOM_EXPECT(status == dnnl_success,
                std::string("oneDNN refused ") + what + ", status " + std::to_string(status));
}

// Row-major.
inline dnnl_memory_desc_t tensor(std::initializer_list<int64_t> extents) {
  const SystemLibrary library(kLibrary);
  const auto init =
      library.function<decltype(&::dnnl_memory_desc_init_by_tag)>("dnnl_memory_desc_init_by_tag");
  constexpr dnnl_format_tag_t kRowMajor[] = {dnnl_a, dnnl_ab, dnnl_abc};
  dnnl_memory_desc_t description;
  expect(init(&description, static_cast<int>(extents.size()), extents.begin(), dnnl_f32,
              kRowMajor[extents.size() - 1]),
         "a tensor");
  return description;
}

class Primitive {
 public:
  // `operation`: an initialised descriptor such as dnnl_matmul_desc_t. `tensors`: its DNNL_ARG_* in the order
  // in which operator() gets their data.
  Primitive(const_dnnl_op_desc_t operation, std::vector<std::pair<int, dnnl_memory_desc_t>> tensors)
      : library_(kLibrary),
        set_data_(library_.function<decltype(set_data_)>("dnnl_memory_set_data_handle")),
        execute_(library_.function<decltype(execute_)>("dnnl_primitive_execute")),
        wait_(library_.function<decltype(wait_)>("dnnl_stream_wait")),
        set_threads_(library_.function<decltype(set_threads_)>("omp_set_num_threads")) {
    dnnl_engine_t engine              = nullptr;
    dnnl_primitive_desc_t description = nullptr;
    expect(get<decltype(&::dnnl_engine_create)>("dnnl_engine_create")(&engine, dnnl_cpu, 0), "an engine");
    expect(get<decltype(&::dnnl_stream_create)>("dnnl_stream_create")(&stream_, engine,
                                                                      dnnl_stream_default_flags),
           "a stream");
    expect(get<decltype(&::dnnl_primitive_desc_create)>("dnnl_primitive_desc_create")(
               &description, operation, nullptr, engine, nullptr),
           "the operation");
    expect(get<decltype(&::dnnl_primitive_create)>("dnnl_primitive_create")(&primitive_, description),
           "the primitive");
    for (const auto& [argument, tensor] : tensors) {
      arguments_.push_back({argument, nullptr});
      expect(get<decltype(&::dnnl_memory_create)>("dnnl_memory_create")(&arguments_.back().memory, &tensor,
                                                                        engine, DNNL_MEMORY_NONE),
             "a tensor");
    }
  }

  void operator()(int threads, std::initializer_list<const void*> data) const {
    set_threads_(threads);  // on every call: all variants share one library
    auto argument = arguments_.begin();
    for (const void* at : data) expect(set_data_((argument++)->memory, const_cast<void*>(at)), "data");
    expect(execute_(primitive_, stream_, static_cast<int>(arguments_.size()), arguments_.data()), "the call");
    expect(wait_(stream_), "the call");
  }

 private:
  template <class Function>
  Function get(const char* name) const {
    return library_.function<Function>(name);
  }

  SystemLibrary library_;
  decltype(&::dnnl_memory_set_data_handle) set_data_;
  decltype(&::dnnl_primitive_execute) execute_;
  decltype(&::dnnl_stream_wait) wait_;
  void (*set_threads_)(int);  // of its OpenMP runtime
  // Like the library, never given back: a process makes a handful.
  dnnl_stream_t stream_       = nullptr;
  dnnl_primitive_t primitive_ = nullptr;
  std::vector<dnnl_exec_arg_t> arguments_;
};

#endif

}  // namespace fathom::lab::onednn
