#include "cuda/library.h"

#include <gtest/gtest.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

namespace fs = std::filesystem;

// Folders with a loadable library: links to libm under an invented name.
class CudaLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "fathom_libraries_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_       = fs::canonical(name);
    void* math  = dlopen("libm.so.6", RTLD_NOW);
    link_map* m = nullptr;
    ASSERT_TRUE(math && dlinfo(math, RTLD_DI_LINKMAP, &m) == 0);
    real_ = m->l_name;

    places_.chosen          = (root_ / "chosen").string();
    places_.toolkit         = (root_ / "toolkit").string();
    places_.program_folders = (root_ / "empty").string() + ":" + (root_ / "venv/bin").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  void put_library(const std::string& folder) {
    fs::create_directories(root_ / folder);
    fs::create_symlink(real_, root_ / folder / "libfathom_fake.so.7");
  }
  void put_python() {
    fs::create_directories(root_ / "base/bin");
    fs::create_directories(root_ / "venv/bin");
    std::ofstream(root_ / "base/bin/python3.11") << "#!/bin/sh\n";
    fs::permissions(root_ / "base/bin/python3.11", fs::perms::owner_all);
    fs::create_symlink("../../base/bin/python3.11", root_ / "venv/bin/python3");
  }
  // The folder that it was found in, relative to the root, or the error.
  std::string found() const {
    const Result<CudaLibrary> library = open_cuda_library("fathom_fake", 7, places_);
    if (!library) return library.error().message;
    EXPECT_NE(library->function<double (*)(double)>("cos"), nullptr);
    EXPECT_EQ(library->function<void (*)()>("no_such_function"), nullptr);
    return fs::path(library->path).parent_path().lexically_relative(root_).string();
  }

  fs::path root_;
  std::string real_;
  CudaLibraryPlaces places_;
};

TEST_F(CudaLibraryTest, TakesTheFirstPlaceInOrder) {
  const std::vector<std::string> order = {
      "chosen",
      "chosen/lib64",
      "chosen/lib",
      "toolkit/lib64",
      "toolkit/extras/CUPTI/lib64",
      "toolkit/targets/x86_64-linux/lib",
      "venv/lib/python3.11/site-packages/nvidia/cu13/lib",
      "venv/lib64/python3.11/dist-packages/nvidia/cudnn/lib",
      "base/lib/python3.11/site-packages/nvidia/cublas/lib",
      "base/local/lib/python3.11/dist-packages/nvidia/cublas/lib",
  };
  put_python();
  for (auto folder = order.rbegin(); folder != order.rend(); ++folder) {
    put_library(*folder);
    EXPECT_EQ(found(), *folder);
  }
}

TEST_F(CudaLibraryTest, AsksTheLoaderBetweenTheChosenFolderAndTheToolkit) {
  put_library("chosen/lib");
  put_library("toolkit/lib64");
  EXPECT_EQ(cuda_library_folders(places_),
            (std::vector<std::string>{root_ / "chosen", root_ / "chosen/lib", "", root_ / "toolkit/lib64"}));
  const Result<CudaLibrary> library = open_cuda_library("m", 6, places_);
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_EQ(library->path, real_);
  places_.loader = false;
  EXPECT_FALSE(open_cuda_library("m", 6, places_));
}

TEST_F(CudaLibraryTest, SaysWhereItLookedInVain) {
  EXPECT_EQ(found().find("libfathom_fake.so.7 is not in $FATHOM_CUDA_PATH ("), 0) << found();
  EXPECT_NE(found().find(places_.toolkit), std::string::npos) << found();
  places_.chosen.clear();
  EXPECT_NE(found().find("$FATHOM_CUDA_PATH (not set)"), std::string::npos) << found();
}

TEST_F(CudaLibraryTest, GoesOnAfterAFileThatDoesNotLoad) {
  fs::create_directories(root_ / "chosen");
  std::ofstream(root_ / "chosen/libfathom_fake.so.7") << "no library";
  EXPECT_EQ(found().find("libfathom_fake.so.7 was found but does not load: "), 0) << found();
  EXPECT_NE(found().find(places_.chosen), std::string::npos) << found();
  put_library("toolkit/lib64");
  EXPECT_EQ(found(), "toolkit/lib64");
}

TEST_F(CudaLibraryTest, LooksIntoTheVersionsOfPyenv) {
  fs::create_directories(root_ / "pyenv/shims");
  std::ofstream(root_ / "pyenv/shims/python3") << "#!/bin/sh\n";
  fs::permissions(root_ / "pyenv/shims/python3", fs::perms::owner_all);
  places_.program_folders = (root_ / "pyenv/shims").string();
  put_library("pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cu13/lib");
  EXPECT_EQ(found(), "pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cu13/lib");
}

TEST_F(CudaLibraryTest, TakesItsPlacesFromTheEnvironment) {
  const char* const before = std::getenv("FATHOM_CUDA_PATH");
  const std::string value  = before ? before : "";
  setenv("FATHOM_CUDA_PATH", "/somewhere", 1);
  EXPECT_EQ(CudaLibraryPlaces::of_this_process().chosen, "/somewhere");
  unsetenv("FATHOM_CUDA_PATH");
  EXPECT_EQ(CudaLibraryPlaces::of_this_process().chosen, "");
  EXPECT_EQ(CudaLibraryPlaces::of_this_process().program_folders, std::getenv("PATH"));
  if (before) setenv("FATHOM_CUDA_PATH", value.c_str(), 1);
}

}  // namespace
}  // namespace fathom
