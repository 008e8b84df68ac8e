// Opens NVIDIA's libraries (cuBLAS, cuDNN, CUPTI, NVRTC, ...) at run time, so that one binary starts on any
// machine. Searches only when called.
#pragma once

#include <dlfcn.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace fathom {

// The places to search for a library, in this order.
struct CudaLibraryPlaces {
  std::string chosen;                       // $FATHOM_CUDA_PATH: the folder itself, its lib64, its lib
  bool loader         = true;               // the loader's search: LD_LIBRARY_PATH, ldconfig
  std::string toolkit = "/usr/local/cuda";  // lib64, extras/CUPTI/lib64, targets/x86_64-linux/lib
  std::string program_folders;              // $PATH: the nvidia packages of the python3 found there

  static CudaLibraryPlaces of_this_process();
};

struct CudaLibrary {
  void* handle = nullptr;  // of dlopen; never closed, as function pointers lead into the library
  std::string path;        // of the file

  // Null where the library has no such symbol.
  template <class FunctionPointer>
  FunctionPointer function(const char* symbol) const {
    return reinterpret_cast<FunctionPointer>(dlsym(handle, symbol));
  }
};

// The existing folders of those places, in order. An empty string stands for the loader's search.
std::vector<std::string> cuda_library_folders(const CudaLibraryPlaces& places);

// Opens lib<name>.so.<major>, e.g. ("cublas", 13), from the first place where it loads. A library that
// depends on another of NVIDIA's gets the one beside it.
Result<CudaLibrary> open_cuda_library(std::string_view name, int major,
                                      const CudaLibraryPlaces& places = CudaLibraryPlaces::of_this_process());

}  // namespace fathom
