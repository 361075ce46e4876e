#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "cli/common.h"
#include "cli/terminal.h"

namespace situ::cli {

Waiting::Waiting(std::function<std::string()> line) : line_(std::move(line)) {
  if (isatty(STDERR_FILENO)) shower_ = std::thread([this] { show(); });
}

void Waiting::show() {
  constexpr std::chrono::milliseconds kPatience{300}, kAgain{200};
  std::unique_lock held(mutex_);
  std::string shown;
  for (auto pause = kPatience; !ended_.wait_for(held, pause, [this] { return over_; }); pause = kAgain) {
    const std::string line = line_();
    if (line == shown) continue;
    std::fprintf(stderr, "\r\033[K%s ", line.c_str());
    std::fflush(stderr);
    shown = line;
  }
  if (!shown.empty()) std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
}

void Waiting::stop() {
  if (!shower_.joinable()) return;
  {
    const std::lock_guard held(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  shower_.join();
}

// The pages that the process has in memory: what is mapped of the weights and has been read, and what is packed.
static double resident_bytes() {
  long long all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::function<std::string()> loading_line(const std::string& model) {
  const auto start = std::chrono::steady_clock::now();
  return [start, name = one_line(model)] {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start);
    return "loading " + name + ": " + size_text(resident_bytes()) + " in memory, " + std::to_string(seconds.count()) +
           " s";
  };
}

std::function<std::string()> prompt_line(const Model& model, int64_t tokens) {
  return [model, tokens, before = model.stats().rows] {
    const int64_t read = std::min(tokens, model.stats().rows - before);
    return "reading the prompt: " + std::to_string(read) + " of " + std::to_string(tokens) + " tokens";
  };
}

}  // namespace situ::cli
