#include "cli/models.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/terminal.h"

namespace situ::cli {
namespace {

std::string megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < 1e9 ? "%.1f MB" : "%.2f GB", bytes / (bytes < 1e9 ? 1e6 : 1e9));
  return text;
}

// On a terminal a line that is written over; elsewhere a line every ten seconds.
class DownloadLine {
 public:
  void show(int64_t done, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (begin_ == std::chrono::steady_clock::time_point()) begin_ = last_ = now, first_ = done;
    const bool over = terminal_ && done >= total;
    if (!over && now - last_ < (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10000))) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count(),
                 rate = seconds > 0 ? static_cast<double>(done - first_) / seconds : 0;
    std::string text = megabytes(static_cast<double>(done)) + " of " + megabytes(static_cast<double>(total));
    if (rate > 0) {
      text += ", " + megabytes(rate) + "/s";
      if (done < total)
        text += ", " + std::to_string(static_cast<int64_t>(static_cast<double>(total - done) / rate) + 1) + " s left";
    }
    if (terminal_)
      std::fprintf(stderr, "\r\033[K%s%s", over ? "" : text.c_str(), over ? "" : " ");
    else
      std::fprintf(stderr, "situ: %s\n", text.c_str());
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point begin_, last_;
  int64_t first_ = 0;
};

}  // namespace

void add_offline_option(CLI::App& command) {
  command.add_flag_callback(
      "--offline", [] { setenv("HF_HUB_OFFLINE", "1", 1); }, "Ask no hub: a model by name has to be in the cache");
}

PullOptions shown_pull(bool ask) {
  PullOptions options;
  options.ask = ask;
  options.note = [](const std::string& line) { std::fprintf(stderr, "situ: %s\n", one_line(line).c_str()); };
  options.progress = [line = std::make_shared<DownloadLine>()](int64_t done, int64_t total) {
    line->show(done, total);
    return true;
  };
  return options;
}

int fail_pull(const Status& status, const char* command) {
  const bool outside = status.code() == Code::kInternal || status.code() == Code::kNoRoom;
  fail(status.message(), kFailed);
  for (const Reason& r : status.reasons())
    if (!r.advice.empty()) std::fprintf(stderr, "  situ %s %s\n", command, one_line(r.advice).c_str());
  return outside ? kFailed : kRefused;
}

static int find_one(std::string& model, std::vector<std::string>& variants, const char* command) {
  PullOptions options = shown_pull(false);
  options.variants = variants;
  Result<Pulled> found = situ::pull(model, options);
  if (found.is_ok()) {
    model = found->path;
    variants = found->variants;
    return kDone;
  }
  // Loading says what is wrong with a path.
  return found.status().code() == Code::kNotFound ? kDone : fail_pull(found.status(), command);
}

int find_model(std::string& model, LoadOptions& load, const char* command) {
  std::vector<std::string> none;
  if (const int code = find_one(model, load.variants, command); code != kDone || load.draft.empty()) return code;
  return find_one(load.draft, none, command);
}

}  // namespace situ::cli
