#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cli/table.h"

namespace fathom::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
// In a pipe: a log shows which experiment takes so long.
constexpr auto kHeartbeat = std::chrono::seconds(15);
constexpr int kBar        = 20;

std::string left(const lab::Progress& progress) {
  return progress.seconds_left > 0 ? ", " + duration_text(progress.seconds_left) + " left" : "";
}

std::string now(const lab::Progress& progress) {
  return fmt::format("{}{}{}{}{}", progress.experiment, progress.variant.empty() ? "" : " ", progress.variant,
                     progress.phase.empty() ? "" : ": ", progress.phase);
}

}  // namespace

std::string duration_text(double seconds) {
  if (!(seconds >= 0)) return "0 s";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string progress_bar(const lab::Progress& progress, int columns) {
  const double share =
      progress.total > 0 ? std::clamp(static_cast<double>(progress.done) / progress.total, 0., 1.) : 0;
  const int full   = static_cast<int>(share * kBar);
  std::string text = fmt::format("[{}{}] {}/{} {}{}", std::string(static_cast<size_t>(full), '#'),
                                 std::string(static_cast<size_t>(kBar - full), '-'), progress.done,
                                 progress.total, now(progress), left(progress));
  // A line that wraps cannot be rewritten.
  while (display_width(text) >= columns && !text.empty()) text.pop_back();
  return text;
}

std::string progress_line(const lab::Progress& progress) {
  if (!progress.finished)
    return fmt::format("{}/{} {}{}", std::min(progress.done + 1, progress.total), progress.total,
                       now(progress), left(progress));
  return fmt::format("{}/{} {}: {} in {}{}", progress.done, progress.total, progress.experiment,
                     to_string(progress.finished->status), duration_text(progress.finished->seconds),
                     left(progress));
}

int terminal_columns(int fd) {
  winsize size{};
  if (isatty(fd) == 0) return 0;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void ProgressDisplay::show(const lab::Progress& progress) {
  const auto time = Clock::now();
  const bool due  = time - last_ >= (columns_ > 0 ? Clock::duration(kRedraw) : Clock::duration(kHeartbeat));
  if (!progress.finished && !due) return;
  last_ = time;
  if (columns_ > 0) {
    std::fputs(("\r\x1b[K" + progress_bar(progress, columns_)).c_str(), out_);
    drawn_ = true;
  } else {
    std::fputs((progress_line(progress) + "\n").c_str(), out_);
  }
  std::fflush(out_);
}

void ProgressDisplay::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace fathom::cli
