#include "cuda/library.h"

#include <fmt/format.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace fathom {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void append_matches(const std::string& pattern, std::vector<std::string>& folders) {
  glob_t found;
  if (glob(pattern.c_str(), GLOB_ONLYDIR, nullptr, &found) == 0)
    folders.insert(folders.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
}

// Empty where there is none.
fs::path find_program(std::string_view name, std::string_view folders) {
  while (!folders.empty()) {
    const size_t colon  = folders.find(':');
    const fs::path file = fs::path(folders.substr(0, colon)) / name;
    std::error_code error;
    if (fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0) return file;
    folders.remove_prefix(colon == std::string_view::npos ? folders.size() : colon + 1);
  }
  return {};
}

// pip installs libraries into <prefix>/lib/python3.x/site-packages/nvidia/<package>/lib. A virtual
// environment has packages of its own, and may also see those of the Python that its link leads to.
void append_python_folders(const fs::path& python, std::vector<std::string>& folders) {
  std::error_code error;
  std::vector<fs::path> programs{python};
  if (const fs::path real = fs::canonical(python, error); !error && real != python) programs.push_back(real);
  for (const fs::path& program : programs) {
    const fs::path prefix = program.parent_path().parent_path();
    for (const char* below : {"", "local"})  // Debian: pip installs below local
      append_matches((prefix / below / "lib*/python3*/*-packages/nvidia/*/lib").string(), folders);
    if (program.parent_path().filename() == "shims")  // pyenv: a script that picks one of its versions
      append_matches((prefix / "versions/*/lib*/python3*/*-packages/nvidia/*/lib").string(), folders);
  }
}

// A library that `name` depends on and that the loader may not find.
std::string_view companion(std::string_view name) { return name == "cublas" ? "cublasLt" : ""; }

std::string file_name(std::string_view name, int major) { return fmt::format("lib{}.so.{}", name, major); }

std::string path_of(void* handle, const std::string& otherwise) {
  const link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] ? map->l_name : otherwise;
}

}  // namespace

CudaLibraryPlaces CudaLibraryPlaces::of_this_process() {
  CudaLibraryPlaces places;
  places.chosen          = environment("FATHOM_CUDA_PATH");
  places.program_folders = environment("PATH");
  return places;
}

std::vector<std::string> cuda_library_folders(const CudaLibraryPlaces& places) {
  std::vector<std::string> folders;
  const auto append = [&folders](const fs::path& folder) {
    std::error_code error;
    if (fs::is_directory(folder, error)) folders.push_back(folder.string());
  };
  if (!places.chosen.empty()) {
    const fs::path chosen(places.chosen);
    for (const fs::path& folder : {chosen, chosen / "lib64", chosen / "lib"}) append(folder);
  }
  if (places.loader) folders.emplace_back();
  if (!places.toolkit.empty())
    for (const char* below : {"lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib"})
      append(fs::path(places.toolkit) / below);
  if (const fs::path python = find_program("python3", places.program_folders); !python.empty())
    append_python_folders(python, folders);
  return folders;
}

Result<CudaLibrary> open_cuda_library(std::string_view name, int major, const CudaLibraryPlaces& places) {
  const std::string file = file_name(name, major);
  std::string refused;  // why the first file that exists did not load
  for (const fs::path folder : cuda_library_folders(places)) {
    const std::string path = (folder / file).string();  // by the loader's path: the plain name
    std::error_code error;
    if (!folder.empty() && !fs::exists(path, error)) continue;
    if (const std::string_view other = companion(name); !other.empty())
      dlopen((folder / file_name(other, major)).c_str(),
             RTLD_NOW | RTLD_GLOBAL);  // if not, the next call fails
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
      return CudaLibrary{handle, folder.empty() ? path_of(handle, path) : path};
    const char* why = dlerror();
    if (!folder.empty() && refused.empty() && why) refused = why;
  }
  if (!refused.empty()) return Error{fmt::format("{} was found but does not load: {}", file, refused)};
  return Error{
      fmt::format("{} is not in $FATHOM_CUDA_PATH ({}), the loader's path, {} or the nvidia packages of "
                  "python3: install the CUDA toolkit's libraries, or set FATHOM_CUDA_PATH to their folder",
                  file, places.chosen.empty() ? "not set" : places.chosen,
                  places.toolkit.empty() ? "a toolkit" : places.toolkit)};
}

}  // namespace fathom
