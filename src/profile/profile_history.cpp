#include "profile/profile_history.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "core/atomic_file.h"

namespace fathom::profile {
namespace {

// A profile, or what a killed process left of one.
bool is_profile(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("cpu-") && (name.ends_with("Z.pb") || name.ends_with(".partial"));
}

// All but the latest by name, which sort as their times do. The newest stays even where the clock was set
// back.
void delete_old_profiles(const ProfileHistory& history, const std::filesystem::path& newest) {
  std::error_code none;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(history.folder, none))
    if (is_profile(entry.path()) && entry.path() != newest) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (int64_t old = 0; old < std::ssize(files) - (history.keep - 1); ++old)
    std::filesystem::remove(files[static_cast<size_t>(old)], none);
}

class HistoryWriter : public std::enable_shared_from_this<HistoryWriter> {
 public:
  HistoryWriter(CpuProfiler& profiler, ProfileHistory history)
      : profiler_(profiler), history_(std::move(history)) {}

  void next_window() {
    profiler_.profile(history_.window, [self = shared_from_this()](const StackProfile& profile) {
      self->next_window();
      self->write(profile);
    });
  }

 private:
  void write(const StackProfile& profile) {
    try {
      const auto began = std::chrono::floor<std::chrono::seconds>(profile.began);
      const auto file  = history_.folder / fmt::format("cpu-{:%Y%m%dT%H%M%S}Z.pb", fmt::gmtime(began));
      write_file_atomically(file, to_pprof(profile));
      delete_old_profiles(history_, file);
    } catch (const std::exception& error) {
      if (history_.warn && !std::exchange(warned_, true))
        history_.warn(fmt::format("a CPU profile was lost: {}", error.what()));
    }
  }

  CpuProfiler& profiler_;
  const ProfileHistory history_;
  bool warned_ = false;
};

}  // namespace

Status keep_profiles(CpuProfiler& profiler, ProfileHistory history) {
  // Creates the folder, and nothing else: it is not published.
  if (const auto probe = NewFile::create(history.folder / "cpu-profile", 0); !probe)
    return Error{probe.error().message + ": give a folder that can be written"};
  std::make_shared<HistoryWriter>(profiler, std::move(history))->next_window();
  return Ok{};
}

}  // namespace fathom::profile
